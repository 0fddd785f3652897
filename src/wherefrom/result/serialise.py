"""Explanations on disk: JSON for other programs, npz for size. Neither ever unpickles anything."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.errors import DamagedFile, InvalidOption, UnknownName, WherefromError
from wherefrom.files import write
from wherefrom.result import tabular
from wherefrom.result.answer import Readout, Target
from wherefrom.result.picture import Patches

if TYPE_CHECKING:
    from wherefrom.result.explanation import Explanation

FORMAT = "wherefrom.explanation"
READ = (FORMAT, "whence.explanation")  # what the library was called when the first files were written
VERSION = 1
PICTURES = (".png", ".svg", ".pdf")  # written by view/plot
STORED = {"readout": "reading"}  # fields that files name otherwise
KINDS = {name: name for name in ("explanation", "comparison", "generation")} | {"explanations": "list of explanations"}
WHOLE = (".json", ".npz")  # files from which everything is read again
BESIDE = ("method", "model", "prediction", "additive", "signed", "word_ids")  # what others may write beside scores
ARRAYS = ("scores", "maps", "aggregated", "head_maps", "layer_scores")


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """Plain data; arrays as nested lists with their dtype beside them."""
    data: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    dtypes: dict[str, str] = {}
    for name in (f.name for f in fields(explanation)):
        value = getattr(explanation, name)
        if name in ARRAYS and value is not None:
            dtypes[name] = str(value.dtype)
            value = value.tolist()
        elif name in ("target", "measured", "readout"):
            value = asdict(value)
        elif isinstance(value, Patches):
            value = value.to_dict()
        data[STORED.get(name, name)] = value
    data["texts"] = list(explanation.texts)
    data["spans"] = [None if span is None else list(span) for span in explanation.spans]
    return {**data, "dtypes": dtypes}


def from_dict(cls: type[Explanation], data: Mapping[str, Any]) -> Explanation:
    """The inverse of `to_dict`; tokens and scores alone are enough, as others write them."""
    if isinstance(data, Mapping) and {"tokens", "scores"} <= data.keys() and "format" not in data:
        beside = {name: data[name] for name in BESIDE if data.get(name) is not None}
        return cls.from_scores(data["tokens"], data["scores"], **beside)
    if not isinstance(data, Mapping) or data.get("format") not in READ:
        raise not_a("explanation", data)
    if data.get("version") != VERSION:
        raise DamagedFile(
            f"this explanation has version {data.get('version')!r} and this wherefrom reads version {VERSION}; "
            f"it was written by another release of wherefrom"
        )
    known = {f.name for f in fields(cls)}
    always = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING and f.init}
    if lost := {STORED.get(name, name) for name in always} - data.keys():
        raise DamagedFile(f"this explanation is damaged: it has no {min(lost)!r}")
    try:
        values = {name: value for name, value in data.items() if name in known}
        for name, dtype in data["dtypes"].items():
            values[name] = np.asarray(values[name], dtype=np.dtype(dtype))
        for name in ("target", "measured"):
            values[name] = target_of(values.get(name, {"kind": "none"}))
        readout = data[STORED["readout"]]
        values["readout"] = Readout(**{**readout, "rows": tuple(readout.get("rows", ()))})
        values["texts"] = tuple(values["texts"])
        if values.get("picture") is not None:
            values["picture"] = Patches.from_dict(values["picture"])
        values["spans"] = [None if span is None else tuple(span) for span in values["spans"]]
        return cls(**values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFile(f"this explanation is damaged: {type(error).__name__}: {error}") from error


def not_a(wanted: str, data: Any) -> DamagedFile:
    """Data that is no such thing, and who reads it where it is another of ours."""
    named = str(data.get("format")).partition(".")[2] if isinstance(data, Mapping) else ""
    said = KINDS[wanted]
    if named in KINDS and named != wanted:
        reads = f"wherefrom.{named.capitalize()}"
        return DamagedFile(
            f"this is a wherefrom {KINDS[named]} and no {said}; {reads}.load or {reads}.from_dict reads it"
        )
    if isinstance(data, Mapping) and "sequence_attributions" in data.get("attributes", data):
        return DamagedFile(f"this is a file of inseq and no {said}; wherefrom.Generation.load reads it")
    return DamagedFile(f"this is not a wherefrom {said}; expected data written by to_dict or save")


def target_of(data: Mapping[str, Any]) -> Target:
    return Target(**{**data, **{name: tuple(data.get(name, ())) for name in ("tokens", "foil_tokens")}})


def save(explanation: Explanation, path: Path) -> Path:
    """Write .json or .npz."""
    if path.suffix not in WHOLE:
        raise InvalidOption(
            f"cannot save to '{path.name}'; expected a name ending in .json, .npz, .html, "
            f"{', '.join((*PICTURES, *tabular.ENDINGS))}"
        )
    data = to_dict(explanation)
    return store(path, data, {name: getattr(explanation, name) for name in data["dtypes"]})


def store(path: Path, data: Mapping[str, Any], arrays: Mapping[str, Any]) -> Path:
    """Write plain data to a .json file, or to a .npz file in which these of its lists are arrays."""
    if path.suffix == ".json":
        return write(path, json.dumps(data, ensure_ascii=False, allow_nan=False))
    rest = {name: value for name, value in data.items() if name not in arrays}
    packed = io.BytesIO()
    np.savez_compressed(packed, meta=np.array(json.dumps(rest, allow_nan=False)), **arrays)
    return write(path, packed.getvalue())


def apart(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The arrays of many records, taken out of them, by names that `together` knows."""
    return {
        f"{number}.{name}": np.asarray(record.pop(name), dtype=np.dtype(dtype))
        for number, record in enumerate(records)
        for name, dtype in record["dtypes"].items()
    }


def together(records: Iterable[dict[str, Any]], stored: Mapping[str, Any]) -> None:
    """Put back what `apart` took out."""
    for number, record in enumerate(records):
        record.update({name: stored[key] for name in record.get("dtypes", ()) if (key := f"{number}.{name}") in stored})


def load(cls: type[Explanation], path: Path) -> Explanation:
    """Read .json or .npz."""
    return from_dict(cls, stored(path, "explanation"))


def stored(path: Path, what: str) -> dict[str, Any]:
    """The data that `store` wrote, of an explanation or whatever else it is called."""
    if not os.path.isfile(path):
        raise UnknownName(f"there is no file '{path}'")
    try:
        if path.suffix == ".json":
            data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".npz":
            if not zipfile.is_zipfile(path):  # of which numpy would think as a pickle, and name arguments of its own
                raise DamagedFile(f"'{path.name}' is damaged or not a wherefrom {what}: a .npz is a zip file")
            with np.load(path, allow_pickle=False) as archive:
                data = {**json.loads(str(archive["meta"])), **{k: archive[k] for k in archive if k != "meta"}}
        else:
            table = " (this one ends as a table, which holds scores alone)" if path.suffix in tabular.ENDINGS else ""
            raise InvalidOption(
                f"cannot load '{path.name}'; expected a name ending in .json or .npz, as save writes them{table}"
            )
    except WherefromError:
        raise
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DamagedFile(f"'{path.name}' is damaged or not a wherefrom {what}: {error}") from error
    return data
