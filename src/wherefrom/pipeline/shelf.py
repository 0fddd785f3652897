"""What one job has on one batch, and what each sentence's explanation takes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from wherefrom.aggregate import aggregate as aggregate_maps
from wherefrom.aggregate import aggregate_row
from wherefrom.aggregate.receptive import field_of
from wherefrom.errors import WherefromError, warn
from wherefrom.method import Method, Scores
from wherefrom.model import OutputTrace, Sentence
from wherefrom.pipeline.fetching import Fetching, Stack
from wherefrom.pipeline.joint_maps import JointMaps
from wherefrom.pipeline.outcome import Outcome
from wherefrom.pipeline.readout_rows import ReadoutRows
from wherefrom.pipeline.resolution import Job, Question, Reach
from wherefrom.result.answer import Readout
from wherefrom.result.explanation import Explanation

LARGE_FLOW = 100_000  # entries of the maps beyond which all flows take more than a few seconds


@dataclass(eq=False)
class Shelf:
    """One job's results on one batch."""

    job: Job
    questions: Sequence[Question]  # of its sentences
    lengths: Sequence[int] = ()
    rows: ReadoutRows | None = None  # what is kept instead of maps
    joint: JointMaps | None = None  # what they make together, where it is computed on their way
    fetching: Fetching = field(default_factory=Fetching)
    joined: dict[int, tuple[Any, ...]] = field(default_factory=dict)  # by sentence, what became of them
    scores: Scores | None = None
    seconds: float = 0.0
    shared: float = 0.0  # one sentence's part of the seconds of the pass
    error: WherefromError | None = None  # why there are none
    explanations: list[list[Explanation]] = field(default_factory=list)  # by target, then by sentence

    def __post_init__(self) -> None:
        self.maps = self.stack()  # [B, n, n] a layer
        self.below = self.stack()  # the same over all heads, when one head is asked for
        self.heads = self.stack()  # [B, H, n, n] a layer

    def stack(self) -> Stack:
        return Stack(self.lengths, self.job.reach.end - self.job.reach.start, self.fetching)

    def outcomes(self, name: str, members: Sequence[int]) -> Iterator[Outcome]:
        """A record for each sentence of the batch, by their places among the inputs."""
        for row, place in enumerate(members):
            done = () if self.error else tuple(of_target[row] for of_target in self.explanations)
            yield Outcome(place, name, self.job, done, self.error)


def parts_of(shelf: Shelf, row: int, output: OutputTrace) -> dict[str, Any]:
    """The arrays of one sentence's explanation, and what they are, under the names of its fields."""
    job, readout = shelf.job, output.answers[row].readout
    if shelf.scores is not None:
        parts = _from_scores(job.method, shelf.scores, row, len(output.trace.batch.sentences[row]))
    else:
        parts = _from_maps(shelf, row, output)
    if job.keep != "maps":
        parts = _without_maps(parts, readout, job.keep == "row")
    if job.drop_self and readout.position is not None:
        parts["scores"] = parts["scores"].copy()
        parts["scores"][readout.position] = 0
    return parts


def scores_alone(shelf: Shelf) -> list[dict[str, Any]] | None:
    """The same of all sentences, where their scores are all that is kept and one look tells that these are numbers."""
    given, rows, method = shelf.scores, shelf.rows, shelf.job.method
    if shelf.job.keep != "scores" or shelf.job.drop_self:
        return None
    if given is not None:
        bare = given.delta is None and given.arrived is None and given.surrogates is None
        fits = bare and given.scores.shape == (len(shelf.lengths), max(shelf.lengths))
        scores = given.scores.numpy() if fits and bool(given.scores.isfinite().all()) else None
        kind = _kind(method, given)
    else:
        scores = None if rows is None else rows.last
        kind = {"signed": method.signed, "additive": method.additive}
    return None if scores is None else [{"scores": scores[i, :n], **kind} for i, n in enumerate(shelf.lengths)]


def _without_maps(parts: dict[str, Any], readout: Readout, layers: bool) -> dict[str, Any]:
    """The scores and, if `layers`, the readout row of every layer, as copies, lest a row keep its whole map alive."""
    maps = parts.get("maps") if parts.get("aggregated") is None else parts["aggregated"]
    rows = parts["layer_scores"]
    if rows is None and maps is not None:
        rows = readout.row(maps)
    return {
        **{name: value for name, value in parts.items() if name not in ("maps", "aggregated", "head_maps")},
        "scores": parts["scores"].copy(),
        "layer_scores": None if rows is None or not layers else rows.copy(),
    }


def _from_scores(method: Method, scores: Scores, row: int, n: int) -> dict[str, Any]:
    return {
        "scores": scores.scores[row, :n].numpy(),
        "layer_scores": None if scores.layers is None else scores.layers[:, row, :n].numpy(),
        "delta": None if scores.delta is None else float(scores.delta[row]),
        "arrived": None if scores.arrived is None else float(scores.arrived[row]),
        "surrogate": None if scores.surrogates is None else scores.surrogates[row],
        **_kind(method, scores),
    }


def _kind(method: Method, scores: Scores) -> dict[str, bool]:
    """Whether they have signs and add up; norms and absolute values do not."""
    return {
        "signed": method.signed if scores.signed is None else scores.signed,
        "additive": method.additive and scores.signed is not False,
    }


def _from_maps(shelf: Shelf, row: int, output: OutputTrace) -> dict[str, Any]:
    job = shelf.job
    kind = {"signed": job.method.signed, "additive": job.method.additive}
    if shelf.rows is not None:
        rows = shelf.rows.of(row)
        return {"scores": rows[-1], "layer_scores": rows, **kind, "known_finite": shelf.rows.finite}
    readout, sentence = output.answers[row].readout, output.trace.batch.sentences[row]
    found = shelf.joined.get(row)
    if found is None:
        maps, joint = shelf.maps.of(row), None if shelf.joint is None else shelf.joint.of(row)
        if joint is not None:
            reached = joint, None
        else:
            reached = _aggregated(job.reach, maps, shelf.below.of(row), readout.position, sentence)
        found = maps, *reached, shelf.heads.of(row), joint is not None
    if job.method.by_layer and not job.reach.readout_only:
        shelf.joined[row] = found  # one for all targets, each of which has another row of it
    maps, aggregated, layer_scores, heads, checked = found
    if layer_scores is not None:
        scores = layer_scores[-1]
    else:
        scores = readout.row((maps if aggregated is None else aggregated)[-1])
    arrays = {"maps": maps, "aggregated": aggregated, "head_maps": heads, "layer_scores": layer_scores}
    return {"scores": scores, **arrays, **kind, "known_finite": checked}


def _aggregated(reach: Reach, maps: Any, below: Any, position: int | None, sentence: Sentence) -> tuple[Any, Any]:
    """The maps that reach the input [L, n, n]; or, where only the readout row is wanted, that row [L, n]."""
    if reach.aggregate is None:
        return None, None
    seen = field_of(sentence.visible, reach.windows, maps.shape[-1]) if reach.receptive_field else None
    how: dict[str, Any] = {"receptive_field": reach.receptive_field, "visible": seen}
    if reach.readout_only and position is not None:
        return None, aggregate_row(reach.aggregate, maps, position, below, **how)
    if reach.aggregate == "flow" and maps.size > LARGE_FLOW:
        warn(
            f"the flows of all {len(sentence)} tokens in {len(maps)} layers may take minutes; rows='readout' "
            f"computes those of the readout token alone"
        )
    return aggregate_maps(reach.aggregate, maps, below, **how), None
