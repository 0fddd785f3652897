"""Methods and measures over whole datasets: resumable, on one machine or many."""

from whence.run.evaluating import evaluate
from whence.run.reading import Compared, Run, compare_methods, compare_runs, runs

__all__ = ["Compared", "Run", "compare_methods", "compare_runs", "evaluate", "runs"]
