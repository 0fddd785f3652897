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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wherefrom.display import view
from wherefrom.errors import InvalidOption
from wherefrom.result.explanation import Array
from wherefrom.typecheck import checked, kind_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Link = tuple[int, int]  # (source word, target word), from 0
WRITTEN = re.compile(r"(\d+)([-p])(\d+)")
EXPECTED = "expected `alignment.links()` and `gold_links(line)` of one sentence, or lists with these of each sentence"


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
        layer = checked("layer", layer, int)
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
        return self.written()

    def written(self, layer: int = -1) -> str:
        """The same of any layer."""
        return " ".join(f"{s}-{t}" for s, t in self.links(layer))

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


def gold_links(line: str, first: int = 1) -> GoldLinks:
    """Those of a line such as "1-1 2p3": source and target word, "-" sure and "p" possible.

    first: the number of a text's first word, 1 as in RWTH's gold alignments; `str(alignment)` and fast_align have 0.

    >>> gold_links("1-1 2p3").possible == {(0, 0), (1, 2)}
    True
    >>> gold_links("0-0 1p2", first=0) == gold_links("1-1 2p3")
    True
    """
    if not isinstance(line, str):
        raise InvalidOption(f"gold links of {kind_of(line)}; expected a line such as '1-1 2p3'")
    if checked("first", first, int) not in (0, 1):
        raise InvalidOption(f"first={first}; expected 1 or 0, the number of a text's first word")
    parts = [WRITTEN.fullmatch(part) for part in line.split()]
    if None in parts:
        raise InvalidOption(f"{line[:60]!r} is no line of gold links; expected such as '1-1 2p3'")
    found = [(int(part[1]) - first, int(part[3]) - first, part[2]) for part in parts if part is not None]
    if any(min(s, t) < 0 for s, t, _ in found):
        raise InvalidOption(
            f"{line[:60]!r} has a word before number {first}, the first; where words count from 0, pass first=0"
        )
    sure = frozenset((s, t) for s, t, kind in found if kind == "-")
    return GoldLinks(sure, frozenset((s, t) for s, t, _ in found))


def alignment_error_rate(
    found: Iterable[Link] | Iterable[Iterable[Link]], gold: GoldLinks | Iterable[GoldLinks]
) -> float:
    """AER of the links of one sentence, or of a list of sentences: from 0, where they are the gold ones, to 1.

    >>> alignment_error_rate([(0, 0), (1, 1)], gold_links("1-1 2p2 3-3"))
    0.25
    """
    if not isinstance(gold, GoldLinks) and not (isinstance(gold, Iterable) and isinstance(found, Iterable)):
        raise InvalidOption(f"links of {kind_of(found)} and gold links of {kind_of(gold)}; {EXPECTED}")
    ours, theirs = ([found], [gold]) if isinstance(gold, GoldLinks) else ([*found], [*gold])
    if len(ours) != len(theirs):
        raise InvalidOption(f"there are links of {len(ours)} sentences and gold links of {len(theirs)}; {EXPECTED}")
    hits = drawn = 0
    for links, wanted in zip(map(_checked, ours), theirs, strict=True):
        if not isinstance(wanted, GoldLinks):
            raise InvalidOption(f"{str(wanted)[:60]!r} are no gold links; {EXPECTED}")
        sure, possible = wanted
        hits += len(links & possible) + len(links & sure)
        drawn += len(links) + len(sure)
    if not drawn:
        raise InvalidOption("there are no links to compare; expected at least one")
    return 1 - hits / drawn


def _checked(links: object) -> set[Link]:
    """The links of one sentence; a single link in their place would be a set of numbers, and the rate a quiet 1."""
    every: list[Any] = list(links) if isinstance(links, Iterable) else [links]
    if not all(isinstance(link, tuple) and len(link) == 2 and all(map(_is_place, link)) for link in every):
        raise InvalidOption(f"{str(links)[:60]!r} are no links of a sentence; {EXPECTED}")
    return set(every)


def _is_place(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)
