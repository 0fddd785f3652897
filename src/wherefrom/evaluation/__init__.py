"""Methods and metrics over whole datasets: resumable, on one machine or many."""

from wherefrom.evaluation.run import Compared, Run, compare_methods, compare_runs, runs
from wherefrom.evaluation.steps import evaluate

__all__ = ["Compared", "Run", "compare_methods", "compare_runs", "evaluate", "runs"]
