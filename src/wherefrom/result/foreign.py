"""Scores that others wrote to a file: what inseq saves, and plain tokens with their scores.

inseq (Sarti et al. 2023, https://aclanthology.org/2023.acl-demo.40) saves a tree of objects as JSON, each with its
class beside its attributes; tensors are base64 of the safetensors format: the length of a header, the header as JSON
(dtype, shape), the numbers. It is read without inseq and without torch.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import DamagedFile
from wherefrom.result.answer import Target
from wherefrom.result.explanation import Explanation
from wherefrom.result.generation import ANSWER, SOURCE, Answered, Generation
from wherefrom.result.words import MARKS, Span

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def is_inseq(data: Any) -> bool:
    return isinstance(data, Mapping) and "sequence_attributions" in data.get("attributes", data)


def inseq(data: Mapping[str, Any]) -> Generation:
    """One sequence that inseq attributed: a row of scores for each token that was generated."""
    tree = _plain(data)
    info, sequences = tree["info"], tree["sequence_attributions"]
    if len(sequences) != 1:
        raise DamagedFile(
            f"this file of inseq holds {len(sequences)} texts; expected one: save them by "
            f"out.save(path, split_sequences=True), a file for each"
        )
    (found,) = sequences
    source = found["source"] if found["source_attributions"] is not None else []
    start, end = found["attr_pos_start"], found["attr_pos_end"]
    target = found["target"][:end]
    rows = _rows(found, len(source), len(target))
    tokens, ids = ([each[name] for each in (*source, *target)] for name in ("token", "id"))
    texts = _texts(info, bool(source))
    read = len(source) + start  # tokens before the first that was said
    before = _spans(tokens[: len(source) or read], texts[0], 0)
    spans = before + [None] * (read - len(before)) + _spans(tokens[read:], texts[1], 1)
    labels = [token.translate(MARKS).strip() or token for token in tokens[read:]]
    chances = _tensor((found.get("step_scores") or {}).get("probability"))
    steps = [_step(ids[read + step], label, chances, step) for step, label in enumerate(labels)]
    whole = Explanation.from_scores(
        tokens,
        rows.sum(0),
        f"inseq {info['attribution_method']}",
        texts=texts,
        spans=spans,
        special=[span is None for span in spans],
        segments=[SOURCE if place < len(source) else "prompt" for place in range(read)] + [ANSWER] * len(steps),
        target=Target("phrase", ids[read], texts[1].strip(), tokens=tuple(ids[read:])),
        signed=bool((rows < 0).any()),
        model=str(info.get("model_name") or ""),
    )
    return Generation(whole, rows, ids, steps)


def _plain(node: Any) -> Any:
    """The tree without the names of its classes."""
    if isinstance(node, Mapping):
        inside = node["attributes"] if "__instance_type__" in node else node
        return {name: _plain(value) for name, value in inside.items()}
    return [_plain(each) for each in node] if isinstance(node, list) else node


def _rows(found: Mapping[str, Any], source: int, target: int) -> NDArray[np.float64]:
    """[k, n + k]: the scores of source and target for each token that was generated; what is not seen has 0."""
    parts = []
    steps = found["attr_pos_end"] - found["attr_pos_start"]
    for name, length in (("source_attributions", source), ("target_attributions", target)):
        scores = _tensor(found[name])
        if scores is not None and scores.ndim != 2:
            raise DamagedFile(
                "these scores of inseq have a number for each dimension, not for each token; expected "
                "out.aggregate().save(path)"
            )
        if length:
            parts.append(np.zeros((length, steps)) if scores is None else np.nan_to_num(scores[:length]))
    rows: NDArray[np.float64] = np.concatenate(parts).T.astype(np.float64)
    return rows


def _tensor(packed: str | None) -> NDArray[Any] | None:
    if packed is None:
        return None
    data = base64.b64decode(packed)
    size = int.from_bytes(data[:8], "little")
    (about,) = (each for name, each in json.loads(data[8 : 8 + size]).items() if name != "__metadata__")
    if about["dtype"] not in DTYPES:
        raise DamagedFile(f"scores of type {about['dtype']} are not read; expected scores_precision='float32' of inseq")
    first, last = about["data_offsets"]
    numbers = np.frombuffer(data[8 + size :][first:last], DTYPES[about["dtype"]])
    if about["dtype"] == "BF16":  # the upper half of a float32
        numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers.reshape(about["shape"])


def _texts(info: Mapping[str, Any], two_streams: bool) -> tuple[str, str]:
    """What was read, and what was said after it; of a decoder inseq writes both as one."""
    read, said = info["input_texts"][0], info["generated_texts"][0]
    return read, said if two_streams else said.removeprefix(read)


def _spans(tokens: Sequence[str], text: str, which: int) -> list[Span | None]:
    """Where each token stands in its text: found one after the other; None for what does not stand there."""
    spans: list[Span | None] = []
    here = 0
    for token in tokens:
        piece = token.translate(MARKS).strip()
        place = text.find(piece, here) if piece else -1
        if place < 0 or text[here:place].strip():  # words in between: it is another one that was found
            spans.append(None)
            continue
        here = place + len(piece)
        spans.append((which, place, here))
    return spans


def _step(token: int, label: str, chances: NDArray[Any] | None, step: int) -> Answered:
    """A token that was said; how likely it was is known where inseq was asked for step_scores=["probability"]."""
    target = Target("token", token, label)
    if chances is None:
        return Answered(target, None, {}, float("nan"))
    return Answered(target, None, {label: float(chances[step])}, float(np.log(chances[step])), {label: token})
