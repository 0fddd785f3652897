"""BLEU of a translator (Papineni et al. 2002), as sacrebleu counts it (Post 2018), whose signature says how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from wherefrom.extras import need
from wherefrom.training import checkpoints
from wherefrom.training.translate import PairColumns, read


@dataclass(frozen=True)
class Bleu:
    """A score of 0 to 100, and what it was counted on."""

    score: float
    rows: int
    signature: str
    said: tuple[str, ...]


def measure(
    model: str, data: Path, columns: PairColumns | None = None, device: str = "cpu", beams: int = 4, batch: int = 64
) -> Bleu:
    """Translate the sources of a table and compare with its targets, one reference each."""
    counted = need("sacrebleu", extra="bleu").BLEU()
    pairs = read(data, columns or PairColumns())
    said = translate(model, [pair.source for pair in pairs], device, beams, batch)
    score = counted.corpus_score(said, [[pair.target for pair in pairs]]).score
    return Bleu(float(score), len(pairs), str(counted.get_signature()), tuple(said))


@torch.inference_mode()
def translate(model: str, sources: list[str], device: str = "cpu", beams: int = 4, batch: int = 64) -> list[str]:
    """What the model writes, by a beam of this width; texts of like length are read together."""
    network = checkpoints.measured(model, checkpoints.TRANSLATOR, device)
    words = checkpoints.tokenizer(model)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    found: dict[int, str] = {}
    for start in range(0, len(order), batch):
        places = order[start : start + batch]
        given: Any = words([sources[i] for i in places], padding=True, truncation=True, return_tensors="pt")
        written = network.generate(**given.to(device), num_beams=beams, do_sample=False)
        found.update(zip(places, words.batch_decode(written, skip_special_tokens=True), strict=True))
    return [found[i] for i in range(len(sources))]
