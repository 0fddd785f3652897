r"""Word alignments: which source word each target word comes from, and how far they are from a gold standard.

    AER = 1 − (|A ∩ P| + |A ∩ S|) / (|A| + |S|)        over all sentences of a corpus; S ⊂ P: sure and possible links

A token's row over the source becomes a word's: pieces of a source word are summed, rows of a target word's pieces
averaged. A target word is linked to the source word that has the most of it; to none where the source's end has.

Och & Ney (2003), A Systematic Comparison of Various Statistical Alignment Models. https://aclanthology.org/J03-1002
Ferrando et al. (2022), Towards Opening the Black Box of Neural Machine Translation.
https://aclanthology.org/2022.emnlp-main.599
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wherefrom.display import view
from wherefrom.errors import InvalidOption
from wherefrom.result.explanation import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Link = tuple[int, int]  # (source word, target word), from 0
WRITTEN = re.compile(r"(\d+)([-p])(\d+)")


class GoldLinks(NamedTuple):
    """The links of one sentence pair that people have drawn."""

    sure: frozenset[Link]
    possible: frozenset[Link]  # those that are sure too


@dataclass(frozen=True, eq=False)
class Alignment:
    """How much of each target word comes from each source word, by decoder layer."""

    source: list[str]
    target: list[str]
    layers: Array  # [L, target words, source words + 1]: the last column is the end of the source
    method: str = ""
    model: str = ""

    def weights(self, layer: int = -1) -> Array:
        """[target words, source words], of one layer of the decoder: the last, unless told otherwise."""
        if not -len(self.layers) <= layer < len(self.layers):
            raise InvalidOption(f"layer {layer} is outside the {len(self.layers)} layers of the decoder")
        found: Array = self.layers[layer][:, :-1]
        return found

    def links(self, layer: int = -1) -> list[Link]:
        """The source word of each target word that has one."""
        self.weights(layer)
        best = self.layers[layer].argmax(-1)
        return [(int(s), t) for t, s in enumerate(best) if s < len(self.source)]

    def __str__(self) -> str:
        """As alignments are written: "0-0 1-2", source and target word from 0."""
        return " ".join(f"{s}-{t}" for s, t in self.links())

    def plot(self, layer: int = -1, **options: object) -> Figure:
        """The source × target heatmap (the extra `plot`): width is "column", "page" or inches, dark=True for dark."""
        picture: Figure = view("picture-alignment")(self, layer, **options)
        return picture

    def show(self, layer: int = -1) -> None:
        """Print the source × target table."""
        view("terminal-alignment")(self, layer)


def word_rows(
    rows: Array, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], end: Sequence[int] = ()
) -> Array:
    """Rows of tokens [T, S] as those of words, the tokens of `end` last: [target words, source words + 1]."""
    columns = np.stack([rows[:, list(tokens)].sum(1) for tokens in (*source, end)], 1)
    found: Array = np.stack([columns[list(tokens)].mean(0) for tokens in target])
    return found


def gold_links(line: str) -> GoldLinks:
    """Those of a line such as "1-1 2p3": source and target word from 1, "-" sure and "p" possible.

    >>> gold_links("1-1 2p3").possible == {(0, 0), (1, 2)}
    True
    """
    parts = [WRITTEN.fullmatch(part) for part in line.split()]
    if None in parts:
        raise InvalidOption(f"{line[:60]!r} is no line of gold links; expected such as '1-1 2p3'")
    found = [(int(part[1]) - 1, int(part[3]) - 1, part[2]) for part in parts if part is not None]
    sure = frozenset((s, t) for s, t, kind in found if kind == "-")
    return GoldLinks(sure, frozenset((s, t) for s, t, _ in found))


def alignment_error_rate(found: Iterable[Iterable[Link]], gold: Iterable[GoldLinks]) -> float:
    """AER of the links of a corpus: from 0, where they are the gold ones, to 1."""
    hits = drawn = 0
    for links, (sure, possible) in zip(found, gold, strict=True):
        ours = set(links)
        hits += len(ours & possible) + len(ours & sure)
        drawn += len(ours) + len(sure)
    if not drawn:
        raise InvalidOption("there are no links to compare; expected at least one")
    return 1 - hits / drawn
