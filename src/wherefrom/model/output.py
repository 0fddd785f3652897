"""A captured pass together with the one number of its output that is explained, and that number's gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from wherefrom.errors import InvalidOption
from wherefrom.model.capture import Trace
from wherefrom.model.embedding import KINDS as EMBEDDED
from wherefrom.model.model import Model
from wherefrom.model.parts import promote
from wherefrom.model.target import logit, regression
from wherefrom.result.answer import Answer

T = TypeVar("T")
OF = ("logit", "probability")
CHOOSING = ("classification", "token-classification", "masked-lm", "causal-lm")  # heads that choose one of many


class Gradients(NamedTuple):
    """∂y/∂· for one number y per sentence; float32 or float64."""

    words: Tensor  # word embeddings [B, n, e]
    embeddings: Tensor  # output of the embedding module [B, n, e]
    hidden: list[Tensor]  # input of each block, and last the output of the last: L + 1 times [B, n, d]
    attention: list[Tensor]  # L times [B, H, n, n]


@dataclass(frozen=True, eq=False)
class OutputTrace:
    """A batch, and for each sentence the entry of the output that is explained."""

    trace: Trace
    answers: list[Answer]
    _gradients: dict[str, Gradients] = field(default_factory=dict, repr=False)
    _shared: dict[str, Any] = field(default_factory=dict, repr=False)

    def towards(self, answers: list[Answer]) -> OutputTrace:
        """The same pass, another number (another class)."""
        return replace(self, answers=answers, _gradients={}, _shared={})

    @property
    def mask(self) -> Tensor:
        return self.trace.mask.to(self.trace.embeddings.device)

    def number(self, of: str = "logit", output: Any = None, lengths: Sequence[int] | None = None) -> Tensor:
        """The explained numbers [B], of this pass or of another one's `output` on sentences of these lengths."""
        output = self.trace.output if output is None else output
        lengths = self.trace.batch.lengths if lengths is None else lengths
        return explained(self.trace.opened, output, self.answers, lengths, of)

    def gradients(self, of: str = "logit") -> Gradients:
        """One backward pass, shared by all methods that ask for the same number."""
        if of not in self._gradients:
            trace = self.trace
            attention = [layer.raw["attention"] for layer in trace.layers]
            hidden = [layer.raw["x"] for layer in trace.layers] + [layer.raw["output"] for layer in trace.layers[-1:]]
            wanted = [trace.words, trace.embeddings, *hidden, *attention]
            # Sentences do not see each other, so the gradient of the sum is each one's own.
            found = torch.autograd.grad(self.number(of).sum(), wanted, retain_graph=True)
            words, embeddings, *rest = [promote(g) for g in found]
            # A block's input may come from another device than the block's own, on which everything of it is.
            places = [layer.device for layer in [*trace.layers, *trace.layers[-1:]]]
            states = [gradient.to(place) for gradient, place in zip(rest, places, strict=False)]
            self._gradients[of] = Gradients(words, embeddings, states, rest[len(hidden) :])
        return self._gradients[of]

    def once(self, key: str, make: Callable[[OutputTrace], T]) -> T:
        """`make(self)`, computed once for one number: what several methods have in common."""
        if key not in self._shared:
            self._shared[key] = make(self)
        found: T = self._shared[key]
        return found

    def row(self, maps: Tensor) -> Tensor:
        """The readout row of each sentence's map: [B, n, n] -> [B, n]."""
        rows = []
        for sentence, answer in enumerate(self.answers):
            where = answer.readout.position
            real = maps[sentence][self.mask[sentence].to(maps.device)]
            rows.append(real.mean(0) if where is None else maps[sentence, where])
        return torch.stack(rows)


def explained(
    opened: Model, output: Any, answers: Sequence[Answer], lengths: Sequence[int], of: str, *, frozen: bool = False
) -> Tensor:
    """The explained number of each sentence of a batch, from the model's output on it: [B]."""
    if of not in OF:
        raise InvalidOption(f"cannot explain {of!r}; expected one of {', '.join(OF)}")
    if of == "logit":
        each = enumerate(zip(answers, lengths, strict=True))
        return torch.stack([logit(opened, output, row, answer, n, frozen=frozen) for row, (answer, n) in each])
    if _one_of_several(opened, output, answers):
        index = torch.tensor([answer.target.index for answer in answers], device=output.logits.device)
        chosen: Tensor = promote(output.logits).softmax(-1).gather(1, index[:, None])[:, 0]
        return chosen
    rows = enumerate(zip(answers, lengths, strict=True))
    return torch.stack([_probability(opened, output, row, answer, n) for row, (answer, n) in rows])


def predicted(opened: Model, output: Any, answers: Sequence[Answer]) -> Tensor:
    """The id of the class or word that the model puts first for each sentence, NaN where it chooses none: [B]."""
    if opened.task not in CHOOSING or regression(opened) or opened.config.problem_type == "multi_label_classification":
        return torch.full((len(answers),), torch.nan)
    if opened.task == "classification":
        return promote(output.logits).argmax(-1).double()
    rows = enumerate(answers)
    return torch.stack([output.logits[row, answer.readout.position].argmax() for row, answer in rows]).double()


def _one_of_several(opened: Model, output: Any, answers: Sequence[Answer]) -> bool:
    """Whether all ask for a class of a classifier, which takes one softmax for the batch and not one for each."""
    return (
        opened.task == "classification"
        and output.logits.shape[-1] > 1
        and opened.config.problem_type not in ("multi_label_classification", "regression")
        and all(a.target.kind == "class" and a.target.index is not None and a.target.foil is None for a in answers)
    )


def _probability(opened: Any, output: Any, row: int, answer: Answer, n: int) -> Tensor:
    """The probability of the target; with a foil, among these two alone (Value Zeroing, section 7).

    An answer's edges compete with the n tokens of their own sentence, not with its padding. Probabilities of a model
    in half precision are float32: near 1 its own numbers lie 0.004 apart.
    """
    number = logit(opened, output, row, answer, n)  # says what is wrong where there is nothing to explain
    if answer.target.kind in EMBEDDED:
        return number  # which there is no probability of: a cosine and a dimension stand for themselves
    if regression(opened):
        raise InvalidOption("a regression has no probabilities; explain its logit (of='logit')")
    if answer.target.foil is not None:
        return torch.sigmoid(number)
    if answer.target.kind == "answer":
        edges = zip((output.start_logits, output.end_logits), (answer.target.index, answer.target.end), strict=True)
        start, end = (promote(scores[row, :n]).softmax(-1)[where] for scores, where in edges)
        both: Tensor = start * end
        return both
    kind, index, where = answer.target.kind, answer.target.index, answer.readout.position
    if kind in ("start", "end"):
        scores: Tensor = getattr(output, f"{kind}_logits")[row, :n]
    else:
        scores = output.logits[row] if opened.task == "classification" else output.logits[row, where]
    if kind == "class" and opened.config.problem_type == "multi_label_classification":
        return torch.sigmoid(promote(scores[index]))
    return promote(scores).softmax(-1)[index]
