"""Ctrl-C on the command line while libraries are read, sent from within the import itself."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Ctrl-C as Python has it, whatever started the tests; and a library that takes it for something else.
PLAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
LIBRARY = """
import signal
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    raise ImportError("Are this object's requirements defined correctly?")
"""
AT_ONCE = "from wherefrom.interrupts import begun, end_at_once\nend_at_once()\n"


def ran(script: str, folder: Path, library: str = "library") -> subprocess.CompletedProcess[str]:
    (folder / f"{library}.py").write_text(LIBRARY, encoding="utf-8")
    path = f"import sys; sys.path.insert(0, {str(folder)!r})\n"
    return subprocess.run([sys.executable, "-c", PLAIN + path + script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("library", ["rich", "torch"])  # before the command has begun, and within
def test_a_command_ends_by_the_signal_itself(tmp_path: Path, library: str) -> None:
    command = "sys.argv = ['wherefrom', 'explain', 'a deep film']\nfrom wherefrom.__main__ import main\nmain()"
    found = ran(command, tmp_path, library)
    assert (found.returncode, found.stdout, found.stderr) == (-signal.SIGINT, "", "")


def test_outside_of_an_import_it_is_an_exception(tmp_path: Path) -> None:
    script = "try:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    print('stopped')"
    assert ran(AT_ONCE + script, tmp_path).stdout == "stopped\n"


def test_before_a_command_has_begun_it_leaves_no_trace(tmp_path: Path) -> None:
    script = (
        "import typer.main\n"
        "typer.main.get_command = lambda _app: signal.raise_signal(signal.SIGINT)\n"
        "sys.argv = ['wherefrom', 'models']\nfrom wherefrom.__main__ import main\nmain()"
    )
    found = ran(script, tmp_path)
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "")


def test_once_something_is_there_it_is_an_exception(tmp_path: Path) -> None:
    found = ran(AT_ONCE + "begun()\ntry:\n    import library\nexcept ImportError:\n    print('stopped')", tmp_path)
    assert (found.returncode, found.stdout) == (0, "stopped\n")


def test_who_ignores_it_goes_on_ignoring_it(tmp_path: Path) -> None:
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"  # as under nohup
    found = ran(ignored + AT_ONCE + "import library\nprint('read')", tmp_path)
    assert (found.returncode, found.stdout) == (0, "read\n")
