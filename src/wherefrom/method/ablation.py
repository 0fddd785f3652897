r"""Blank-out: how much the prediction loses when a token is taken away.

    score_i  =  p(y | e) − p(y | e without i)

Token i is replaced by the unknown token (Abnar & Zuidema; Value Zeroing), the mask (ALTI), padding or a token of
choice, or deleted; or with `by="attention"` no token sees it, in any layer, and all keep their positions (the erasure
of Yin & Neubig). `by="auto"` is the unknown token, and attention where the tokenizer has none, as in most language
models (the mask or padding token in a model whose blocks are not known). p is the softmax probability over all classes,
or over target and foil alone where a foil is given (Value Zeroing, section 7; `over` decides otherwise, and with
"difference" it is p(target) − p(foil) over all, Yin & Neubig's); `of="logit"` takes logits, `of="log-probability"`
logarithms, as it does by itself of a phrase. With `unit="word"` all pieces of a word go at once and share its score. It
takes one forward pass for each token.
Patches of a picture are painted over (by="mean", which is "auto", "black" or "blur": model/pictures.py).
`ablation-pairs` takes two tokens at a time: M_ij = p(y | e) − p(y | e without i and j).

Replacing goes over every token, special ones included, and only the embedding is replaced: positions and the token that
the head reads stay those of the sentence, also where padding stands in. A deleted sequence has no place for the token
that the head reads and none for the tokenizer's own: these are never deleted and score 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from wherefrom.errors import InvalidOption, InvalidTarget
from wherefrom.method.base import Of, Scores, method
from wherefrom.method.citations import ABNAR_2020
from wherefrom.model.output import without_foil
from wherefrom.model.perturb import PAINT, By, stand_in_for, suggested, untokenized
from wherefrom.result.answer import Answer
from wherefrom.result.words import group
from wherefrom.work import BatchShape, Work, forward

if TYPE_CHECKING:
    from wherefrom.model import Model, OutputTrace, Sentence

IDEA = "taking tokens away"
OTHERWISE: tuple[By, ...] = ("unknown", "mask", "pad")
Over = Literal["auto", "all", "pair", "difference"]  # among all classes, or that of target and foil alone
Change = Callable[["Sentence", Answer, Sequence[int]], "tuple[Sentence, Answer] | None"]


def reruns(s: BatchShape, variants: int) -> Work:
    """A pass for each variant of each sentence, many side by side."""
    from wherefrom.model.rerun import TOKENS

    together = min(variants, max(1, TOKENS // s.n))
    side_by_side = forward(s._replace(lengths=(s.n,) * together))
    runs = max(1, len(s.lengths) * variants / together)
    work = forward(s).times(0.6 * variants * s.depth)
    return work._replace(calls=side_by_side.calls * runs * s.depth, held=side_by_side.held)


@method(
    "ablation",
    symbols=("blank-out", "blankout"),
    idea=IDEA,
    paper=ABNAR_2020,
    needs={"reruns"},
    checks={"batch-equals-single", "token-permutation", "sign-flips-with-foil"},
    cost=lambda s, _: reruns(s, s.n),
    kind="scores",
    signed=True,
    class_specific=True,
)
def ablation(
    output: OutputTrace,
    *,
    by: By = "auto",
    of: Of = "auto",
    over: Over = "auto",
    unit: Literal["token", "word"] = "token",
) -> Scores:
    """Drop in probability when each token is blanked out."""
    groups = [
        group(sentence.texts, sentence.spans, sentence.word_ids)
        if unit == "word"
        else [[i] for i in range(len(sentence))]
        for sentence in output.trace.batch.sentences
    ]
    drops = _drops(output, groups, by, of, over)
    scores = torch.zeros(output.mask.shape, dtype=torch.float64)
    for row, (taken, losses) in enumerate(zip(groups, drops, strict=True)):
        for members, loss in zip(taken, losses, strict=True):
            scores[row, members] = loss
    return Scores(scores)


@method(
    "ablation-pairs",
    idea=IDEA,
    paper=ABNAR_2020,
    needs={"reruns"},
    checks={"batch-equals-single", "token-permutation", "sign-flips-with-foil"},
    cost=lambda s, _: reruns(s, s.n * (s.n + 1) // 2),
    signed=True,
    class_specific=True,
    aggregate=None,
    pairs=True,
)
def ablation_pairs(output: OutputTrace, *, by: By = "auto", of: Of = "auto", over: Over = "auto") -> list[Tensor]:
    """Drop in probability when two tokens are blanked out together; the diagonal is `ablation`."""
    lengths = output.trace.batch.lengths
    pairs = [[[i, j] if i < j else [i] for i in range(n) for j in range(i, n)] for n in lengths]
    maps = torch.zeros(len(lengths), *(2 * [max(lengths)]), dtype=torch.float64)
    for row, (taken, losses) in enumerate(zip(pairs, _drops(output, pairs, by, of, over), strict=True)):
        for members, loss in zip(taken, losses, strict=True):
            maps[row, members[0], members[-1]] = maps[row, members[-1], members[0]] = loss
    return [maps]


def _drops(output: OutputTrace, groups: Sequence[list[list[int]]], by: By, of: str, over: str) -> list[Tensor]:
    """For each sentence the loss at each group of tokens."""
    if by == "auto":
        by = found_way(output.trace.opened)
    if over == "difference":
        answers = [_over(answer, over) for answer in output.answers]
        foils = [replace(each, target=replace(each.target, index=each.target.foil)) for each in answers]
        sides = (_drops(output.towards(each), groups, by, of, "all") for each in (answers, foils))
        return [target - foil for target, foil in zip(*sides, strict=True)]
    # Where a token is deleted it matters which one is read; else one pass has the loss of every number asked of it.
    alone = by == "delete" or not output.asked
    asked = [[each] for each in output.answers] if alone else output.asked
    which = 0 if alone else output.which
    key = f"drops {by} {of} {over} {[len(each) for each in groups]}"
    lose = partial(_losses, output, groups, by, of, [[_over(each, over) for each in row] for row in asked])
    found = lose() if alone else output.trace.once(key, lambda _: lose())
    return [each[:, which] for each in found]


def _losses(
    output: OutputTrace,
    groups: Sequence[list[list[int]]],
    by: By,
    of: str,
    asked: Sequence[Sequence[Answer]],
) -> list[Tensor]:
    """For each sentence what each number loses at each group of tokens: [groups, numbers]."""
    from wherefrom.model.output import settled
    from wherefrom.model.rerun import several_numbers

    change = changing(output.trace.opened, by)
    sentences, answers, where = [], [], []
    for row, (sentence, wanted) in enumerate(zip(output.trace.batch.sentences, asked, strict=True)):
        sentences.append(sentence)
        answers.append(list(wanted))
        where.append((row, -1))
        for which, taken in enumerate(groups[row]):
            changed = [change(sentence, answer, taken) for answer in wanted]
            known = [each for each in changed if each is not None]
            if known:
                sentences.append(known[0][0])
                answers.append([answer for _, answer in known])
                where.append((row, which))
    # Whole sentences are read again beside the others: differences are between numbers of one implementation.
    meant = [[settled(of, each, "probability") for each in row] for row in answers]
    found = several_numbers(output.trace.opened, sentences, answers, meant, own_attention=by != "attention")
    losses = [torch.zeros(len(taken), found.shape[1], dtype=torch.float64) for taken in groups]
    whole = {row: value for (row, which), value in zip(where, found, strict=True) if which < 0}
    for (row, which), value in zip(where, found, strict=True):
        if which >= 0:
            losses[row][which] = whole[row] - value
    return losses


def _over(answer: Answer, over: str) -> Answer:
    if over in ("pair", "difference") and answer.target.foil is None:
        raise InvalidTarget(f"over={over!r} needs a foil= beside the target")
    return without_foil(answer) if over == "all" else answer


def found_way(opened: Model) -> By:
    """The unknown token, attention where there is none, another token where the blocks are not known; of a picture its
    mean colour."""
    if opened.images:
        return PAINT
    if opened.family.mapped:
        return "unknown" if stand_in_for(opened, "unknown") is not None else "attention"
    return next((way for way in OTHERWISE if stand_in_for(opened, way) is not None), "unknown")


def changing(opened: Model, by: str | int) -> Change:
    """How tokens go: what is read without them, and where; None where nothing can be."""
    if by == "delete":
        if opened.images:
            raise InvalidOption(
                "a patch cannot be deleted from a picture; by='attention' lets no token see it, and by='mean', 'black' "
                "or 'blur' paint it over"
            )
        return _deleted
    if by == "attention":
        opened.need_blocks("by='attention'")
        return lambda sentence, answer, taken: (replace(sentence, unseen=tuple(taken)), answer)
    return _replaced(opened, by)


def _replaced(opened: Model, by: str | int) -> Change:
    blank = stand_in_for(opened, by)
    if blank is None:
        raise InvalidOption(
            f"{opened.name} has no token to blank out by {by!r}{untokenized(opened)}; pass {suggested(opened)}"
        )

    def change(sentence: Sentence, answer: Answer, taken: Sequence[int]) -> tuple[Sentence, Answer]:
        return sentence.blanked(taken, blank), answer

    return change


def _deleted(sentence: Sentence, answer: Answer, taken: Sequence[int]) -> tuple[Sentence, Answer] | None:
    readout = answer.readout
    position, read = readout.position, (readout.position, *readout.rows)
    if any(i in read or sentence.special[i] for i in taken) or len(taken) == len(sentence):
        return None
    shorter = sentence.without(taken)
    if position is None and not readout.rows:
        return shorter, answer
    moved = {old: new for new, old in enumerate(i for i in range(len(sentence)) if i not in taken)}
    target = answer.target
    if target.kind in ("start", "end", "answer"):  # these targets are places in the text
        if target.end in taken:
            return None
        end = None if target.end is None else moved[target.end]
        target = replace(target, index=None if position is None else moved[position], end=end)
    place, rows = None if position is None else moved[position], tuple(moved[each] for each in readout.rows)
    return shorter, replace(answer, target=target, readout=replace(readout, position=place, rows=rows))
