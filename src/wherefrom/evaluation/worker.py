"""What a worker does with a shard: one captured pass a batch for all methods, then all erasure together, then what
must be explained once more.

A shard's result depends on its examples and the setting alone, not on who computes it or when.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from wherefrom.data import MASK, Example
from wherefrom.errors import EXAMPLE_ERRORS, InvalidInput, InvalidTarget, WherefromError, WherefromWarning
from wherefrom.evaluation.config import LABEL, Setting, jobs
from wherefrom.evaluation.recording import compared_with, completed, is_of, of_all_curves, records, unexplained_answer
from wherefrom.evaluation.reexplain import Explained, explained_again, light
from wherefrom.evaluation.task import ExampleOutcome, MethodCurve, Record, ShardTask
from wherefrom.evaluation.travel import arrived
from wherefrom.metric import erasure
from wherefrom.metric.base import Case, MetricSpec, Number, Rerun
from wherefrom.metric.consistency import Second
from wherefrom.metric.probing import layer_states, readout_vectors
from wherefrom.model import Model, Reader, Sentence, answers, collate, open_model, stream
from wherefrom.model.paired import begun
from wherefrom.model.target import EDGES, class_index
from wherefrom.pipeline.execution import run
from wherefrom.pipeline.phrases import with_phrases
from wherefrom.pipeline.resolution import UNASKED, Job, Question
from wherefrom.result.answer import Answer
from wherefrom.result.explanation import Explanation
from wherefrom.result.picture import to_png

T = TypeVar("T")
EveryTarget = Mapping[str, tuple[Explanation, ...]]  # of one example: by method, an explanation of each target
SENTENCE = "this is a film about the cat that is not here ."
SPECKLED = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)  # a picture of ours
TOKENS = {"cpu": 4096, "cuda": 16384}  # in one captured batch: what its maps take is this times the length


class ComputedShard(NamedTuple):
    """A shard."""

    outcomes: list[ExampleOutcome]
    seconds: dict[str, float]  # that each method took


class _Waiting(NamedTuple):
    """An explanation, without its maps, that waits for erasure or for others to compare it with."""

    outcome: ExampleOutcome
    method: str
    sentence: Sentence
    explanation: Explanation


@dataclass(frozen=True, eq=False)
class Worker:
    """A model opened for one setting."""

    setting: Setting
    opened: Model
    reader: Reader
    jobs: dict[str, Job]
    asked: list[MetricSpec]
    others: Mapping[str, Worker] = field(default_factory=dict)  # the same methods on second models

    @classmethod
    def open(cls, setting: Setting) -> Worker:
        arrived(setting)
        opened = open_model(
            setting.model,
            setting.tokenizer,
            task=setting.task,
            device=setting.device,
            dtype=setting.dtype,
            prove=setting.prove,
            model_kwargs=setting.model_kwargs or None,
        )
        if opened.device.type == "cuda" and opened.compile == "auto":  # a shard must not depend on those before it
            opened = replace(opened, compile="always")
        reads = opened.reader(truncate=setting.truncate, tokenizer_kwargs=setting.tokenizer_kwargs)
        reads = replace(reads, shorten="shorten it, or have it cut with truncate=True")
        seconds = dict.fromkeys(each.again.model for each in setting.asked() if isinstance(each.again, Second))
        others = {name: cls.open(setting.on(name, opened)) for name in seconds}
        return cls(setting, opened, reads, jobs(opened, setting), setting.asked(), others)

    @property
    def _example_errors(self) -> tuple[type[WherefromError], ...]:
        """The errors of one example; among them a target that the model lacks, unless the call names it."""
        named = self.setting.target not in (None, LABEL)
        return EXAMPLE_ERRORS if named else (*EXAMPLE_ERRORS, InvalidTarget)

    def try_out(self) -> bool:
        """Whether a sentence of ours can be explained. What is wrong with the call is raised, before any shard."""
        return self._own_failure is None

    @cached_property
    def _own_failure(self) -> str | None:
        """Why our sentence cannot be explained, where the sentence may be to blame; what else is wrong is raised."""
        mask = self.opened.mask_token or ""
        words = (SENTENCE, SENTENCE) if self.opened.task == "question-answering" else f"{SENTENCE} {mask}"
        said = SENTENCE if self.opened.two_streams else None
        ours = Example("", words, target=said, image=to_png(SPECKLED) if self.opened.images else None)
        asked = UNASKED if self.setting.target == LABEL else self._question(ours)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", WherefromWarning)
                self._explain([self.read(ours)], [asked])
        except self._example_errors as error:
            return str(error)
        return None

    def begin(self, task: ShardTask) -> Callable[[], ComputedShard]:
        """Every example of a shard measured, but that a device may still read what is left of erased texts; the
        function waits for it.
        """
        torch.set_num_threads(self.setting.threads)
        torch.manual_seed(_seed(self.setting.seed, task.name))
        outcomes = [ExampleOutcome(row.item, row.item.example.content, row.tokens) for row in task.rows]
        seconds: dict[str, float] = {}
        waiting: list[_Waiting] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WherefromWarning)
            readable = self._readable(outcomes, task)
            for batch in self.batches(readable):
                waiting += self._measure(batch, seconds)
            erased = self._erase(waiting)
            if not self._erases_alone:  # these may change the model that a device still reads
                erased()
                self._rerun(waiting)
                self._explain_again(waiting)
            if any(asked.probe is not None for asked in self.asked):
                self._keep_vectors([(outcome, sentence) for outcome, sentence in readable if outcome.failure is None])

        def end() -> ComputedShard:
            if self._erases_alone:
                erased()
            return ComputedShard(outcomes, seconds)

        return end

    @cached_property
    def _erases_alone(self) -> bool:
        """Whether erasure is all that runs the model once more."""
        return all(asked.rerun is None and asked.again is None for asked in self.asked)

    # Reading ----------------------------------------------------------------------------------------------

    def _masked(self, example: Example) -> Example:
        mask = self.opened.mask_token
        return example if mask is None else example.with_mask(mask)

    def read(self, example: Example, encodings: Mapping[str, Any] | None = None) -> Sentence:
        """An example as this model reads it; a target of several tokens stands at the end of a language model's, and
        that of an encoder with a decoder is the text that it writes, or one token after the prefix that it has written.
        `encodings`: of texts that are tokenised already.
        """
        if example.image is not None and not self.opened.images:
            raise InvalidInput(f"the example is a picture, and {self.opened.name} reads texts")
        words = self._masked(example).text if example.image is None else None
        encoding = (encodings or {}).get(words) if isinstance(words, str) else None
        if isinstance(words, str) and encoding is not None:
            found = self.reader.text(words, encoding=encoding)
        else:
            found = self.reader.read(example.image if words is None else words)[0][0]
        if example.prefix is not None and self.opened.two_streams:
            return begun(self.opened, found, example.prefix)
        continues = self.opened.task == "causal-lm" and not self._has_mask(example)
        if not (continues or self.opened.two_streams) or self.setting.target is not None:
            return found
        found, other = with_phrases(self.opened, found, Question(example.target, example.foil, None))
        if other is not None:
            raise InvalidInput("a phrase is measured by itself, and not against another; leave the example's foil out")
        return found

    def reading(self, examples: Sequence[Example]) -> Callable[[Example], Sentence | str]:
        """`try_read` for these examples, whose texts are tokenised together."""
        texts = [self._masked(each).text for each in examples if each.image is None]
        return partial(self.try_read, encodings=self.reader.together([each for each in texts if isinstance(each, str)]))

    def try_read(self, example: Example, encodings: Mapping[str, Any] | None = None) -> Sentence | str:
        """An example as this model reads it, or why it cannot."""
        try:
            return self.read(example, encodings)
        except (InvalidInput, InvalidTarget) as error:
            return str(error)

    def _readable(self, outcomes: list[ExampleOutcome], task: ShardTask) -> list[tuple[ExampleOutcome, Sentence]]:
        readable = []
        for outcome, row in zip(outcomes, task.rows, strict=True):
            if (masked := self._masked(row.item.example)) is not row.item.example:
                outcome.item = row.item._replace(example=masked)
            if isinstance(row.read, str):
                outcome.failure = row.read
            else:
                readable.append((outcome, row.read))
        return readable

    def batches(self, readable: list[tuple[T, Sentence]]) -> Iterator[list[tuple[T, Sentence]]]:
        """Neighbours by length, as many as the setting and the model allow and memory bears."""
        sentences, many = [sentence for _, sentence in readable], TOKENS.get(self.opened.device.type, TOKENS["cpu"])
        for members in self.opened.batches(sentences, self.setting.batch_size, tokens=many):
            yield [readable[i] for i in members]

    # Explaining and measuring -----------------------------------------------------------------------------

    def _question(self, example: Example) -> Question:
        if self._every_target:
            return Question("all", None, None)
        if self.setting.target == LABEL:
            if example.label is None:
                raise InvalidInput("the example has no gold label to explain")
            return Question(self._gold(example), None, None)
        if self.setting.target is not None:
            return Question(self.setting.target, None, None)
        if self.opened.task not in ("masked-lm", "causal-lm", "seq2seq"):
            return UNASKED  # a word is no answer of this model
        if self.opened.task == "causal-lm" and example.target is not None and self._has_mask(example):
            raise InvalidInput(
                f"the example asks for the word at a mask, and {self.opened.name} predicts the next token; expected a "
                f"masked language model, or texts that end where the word is wanted (--up-to-mask)"
            )
        return Question(example.target, example.foil, None)

    @cached_property
    def _every_target(self) -> bool:
        return any(asked.metric.every_target for asked in self.asked)

    def _gold(self, example: Example) -> str | int | None:
        """The gold label, or the class that it is where the model calls it otherwise."""
        return self.setting.classes.get(str(example.label), example.label)

    def _gold_class(self, example: Example) -> int | None:
        """Where a metric asks for it: the class that the gold label is; None where the model has no such class."""
        gold = self._gold(example)
        if gold is None or not any(asked.metric.gold for asked in self.asked):
            return None
        try:
            return class_index(self.opened.labels, gold, "label")
        except InvalidTarget:
            return None

    def _has_mask(self, example: Example) -> bool:
        texts = (example.text,) if isinstance(example.text, str) else example.text
        mask = self.opened.mask_token or MASK
        return any(mask in text for text in texts)

    def _explain(self, sentences: list[Sentence], questions: list[Question]) -> list[EveryTarget]:
        """For every sentence, by method, an explanation of each target; without methods, what the model says of it."""
        if self.jobs:
            found = run(self.opened, sentences, questions, self.jobs, len(sentences))
            return [{name: each.explanations for name, each in outcomes.items()} for outcomes in found]
        trace = stream(self.opened, collate(sentences, self.opened.pad_id), lambda _: None)
        unexplained: list[EveryTarget] = []
        for row, (sentence, question) in enumerate(zip(sentences, questions, strict=True)):
            said = answers(self.opened, sentence, trace.output, row, *_three(question))
            unexplained.append({"": tuple(unexplained_answer(sentence, each) for each in said)})
        return unexplained

    def _measure(self, batch: list[tuple[ExampleOutcome, Sentence]], seconds: dict[str, float]) -> list[_Waiting]:
        """Everything that the explanations alone tell; what else is measured waits without its maps."""
        asked = []
        for outcome, sentence in batch:
            try:
                asked.append((outcome, sentence, self._question(outcome.item.example)))
            except InvalidInput as error:
                outcome.failure = str(error)
        waiting = []
        for outcome, sentence, found in self._all_or_each(asked):
            try:
                waiting += self._measure_one(outcome, sentence, found, seconds)
            except self._example_errors as error:
                outcome.failure = str(error)
        return waiting

    def _all_or_each(
        self, asked: list[tuple[ExampleOutcome, Sentence, Question]]
    ) -> Iterator[tuple[ExampleOutcome, Sentence, EveryTarget]]:
        """Explain a batch; where one of it cannot be explained, each by itself, so that the others are not lost.

        What fails our own sentence in the same words is no fault of the example, and is not recorded of every one.
        """
        if not asked:
            return
        outcomes, sentences, questions = (list(column) for column in zip(*asked, strict=True))
        try:
            found = self._explain(sentences, questions)
        except self._example_errors as error:
            if str(error) == self._own_failure:
                raise
            if len(asked) == 1:
                outcomes[0].failure = str(error)
                return
            for one in asked:
                yield from self._all_or_each([one])
            return
        yield from zip(outcomes, sentences, found, strict=True)

    def _measure_one(
        self, outcome: ExampleOutcome, sentence: Sentence, found: EveryTarget, seconds: dict[str, float]
    ) -> list[_Waiting]:
        example = outcome.item.example
        by_name = {name: self._main(every, example) for name, every in found.items()}
        first = next(iter(by_name.values()))
        outcome.answer = Answer(first.measured, first.readout, first.prediction, first.probabilities)
        for name in self.jobs:
            seconds[name] = seconds.get(name, 0.0) + sum(each.seconds for each in found[name])
        for name in self.setting.given:
            by_name[name] = completed(outcome.item.given[name], sentence, first, name)
        at_once, later = self._when
        inside = None
        if example.region is not None and example.image is not None:
            inside = self.opened.preparing.region(example.region, example.image)
        waiting = []
        for name in (*self.setting.methods, *self.setting.given):
            if at_once:
                classes = {_label(each): each for each in found.get(name, ())}
                case = Case(example, by_name[name], by_name, classes, inside=inside)
                outcome.records += [Record(name, number) for asked in at_once for number in asked.measure(case)]
            if later:
                waiting.append(_Waiting(outcome, name, sentence, light(by_name[name])))
        return waiting

    @cached_property
    def _when(self) -> tuple[list[MetricSpec], bool]:
        """The metrics that explanations alone tell, and whether there are others that wait for something."""
        at_once = [asked for asked in self.asked if asked.at_once]
        return at_once, any(not asked.at_once and asked.probe is None for asked in self.asked)

    def _main(self, every: Sequence[Explanation], example: Example) -> Explanation:
        """The explanation that is measured, where every target was explained."""
        if len(every) == 1:
            return every[0]
        if self.opened.task == "question-answering":
            return next(each for each in every if each.measured.kind == (self.setting.target or "start"))
        wanted = every[0].prediction if self.setting.target is None else self.setting.target
        wanted = self._gold(example) if wanted == LABEL else wanted
        chosen = [each for each in every if is_of(each, wanted)]
        if len(chosen) != 1:
            raise InvalidTarget(f"there is no class {wanted!r}; the model's are {', '.join(map(_label, every))}")
        return chosen[0]

    # Erasure ----------------------------------------------------------------------------------------------

    def _erase(self, waiting: Sequence[_Waiting]) -> Callable[[], None]:
        """All curves of the shard at once, over sentences, methods and ways, under way; the function waits for them and
        records what the metrics make of them.
        """
        ways = list(dict.fromkeys(asked.way for asked in self.asked if asked.way is not None))
        if not waiting or not ways:
            return lambda: None
        there = self._curves([(each, way) for each in waiting for way in ways])

        def record() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", WherefromWarning)
                self._record(waiting, ways, there())

        return record

    def _record(
        self, waiting: Sequence[_Waiting], ways: Sequence[erasure.Way], found: Sequence[erasure.Curve | str]
    ) -> None:
        """What the metrics make of curves, those of one explanation after another."""
        columns = [found[place :: len(ways)] for place in range(len(ways))]
        asked = [(each, ways.index(each.way)) for each in self.asked if each.way is not None]
        many = [of_all_curves(each, columns[way]) for each, way in asked]
        names = [str(way) for way in ways]
        for place, (each, *mine) in enumerate(zip(waiting, *columns, strict=True)):
            outcome, method, _, _ = each
            for name, curve in zip(names, mine, strict=True):
                if not isinstance(curve, str):
                    outcome.curves.append(MethodCurve(method, name, curve))
            for (metric, way), values in zip(asked, many, strict=True):
                if values is not None and (value := values[place]) == value:
                    outcome.records.append(Record(method, Number(metric.name, None, value)))
                else:
                    outcome.records += self._of_curve(each, metric, ways[way], mine[way])

    def _of_curve(
        self, each: _Waiting, asked: MetricSpec, way: erasure.Way, found: erasure.Curve | str
    ) -> list[Record]:
        """What a metric says of one curve, or why there is none."""
        example = each.outcome.item.example
        known = {} if isinstance(found, str) else {way: found}
        case = Case(example, each.explanation, curves=known, gold=self._gold_class(example))
        return records(each.method, asked, case, found)

    def _curves(self, wanted: Sequence[tuple[_Waiting, erasure.Way]]) -> Callable[[], Sequence[erasure.Curve | str]]:
        """A curve each, under way; the reason where there is none."""
        try:
            return erasure.begun_curves(self.opened, [(e.sentence, e.explanation, way) for e, way in wanted])
        except EXAMPLE_ERRORS as error:
            if len(wanted) == 1:
                reason = str(error)
                return lambda: [reason]
            each = [self._curves([one])() for one in wanted]
            return lambda: [*chain.from_iterable(each)]

    # The model run again ----------------------------------------------------------------------------------

    def _rerun(self, waiting: Sequence[_Waiting]) -> None:
        """What each rerun gives of all explanations of the shard, and what the metrics make of it."""
        if not waiting:  # no example of the shard could be explained
            return
        for how in dict.fromkeys(asked.rerun for asked in self.asked if asked.rerun is not None):
            for each, found in zip(waiting, self._measured(how, waiting), strict=True):
                case = Case(each.outcome.item.example, each.explanation, reruns={how: found})
                for asked in (asked for asked in self.asked if asked.rerun == how):
                    each.outcome.records += records(each.method, asked, case, found)

    def _measured(self, how: Rerun, waiting: Sequence[_Waiting]) -> list[Any]:
        """What came of each; the reason where nothing did."""
        try:
            return list(how.measured(self.opened, [(each.sentence, each.explanation) for each in waiting]))
        except EXAMPLE_ERRORS as error:
            if len(waiting) == 1:
                return [str(error)]
            return [found for one in waiting for found in self._measured(how, [one])]

    # Once more, and the layers' vectors -------------------------------------------------------------------

    def _explain_again(self, waiting: Sequence[_Waiting]) -> None:
        """What the metrics say that compare with changed models; every one of those explains the shard once."""
        if not waiting or all(asked.again is None for asked in self.asked):
            return
        methods = len(self.setting.methods)
        shared = [waiting[i : i + methods] for i in range(0, len(waiting), methods)]
        rows = [
            Explained(every[0].outcome.item.example, every[0].sentence, {e.method: e.explanation for e in every})
            for every in shared
        ]
        wanted = dict.fromkeys(how for asked in self.asked for how in compared_with(asked))
        found = {how: explained_again(self, how, rows) for how in wanted}
        for place, each in enumerate(waiting):
            row = place // methods
            for asked in (asked for asked in self.asked if asked.again is not None):
                said = {how: found[how][row] for how in compared_with(asked)}
                missing = [reason for reason in said.values() if isinstance(reason, str)]
                known = {
                    how: {part: every[each.method] for part, every in parts.items()}
                    for how, parts in said.items()
                    if not isinstance(parts, str)
                }
                case = Case(each.outcome.item.example, each.explanation, again=known)
                each.outcome.records += records(each.method, asked, case, next(iter(missing), None))

    def _keep_vectors(self, explained: list[tuple[ExampleOutcome, Sentence]]) -> None:
        """The vector of the readout token in every layer."""
        for batch in self.batches(explained):
            states, _ = layer_states(self.opened, [sentence for _, sentence in batch])
            for row, (outcome, sentence) in enumerate(batch):
                assert outcome.answer is not None
                outcome.vectors = readout_vectors(states, row, len(sentence), outcome.answer.readout)


def _three(question: Question) -> tuple[Any, Any, Any]:
    return question.target, question.foil, question.position


def _label(explanation: Explanation) -> str:
    measured = explanation.measured
    return measured.kind if measured.kind in EDGES else str(measured.label)


def _seed(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:7], "big")
