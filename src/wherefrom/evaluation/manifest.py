"""What a run folder says of itself: what was asked, of which model, on which data, with which versions.

A folder belongs to one run. The same command resumes it; another one is refused, since its numbers would stand
beside those of something else. How the work is done (workers, engine) is no part of that and may change on the way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from wherefrom.errors import DamagedFile, ResourceUnavailable, RunConflict, UnknownName
from wherefrom.evaluation.summary import CURVES, EXAMPLES, RECORDS, SUMMARY, SUMMARY_CSV
from wherefrom.files import write
from wherefrom.model import Model

FORMAT = "wherefrom.run"
BEFORE = "whence"  # what the library was called when the first runs were made; they resume under the new name
VERSION = 2
FILE = "manifest.json"
FINISHED = "finished.json"
SHARDS = "shards"
TABLES = (EXAMPLES, RECORDS, CURVES, SUMMARY, SUMMARY_CSV)
LOCK = ".lock"
PACKAGES = ("wherefrom", "torch", "transformers", "tokenizers", "numpy", "scipy", "pyarrow")
PARTS: dict[str, tuple[str, ...]] = {  # what makes a run the same run, and what must be known of it
    "asked": ("methods", "metrics"),
    "model": ("name", "hash", "device", "dtype"),
    "data": ("name", "split", "fingerprint", "rows", "dropped"),
    "versions": (),
}


def versions() -> dict[str, str]:
    """Of everything that numbers or files depend on."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def model_identity(opened: Model) -> dict[str, str]:
    """A model by its content: weights, configuration and vocabulary."""
    digest = hashlib.sha256()
    for name, weight in sorted(opened.model.state_dict().items()):
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        digest.update(weight.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    config = {key: value for key, value in opened.config.to_dict().items() if not key.startswith("_")}
    config.pop("transformers_version", None)
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    if opened.tokenizer is not None:
        words = sorted(opened.tokenizer.get_vocab().items())
        digest.update(json.dumps([type(opened.tokenizer).__name__, words]).encode())
    return {
        "name": opened.name,
        "hash": digest.hexdigest(),
        "task": opened.task,
        "device": opened.device.type,
        "dtype": opened.dtype,
    }


def claim(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest of the folder: this one if it is new, its own if that is the same run; else an error."""
    others = [] if (folder / FILE).exists() else [name for name in TABLES if (folder / name).exists()]
    if others:
        raise RunConflict(
            f"'{folder}' holds {', '.join(others)} of no run, which this one would replace; choose another folder"
        )
    try:
        (folder / SHARDS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceUnavailable(f"cannot make the run folder '{folder}': {error.strerror or error}") from error
    path = folder / FILE
    begun = any((folder / SHARDS).glob("*.parquet"))
    if not path.exists():
        if begun:
            raise RunConflict(f"'{folder}' holds shards but no {FILE}; choose another folder")
        write(path, json.dumps(manifest, indent=1, ensure_ascii=False).encode())
        return manifest
    there = read(folder)
    as_written = json.loads(json.dumps(manifest))
    differences = [
        f"{part} {key}: {_short(there[part].get(key))} there, {_short(as_written[part].get(key))} now"
        for part in PARTS
        for key in sorted({*there[part], *as_written[part]})
        if there[part].get(key) != as_written[part].get(key)
    ]
    if differences and not begun and not (folder / FINISHED).exists():  # it ended before anything was computed
        write(path, json.dumps(manifest, indent=1, ensure_ascii=False).encode())
        return manifest
    if differences:
        raise RunConflict(
            f"'{folder}' holds another run ({'; '.join(differences)}); choose another folder for this one, or repeat "
            f"the command that began it"
        )
    return there


def refuse_own_file(path: Path) -> None:
    """Refuse to write over a file of a run."""
    if (path.parent / FILE).is_file() and path.name in (FILE, FINISHED, *TABLES):
        raise RunConflict(f"'{path}' is a file of the run in '{path.parent}'; choose another name")


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def read(folder: Path) -> dict[str, Any]:
    """The manifest of a run folder."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnknownName(f"'{folder}' is not a run folder: it has no {FILE}") from error
    except (OSError, ValueError) as error:
        raise DamagedFile(f"'{folder / FILE}' cannot be read: {error}") from error
    found = _renamed(found)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DamagedFile(f"'{folder / FILE}' is not the manifest of a wherefrom run")
    if found.get("version") != VERSION:
        raise DamagedFile(f"'{folder}' has version {found.get('version')!r}; this wherefrom reads version {VERSION}")
    if lacking := _lacking(found):
        raise DamagedFile(
            f"'{folder / FILE}' is damaged: {lacking}. Choose another folder, or put the file back as it was"
        )
    return found


def _renamed(found: Any) -> Any:
    """A manifest under the library's former name, as it would be written today."""
    if not isinstance(found, dict) or found.get("format") != f"{BEFORE}.run":
        return found
    found = {**found, "format": FORMAT}
    versions, model = found.get("versions"), found.get("model")
    if isinstance(versions, dict) and BEFORE in versions:
        found["versions"] = {"wherefrom" if key == BEFORE else key: value for key, value in versions.items()}
    if isinstance(model, dict) and isinstance(model.get("name"), str) and model["name"].startswith(f"{BEFORE}/"):
        found["model"] = {**model, "name": f"wherefrom{model['name'].removeprefix(BEFORE)}"}
    return found


def _lacking(found: dict[str, Any]) -> str | None:
    """What a manifest does not have that every run writes."""
    for part, keys in PARTS.items():
        if not isinstance(found.get(part), dict):
            return f"its part '{part}' is missing or no object"
        if missing := [key for key in keys if key not in found[part]]:
            return f"its part '{part}' has no {', '.join(map(repr, missing))}"
    return None if isinstance(found.get("threads"), int) else "it does not say how many threads there were"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else works on this folder. The system frees the lock when a process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows has no such lock; two runs in one folder then only waste time
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceUnavailable(f"cannot make the run folder '{folder}': {error.strerror or error}") from error
    try:
        file = (folder / LOCK).open("w")
    except OSError as error:
        raise ResourceUnavailable(
            f"cannot lock the run folder: '{folder / LOCK}' cannot be written ({error.strerror or error}); choose "
            f"a folder that can be written to"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunConflict(f"another process is working on '{folder}'; wait for it, or stop it first") from error
        yield
