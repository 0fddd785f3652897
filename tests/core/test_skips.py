"""The tests themselves, on a machine that lacks something: skipped with the reason, and never a crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None  # as if it were not installed
import pytest
sys.exit(pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", sys.argv[2]]))
"""


@pytest.mark.slow
def test_the_page_is_skipped_where_its_extra_is_missing() -> None:
    call = [sys.executable, "-c", WITHOUT, "fastapi", str(TESTS / "server" / "test_borrowed.py")]
    done = subprocess.run(call, capture_output=True, text=True, cwd=TESTS.parent, timeout=300, check=False)
    assert done.returncode in (0, 5), done.stdout + done.stderr  # 5: no test was run
    assert "1  the page needs the extra: pip install -e" in done.stdout
    assert "1 skipped" in done.stdout
