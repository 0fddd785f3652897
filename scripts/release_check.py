"""What scripts/release.sh checks by itself: what is in the archives, and that the README's commands run.

python scripts/release_check.py dist 100000000     sizes, weights once, nothing that belongs elsewhere
python scripts/release_check.py --readme FILE      its commands of the shipped models, where wherefrom is installed
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

STRAY = re.compile(r"(^|/)(__pycache__|\.venv|\.git|runs|build|shared)(/|$)|\.pyc$")
# Commands with a text that is left out, a model or data of the reader's own, or no end.
NOT_HERE = ("…", "my/model", "sst2.parquet", "runs/", "serve", "reproduce", "scripts/")


def archives(folder: Path, limit: int) -> None:
    for path in sorted(folder.iterdir()):
        files = dict(_contents(path))
        weights = Counter(size for name, size in files.items() if name.endswith(".safetensors"))
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, {len(files)} files, {weights.total()} of them weights")
        assert path.stat().st_size < limit, f"{path.name} has more than {limit} bytes"
        assert weights, f"{path.name} holds no model"
        assert set(weights.values()) == {1}, f"{path.name} holds weights twice: {weights}"
        stray = [name for name in files if STRAY.search(name.partition("/")[2])]
        assert not stray, f"{path.name} holds {stray[:5]}"


def _contents(path: Path) -> list[tuple[str, int]]:
    if path.suffix == ".whl":
        return [(each.filename, each.file_size) for each in zipfile.ZipFile(path).infolist()]
    with tarfile.open(path) as archive:
        return [(each.name, each.size) for each in archive.getmembers() if each.isfile()]


def readme(page: Path) -> None:
    """Every command of the page that needs nothing but the package."""
    done = 0
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            for command in re.split(r"\s{2,}(?=wherefrom )", line.partition("  #")[0]):
                if command.strip().startswith("wherefrom ") and not any(word in command for word in NOT_HERE):
                    print(f"$ {command.strip()}", flush=True)
                    subprocess.run(shlex.split(command), check=True, stdout=subprocess.DEVNULL)
                    done += 1
    code = re.search(r"^```python\n(.*?ex\.save[^\n]*\n)", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert code is not None
    subprocess.run([sys.executable, "-c", code[1]], check=True, stdout=subprocess.DEVNULL)
    print(f"{done} commands and the first block of Python run")
    assert done >= 4


if __name__ == "__main__":
    if sys.argv[1] == "--readme":
        readme(Path(sys.argv[2]))
    else:
        archives(Path(sys.argv[1]), int(sys.argv[2]))
