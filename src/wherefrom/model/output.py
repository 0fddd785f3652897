"""A captured pass together with the one number of its output that is explained, and that number's gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from wherefrom.errors import InvalidOption
from wherefrom.model.backward import Ways, at_once, by_row, taken_back, ways
from wherefrom.model.embedding import KINDS as EMBEDDED
from wherefrom.model.kept import once_in
from wherefrom.model.later import sent
from wherefrom.model.model import Model
from wherefrom.model.parts import promote
from wherefrom.model.target import logit, multi_label, regression
from wherefrom.model.trace import Trace
from wherefrom.model.two_streams import gathered, leaves
from wherefrom.result.answer import Answer, Target

T = TypeVar("T")
OF = ("auto", "logit", "target-logit", "log-probability", "logit-probability", "probability")
CHOOSING = (
    "classification",
    "token-classification",
    "masked-lm",
    "causal-lm",
    "seq2seq",
)  # heads that choose one of many


class Gradients(NamedTuple):
    """∂y/∂· for one number y per sentence; float32 or float64."""

    words: Tensor  # word embeddings [B, n, e]
    embeddings: Tensor  # output of the embedding module [B, n, e]
    hidden: list[Tensor]  # input of each block, and last the output of the last: L + 1 times [B, n, d]
    attention: list[Tensor]  # L times [B, H, n, n]; of two streams [B, H, rows, columns] of each step, and no `hidden`


@dataclass(frozen=True, eq=False)
class OutputTrace:
    """A batch, and for each sentence the entry of the output that is explained."""

    trace: Trace
    answers: list[Answer]
    asked: Sequence[Sequence[Answer]] = ()  # by sentence, where more than these are explained of one pass
    which: int = 0  # and these are number `which` of them
    _gradients: dict[str, Gradients] = field(default_factory=dict, repr=False)
    _shared: dict[str, Any] = field(default_factory=dict, repr=False)

    def towards(self, answers: list[Answer]) -> OutputTrace:
        """The same pass, another number (another class)."""
        return replace(self, answers=answers, asked=(), which=0, _gradients={}, _shared={})

    def among(self, asked: Sequence[Sequence[Answer]], which: int) -> OutputTrace:
        """The same pass, one number of several that are explained of it; `asked` are all of them, by sentence."""
        return replace(self.towards([each[which] for each in asked]), asked=asked, which=which)

    @property
    def several(self) -> bool:
        """Whether more than one number is explained of this pass."""
        return len(self.asked[0]) > 1 if self.asked else False

    def together(self, key: str, make: Callable[[list[OutputTrace]], Sequence[T]]) -> T:
        """What `make` has for this number, computed side by side with the numbers asked for after it.

        As many at once as memory bears; kept until those are done with.
        """
        kept: dict[int, T] = self.trace.once(f"together {key}", lambda _: {})
        if self.which not in kept:
            end = min(self.which + at_once(self.trace), len(self.asked[0]))
            found = make([self.among(self.asked, which) for which in range(self.which, end)])
            kept.clear()
            kept.update(zip(range(self.which, end), found, strict=True))
        return kept[self.which]

    @property
    def mask(self) -> Tensor:
        return self.trace.mask.to(self.trace.embeddings.device)

    @property
    def paying(self) -> Tensor:
        """The real tokens; of a causal model those that the explained number may depend on, up to where it is read.

        A mean over the rows of a map is over these, lest what is said later have a share in it: [B, n].
        """
        mask = self.mask
        if not self.trace.opened.causal or self.trace.streams is not None:
            return mask
        readouts = [each.readout for each in self.answers]
        ends = [max(each.rows, default=each.position) for each in readouts]
        last = torch.tensor([mask.shape[1] if end is None else end for end in ends], device=mask.device)
        return mask & (torch.arange(mask.shape[1], device=mask.device) <= last[:, None])

    def number(self, of: str = "logit", output: Any = None, lengths: Sequence[int] | None = None) -> Tensor:
        """The explained numbers [B], of this pass or of another one's `output` on sentences of these lengths."""
        output = self.trace.output if output is None else output
        lengths = self.trace.batch.lengths if lengths is None else lengths
        return explained(self.trace.opened, output, self.answers, lengths, of)

    def gradients(self, of: str = "logit", *, attention: bool = False) -> Gradients:
        """One backward pass, shared by all methods that ask for the same number, and by several numbers.

        Where there are several, the gradients of attention weights, larger than all others, only if asked for.
        """
        meant = {settled(of, each) for each in self.answers}
        of = meant.pop() if len(meant) == 1 else of
        if self.several and not attention:
            return self.together(f"gradients of {of}", lambda outputs: _gradients(outputs, of, attention=False))
        if of not in self._gradients:
            self._gradients[of] = _gradients([self], of, attention=True)[0]
        return self._gradients[of]

    def once(self, key: str, make: Callable[[OutputTrace], T]) -> T:
        """`make(self)`, computed once for one number: what several methods have in common."""
        return once_in(self._shared, key, lambda: make(self))

    def row(self, maps: Tensor) -> Tensor:
        """The readout row of each sentence's map: [B, n, n] -> [B, n]."""
        rows = []
        for sentence, answer in enumerate(self.answers):
            where, several = answer.readout.position, list(answer.readout.rows)
            real = maps[sentence, several] if several else maps[sentence][self.mask[sentence].to(maps.device)]
            rows.append(real.mean(0) if where is None else maps[sentence, where])
        return torch.stack(rows)


def _gradients(outputs: Sequence[OutputTrace], of: str, *, attention: bool) -> list[Gradients]:
    """Those of several numbers of one pass."""
    trace = outputs[0].trace
    two = trace.streams is not None  # whose steps have no state of the whole axis
    weights = [layer.raw["attention"] if layer.step is None else layer.step.own["attention"] for layer in trace.layers]
    weights = weights if attention else []
    hidden = [layer.raw["x"] for layer in trace.layers] + [layer.raw["output"] for layer in trace.layers[-1:]]
    hidden = [] if two else hidden
    # A block's input may come from another device than the block's own, on which everything of it is.
    places = [layer.device for layer in [*trace.layers, *trace.layers[-1:]]]
    given = ways_of(outputs[0], trace, of, lambda each, read: each.number(of, read))
    wanted, made = [*leaves(trace), *hidden, *weights], []
    for found in taken_back(trace, given, [each.which for each in outputs], wanted):
        words, embeddings, rest = gathered(trace, [promote(g) for g in found])
        states = [gradient.to(place) for gradient, place in zip(rest[: len(hidden)], places, strict=False)]
        made.append(Gradients(words, embeddings, states, rest[len(hidden) :]))
    return made


def ways_of(output: OutputTrace, trace: Trace, key: str, number: Callable[[OutputTrace, Any], Tensor]) -> Ways:
    """Where the ways back of all numbers begin that are asked of a pass, found once; `number` reads one of them."""
    if not output.several:
        return Ways([number(output, trace.output)])

    def make(_: Trace) -> Ways:
        read = by_row(trace.output)
        each = [output.among(output.asked, which) for which in range(len(output.asked[0]))]
        places = [[answer.readout.position for answer in one.answers] for one in each]
        return ways(trace, [number(one, read) for one in each], places)

    return trace.once(f"ways back of {key}", make)


def explained(
    opened: Model,
    output: Any,
    answers: Sequence[Answer],
    lengths: Sequence[int],
    of: str | Sequence[str],
    *,
    frozen: bool = False,
) -> Tensor:
    """The explained number of each sentence of a batch, from the model's output on it: [B].

    "auto" is the logit of an entry and the log-probability of a phrase. With a foil, "logit" is the difference of the
    two logits and "target-logit" the target's alone; "probability" is that of the target among these two (Value
    Zeroing, section 7), whose logit is the difference of their log-probabilities.
    """
    asked = [of] * len(answers) if isinstance(of, str) else of
    each = [settled(one, answer) for one, answer in zip(asked, answers, strict=True)]
    answers = [
        without_foil(answer) if one == "target-logit" else answer for one, answer in zip(each, answers, strict=True)
    ]
    each = ["logit" if one == "target-logit" else one for one in each]
    targets = [answer.target for answer in answers]
    if set(each) == {"logit"} and _of_classes(opened, targets):
        return _chosen(promote(output.logits), targets)
    if set(each) == {"probability"} and one_class_each(opened, targets):
        return _chosen(promote(output.logits).softmax(-1), targets)
    rows = enumerate(zip(each, answers, lengths, strict=True))
    return torch.stack(
        [
            logit(opened, output, row, answer, n, frozen=frozen)
            if one == "logit"
            else _odds(opened, output, row, answer, n)
            if one == "logit-probability"
            else _likelihood(opened, output, row, answer, n, log=one == "log-probability")
            for row, (one, answer, n) in rows
        ]
    )


def without_foil(answer: Answer) -> Answer:
    """The answer whose target is explained by itself."""
    return replace(answer, target=replace(answer.target, foil=None, foil_label=None))


def settled(of: str, answer: Answer, usual: str = "logit") -> str:
    """Which number is meant where it is left open: the usual one of an entry, the log-probability of a phrase."""
    if of not in OF:
        raise InvalidOption(f"cannot explain {of!r}; expected one of {', '.join(OF)}")
    return of if of != "auto" else "log-probability" if answer.target.kind == "phrase" else usual


def predicted(opened: Model, output: Any, answers: Sequence[Answer]) -> Tensor:
    """The id of the class or word that the model puts first for each sentence, NaN where it chooses none: [B]."""
    if opened.task not in CHOOSING or regression(opened) or multi_label(opened):
        return torch.full((len(answers),), torch.nan)
    if opened.task == "classification":
        return promote(output.logits).argmax(-1).double()
    return torch.tensor(
        [
            torch.nan if (where := answer.readout.position) is None else int(output.logits[row, where].argmax())
            for row, answer in enumerate(answers)
        ],
        dtype=torch.float64,
    )


def _of_classes(opened: Model, targets: Sequence[Target]) -> bool:
    """Whether all ask for a class of a classifier and no foil: then what one sentence takes does for all of them."""
    return opened.task == "classification" and all(
        each.kind == "class" and each.index is not None and each.foil is None for each in targets
    )


def one_class_each(opened: Model, targets: Sequence[Target]) -> bool:
    """Whether these classes are such that a softmax chooses among."""
    chooses = opened.config.problem_type not in ("multi_label_classification", "regression") and len(opened.labels) > 1
    return chooses and _of_classes(opened, targets)


def _chosen(numbers: Tensor, targets: Sequence[Target]) -> Tensor:
    """Each sentence's own: [B, C] -> [B]."""
    index = sent(torch.tensor([each.index for each in targets]), numbers.device)
    return numbers.gather(1, index[:, None])[:, 0]


def _likelihood(opened: Any, output: Any, row: int, answer: Answer, n: int, *, log: bool) -> Tensor:
    """The probability of the target, or its logarithm.

    Probabilities of a model in half precision are float32: near 1 its own numbers lie 0.004 apart.
    """
    number = logit(opened, output, row, answer, n)  # says what is wrong where there is nothing to explain
    if answer.target.kind in EMBEDDED:
        return number  # which there is no probability of: a cosine and a dimension stand for themselves
    if regression(opened):
        raise InvalidOption(
            "a regression has no probabilities; say of='logit' to take its number instead, which ablation, "
            "ablation-pairs, context-cite and the metrics morf, lerf and lerf-morf can. The check and the other "
            "metrics of erasure cannot"
        )
    if answer.target.foil is not None:
        return number if log else torch.sigmoid(number)
    if answer.target.kind == "class" and multi_label(opened):
        return functional.logsigmoid(number) if log else torch.sigmoid(number)
    among = functional.log_softmax if log else functional.softmax
    parts = torch.stack(
        [among(promote(scores), -1)[index] for scores, index in choices(opened, output, row, answer, n)]
    )
    return parts.sum() if log else parts.prod()


def _odds(opened: Any, output: Any, row: int, answer: Answer, n: int) -> Tensor:
    """log p − log(1 − p) of the target, in float64: each choice against all others, so that none is lost near p = 1."""
    number = logit(opened, output, row, answer, n)  # says what is wrong where there is nothing to explain
    if answer.target.foil is not None or answer.target.kind in EMBEDDED or regression(opened):
        return _likelihood(opened, output, row, answer, n, log=True).double()
    if answer.target.kind == "class" and multi_label(opened):
        return number.double()
    parts = []
    for scores, index in choices(opened, output, row, answer, n):
        others = scores.double().clone()
        others[index] = -torch.inf
        parts.append(scores[index].double() - others.logsumexp(-1))
    log = functional.logsigmoid(torch.stack(parts)).sum()
    return log - torch.log(-torch.expm1(log))


def choices(opened: Any, output: Any, row: int, answer: Answer, n: int) -> Iterator[tuple[Tensor, int | None]]:
    """What the target is chosen among, and which of it: one choice, or several that are made one after the other.

    An answer's edges compete with the n tokens of their own sentence, not with its padding.
    """
    target, readout = answer.target, answer.readout
    if target.kind == "phrase":
        yield from zip(output.logits[row, list(readout.rows)], target.tokens, strict=True)
    elif target.kind == "answer":
        yield output.start_logits[row, :n], target.index
        yield output.end_logits[row, :n], target.end
    elif target.kind in ("start", "end"):
        yield getattr(output, f"{target.kind}_logits")[row, :n], target.index
    else:
        yield (
            output.logits[row] if opened.task == "classification" else output.logits[row][readout.position],
            target.index,
        )
