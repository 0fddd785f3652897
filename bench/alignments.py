"""Alignment error rates of every method and decoder layer, on sentences whose words people have linked.

    PYTHONPATH=src python bench/alignments.py FOLDER [--model wherefrom/translate] [--methods alti,…] [--limit 50]

FOLDER holds source and target, a sentence a line and words between blanks (test.uc.de, test.uc.en), and the links
(alignment.talp: `1-1 2p3`). Of a method with layer maps every layer of the decoder has links; of the others the scores
of each target token. Two columns: the row of the word that it puts out, and of the one that it has read. Prints the
table of docs/translation.md.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

import wherefrom
from wherefrom.aligning import in_words, token_rows
from wherefrom.errors import WherefromError, WherefromWarning
from wherefrom.method import choose
from wherefrom.pipeline.resolution import AUTO
from wherefrom.result.alignment import GoldLinks, Link, alignment_error_rate, gold_links

MAPS = (
    "attention",
    "attention-rollout",
    "norm",
    "norm-residual",
    "globenc",
    "information-flow",
    "alti",
    "value-zeroing",
)
SCORES = ("generic-attention", "saliency", "gradient-x-input", "integrated-gradients", "attn-lrp", "cp-lrp", "ablation")
Words = list[str]


def corpus(folder: Path) -> list[tuple[Words, Words, GoldLinks]]:
    """Words of source and target, and their links."""
    lines = [(folder / name).read_text("utf-8").splitlines() for name in ("test.uc.de", "test.uc.en", "alignment.talp")]
    return [(s.split(), t.split(), gold_links(links)) for s, t, links in zip(*lines, strict=True)]


def diagonal(source: Words, target: Words) -> list[Link]:
    """Each word with the one that stands as far from the beginning."""
    return [(i * len(source) // len(target), i) for i in range(len(target))]


def rates(opened: wherefrom.Model, rows: Sequence[tuple[Words, Words, GoldLinks]], method: str) -> list[list[float]]:
    """Of the word that is put out, and of the one that was read: AER by decoder layer."""
    told = [token_rows(opened, source, target, choose(method), AUTO) for source, target, _ in rows]
    gold = [links for _, _, links in rows]
    both = []
    for word in ("output", "input"):
        found = [in_words(opened, each, row[:2], word) for each, row in zip(told, rows, strict=True)]
        layers = range(len(found[0].layers))
        both.append([alignment_error_rate([each.links(layer) for each in found], gold) for layer in layers])
    return both


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--model", default="wherefrom/translate")
    asked.add_argument("--methods", default=",".join((*MAPS, *SCORES)))
    asked.add_argument("--limit", type=int)
    given = asked.parse_args()
    warnings.simplefilter("ignore", WherefromWarning)
    torch.set_num_threads(1)
    rows = corpus(given.folder)[: given.limit]
    opened = wherefrom.open_model(given.model)
    print(
        "| method | by the word that is put out | by the word that was read | seconds |\n|---|---|---|---|", flush=True
    )
    straight = alignment_error_rate([diagonal(s, t) for s, t, _ in rows], [links for _, _, links in rows])
    print(f"| the diagonal | {straight:.3f} | | |", flush=True)
    for method in given.methods.split(","):
        begun = time.perf_counter()
        try:
            both = ["  ".join(f"{rate:.3f}" for rate in each) for each in rates(opened, rows, method)]
        except WherefromError as error:
            print(f"| `{method}` | {error} | | |", flush=True)
            continue
        print(f"| `{method}` | {both[0]} | {both[1]} | {time.perf_counter() - begun:.0f} |", flush=True)


if __name__ == "__main__":
    main()
