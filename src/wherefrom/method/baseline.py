"""What a text is compared with: the same sentence with its tokens replaced; and the model run on from such states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from wherefrom.errors import InvalidInput, InvalidOption, Unsuited
from wherefrom.model.perturb import PAINT, Painted, stand_in_for, untokenized
from wherefrom.model.pictures import PAINTS
from wherefrom.typecheck import shown

if TYPE_CHECKING:
    from wherefrom.model import Model, OutputTrace, Sentence, Trace

# Every token of the text replaced by this one, or all tokens by these.
Swapped = Literal["auto", "mask", "pad", "unknown"] | Painted | int | list[int]
Baseline = Swapped | Literal["zero"]  # the zero vector, which is no token's
BLANKS = ("mask", "pad", "unknown")  # what "auto" takes: the first that the tokenizer has; of a picture PAINT
IDS = ("a token id", "a list of token ids")


def swapped(output: OutputTrace, baseline: Swapped) -> Iterator[Trace]:
    """The pass on the sentences, and the pass on their baselines."""
    from wherefrom.model.capture import capture
    from wherefrom.model.sentences import collate

    opened, sentences = output.trace.opened, output.trace.batch.sentences
    yield capture(opened, collate(sentences, opened.pad_id))
    yield capture(
        opened, collate([baseline_of(output, each, baseline, zero=False) for each in sentences], opened.pad_id)
    )


def check_layer(output: OutputTrace, layer: int | None) -> None:
    if layer is None:
        return
    output.trace.opened.need_blocks("layer=")
    if output.trace.opened.two_streams:
        raise InvalidOption("an encoder with a decoder has no one state of all tokens at a layer; leave layer out")
    depth = output.trace.opened.depth
    if not 0 <= layer < depth:
        raise InvalidOption(
            f"layer is {shown(layer)}; expected a block from 0 to {depth - 1}, or None for the embeddings"
        )


def baseline_of(output: OutputTrace, sentence: Sentence, baseline: Baseline, *, zero: bool = True) -> Sentence:
    """The sentence with every token that the tokenizer did not add itself replaced.

    `zero` is whether the method takes "zero", so that it is not advised where it would be refused.
    """
    opened = output.trace.opened
    if opened.images and isinstance(baseline, int | list):
        raise InvalidOption(
            f"{opened.name} reads pictures, and a token id is no baseline of one; pass baseline= "
            f"{advised(opened, zero)}"
        )
    if isinstance(baseline, list):
        if len(baseline) != len(sentence):
            raise InvalidInput(
                f"{len(baseline)} tokens in baseline for a sentence of {len(sentence)}; expected as many"
            )
        return replace(sentence, embedded=[_known(output, i) for i in baseline])
    if baseline == "zero":
        return sentence
    names = (baseline,) if baseline != "auto" else (PAINT,) if opened.images else BLANKS
    blank = _known(output, baseline) if isinstance(baseline, int) else stand_in_for(opened, *names)
    if blank is None:
        raise Unsuited(
            f"{opened.name} has no {' or '.join(map(str, names))} token for a baseline{untokenized(opened)}; pass "
            f"baseline= {advised(opened, zero)}"
        )
    return sentence.blanked([i for i, special in enumerate(sentence.special) if not special], blank)


def advised(opened: Model, zero: bool) -> str:
    """The end of a message: what the baseline may be, 'zero' among them where the method takes it."""
    named = [each for each in (*BLANKS, *PAINTS) if stand_in_for(opened, each) is not None]
    found = [*(repr(each) for each in (*named, *(["zero"] * zero))), *(() if opened.images else IDS)]
    return " or ".join(filter(None, [", ".join(found[:-1]), found[-1]]))


def _known(output: OutputTrace, token: int) -> int:
    if not 0 <= token < output.trace.opened.vocabulary_size:
        raise InvalidOption(
            f"baseline {shown(token)} is outside the vocabulary of {output.trace.opened.vocabulary_size}"
        )
    return token


def rerun(
    output: OutputTrace, of: str, layer: int | None, *, own_attention: bool = False
) -> Callable[[Tensor, Tensor], Tensor]:
    """A function from states [R, n, ·] and their sentences [R] to the explained numbers [R]."""
    from wherefrom.model.rerun import from_layer

    trace = output.trace

    def run(states: Tensor, rows: Tensor) -> Tensor:
        batch = trace.batch.take(rows)
        found = from_layer(trace.opened, batch, layer, states, tuples=trace.tuples, own_attention=own_attention)
        return output.towards([output.answers[int(row)] for row in rows]).number(of, found, batch.lengths)

    return run
