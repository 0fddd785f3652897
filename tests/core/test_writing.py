"""A file is there whole or not at all."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.files import write


@pytest.mark.parametrize("stage", ["write", "fsync", "replace"])
def test_what_was_there_survives_a_fault_at_any_stage(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "kept.json", "old")

    def fails(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    if stage == "write":
        opened = Path.open

        class Half:
            def __init__(self, *args: Any) -> None:
                self.file = opened(*args)

            def __enter__(self) -> Half:
                return self

            def __exit__(self, *_: Any) -> None:
                self.file.close()

            def write(self, data: bytes) -> None:
                self.file.write(data[: len(data) // 2])
                raise KeyboardInterrupt

        monkeypatch.setattr(Path, "open", lambda *args: Half(*args))
    else:
        monkeypatch.setattr(os, stage, fails)
    with pytest.raises(KeyboardInterrupt):
        write(path, "new and longer")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["kept.json"]


def test_nothing_is_written_in_another_way() -> None:
    """A report that a kill cuts in half would be taken for a finished one."""
    source = Path(wherefrom.__file__).parent
    others = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"\.write_(text|bytes)\(|json\.dump\(", path.read_text(encoding="utf-8"))
    ]
    assert not others


def test_mode_and_links_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to(path)
    write(link, b"new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_cannot_be_replaced_is_written_to(tmp_path: Path) -> None:
    assert write(Path(os.devnull), "text") == Path(os.devnull)
    assert Path(os.devnull).is_char_device()
    with pytest.raises(WherefromError, match="cannot write"):
        write(tmp_path, "text")
    with pytest.raises(WherefromError, match="cannot write"):
        write(tmp_path / "no folder" / "file", "text")
    with pytest.raises(WherefromError, match="no name of a file can have"):
        write(tmp_path / "a\0b", "text")
