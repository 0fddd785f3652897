"""What every test shares: the same surroundings on every machine, and at the end what was skipped and why."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

# What is shown and where it is looked for must not depend on whose terminal, notebook or cloud machine it is.
TERMINAL = ("COLUMNS", "LINES", "COLORFGBG", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "TTY_COMPATIBLE")
OTHERS = ("CLICOLOR", "CLICOLOR_FORCE", "TTY_INTERACTIVE", "GITHUB_ACTIONS", "MPLBACKEND", "WHEREFROM_DATA")
for name in (*TERMINAL, *OTHERS):
    os.environ.pop(name, None)
os.environ.update(
    HF_HUB_OFFLINE="1",  # no test may reach for the network
    HF_DATASETS_OFFLINE="1",
    TERM="xterm-256color",
    JUPYTER_PREFER_ENV_PATH="1",  # the kernel of this environment, not one that a user has installed beside it
)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch read it: see _one_thread

import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))  # tests import tiny, golden and oracles by name

settings.register_profile("wherefrom", deadline=None, max_examples=25, derandomize=True, database=None)
settings.load_profile("wherefrom")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tiny tensors lose more to a second thread than they gain, above all when tests run side by side."""
    torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What this machine did not let us test, each reason once. pytest's closing line follows."""
    reasons = Counter(skip_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if not reasons:
        return
    terminalreporter.section("skipped, and why", sep="-")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5d}  {reason}")


def skip_reason(report: Any) -> str:
    _, _, reason = report.longrepr
    return str(reason).removeprefix("Skipped: ")
