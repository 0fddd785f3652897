"""What the pipeline gives: a record for each input and method."""

from __future__ import annotations

from dataclasses import dataclass

from wherefrom.errors import WherefromError
from wherefrom.pipeline.resolution import Job
from wherefrom.result.explanation import Explanation


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one method has to say of one input: an explanation for each target, or the error why there is none."""

    input: int  # its place among the inputs
    name: str  # the method as it was asked for
    job: Job
    explanations: tuple[Explanation, ...] = ()
    error: WherefromError | None = None


Outcomes = dict[str, Outcome]  # of one input, by the method as it was asked for
