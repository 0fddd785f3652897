"""Alignment error rates of every method and decoder layer, on sentences whose words people have linked.

    PYTHONPATH=src python bench/alignments.py FOLDER [--model wherefrom/translate] [--methods 'alti …'] [--limit 50]
        [--device cuda]

FOLDER holds source and target, a sentence a line and words between blanks (test.uc.de, test.uc.en), and the links
(alignment.talp: `1-1 2p3`). Of a method with layer maps every layer of the decoder has links; of the others the scores
of each target token. Two columns: the row of the word that it puts out, and of the one that it has read. Prints the
table of docs/translation.md.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

import wherefrom
from wherefrom.aligning import PAIRS, SourceRows, has_rows, in_words, rows_of_maps, token_rows
from wherefrom.errors import WherefromError, WherefromWarning
from wherefrom.method import choose, lookup, methods, presets
from wherefrom.method.needs import undefined
from wherefrom.pipeline.resolution import AUTO
from wherefrom.result.alignment import GoldLinks, Link, alignment_error_rate, gold_links

Words = list[str]
Links = Sequence[Link]
Row = tuple[Words, Words, GoldLinks]
Found = Mapping[str, Sequence[Links]]
SLOW = ("attention-flow", "information-flow", "value-zeroing")  # which would keep the others waiting


def defined(opened: wherefrom.Model) -> list[str]:
    """The methods and presets that this model can be asked for."""
    names = [each.name for each in (*methods(), *presets()) if each.name != PAIRS]
    return [name for name in names if undefined(lookup(name)[0].needs, opened) is None]


def corpus(folder: Path) -> list[Row]:
    """Words of source and target, and their links."""
    lines = [(folder / name).read_text("utf-8").splitlines() for name in ("test.uc.de", "test.uc.en", "alignment.talp")]
    return [(s.split(), t.split(), gold_links(links)) for s, t, links in zip(*lines, strict=True)]


def diagonal(source: Words, target: Words) -> list[Link]:
    """Each word with the one that stands as far from the beginning."""
    return [(i * len(source) // len(target), i) for i in range(len(target))]


def found_links(opened: wherefrom.Model, row: Row, methods: Sequence[str]) -> dict[str, Found]:
    """Of each method, of the word that is put out and of the one that was read: the links by decoder layer.

    Methods whose map has all rows share a pass.
    """
    source, target, _ = row
    mapping = [name for name in methods if has_rows(choose(name))]
    told = {name: token_rows(opened, source, target, choose(name), AUTO) for name in methods if name not in mapping}
    if mapping:
        texts = " ".join(source), " ".join(target)
        found = wherefrom.compare(texts[0], opened, target=texts[1], methods=mapping, keep="maps")
        told |= {name: rows_of_maps(opened, source, each) for name, each in found.items()}
    return {name: linked(opened, told[name], (source, target)) for name in methods}


def linked(opened: wherefrom.Model, told: SourceRows, texts: tuple[Words, Words]) -> Found:
    both = {word: in_words(opened, told, texts, word) for word in ("output", "input")}
    return {word: [each.links(layer) for layer in range(len(each.layers))] for word, each in both.items()}


def rates(found: Sequence[Found], gold: Sequence[GoldLinks], word: str) -> list[float]:
    """AER by decoder layer."""
    layers = range(len(found[0][word]))
    links = [[[(i, j) for i, j in each[word][layer]] for each in found] for layer in layers]
    return [alignment_error_rate(each, gold) for each in links]


def measured(opened: wherefrom.Model, rows: Sequence[Row], methods: Sequence[str], out: Path | None) -> list[str]:
    """Lines of the table. What `out` has is not computed anew, and what is computed is written there at once."""
    kept = {name: file_of(out, name) for name in methods}
    found = {name: stored(file) for name, file in kept.items()}
    begun = time.perf_counter()
    for place, row in enumerate(rows):
        lacking = [name for name in methods if len(found[name]) <= place]
        for name, each in found_links(opened, row, lacking).items() if lacking else ():
            found[name].append(each)
            if file := kept[name]:
                with file.open("a") as lines:
                    lines.write(json.dumps(each) + "\n")
    took = f"{time.perf_counter() - begun:.0f}"
    return [f"| `{name}` | {len(rows)} | {written(found[name][: len(rows)], rows)} | {took} |" for name in methods]


def written(found: Sequence[Found], rows: Sequence[Row]) -> str:
    gold = [links for _, _, links in rows]
    return " | ".join(", ".join(f"{rate:.3f}" for rate in rates(found, gold, word)) for word in ("output", "input"))


def file_of(out: Path | None, method: str) -> Path | None:
    name = "".join(letter if letter.isalnum() or letter in "-=" else "_" for letter in method)
    return out / f"{name}.jsonl" if out else None


def stored(file: Path | None) -> list[Found]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--model", default="wherefrom/translate")
    asked.add_argument("--methods", help="names, blanks between them (default: every one that is defined)")
    asked.add_argument("--limit", type=int)
    asked.add_argument("--device", default="cpu")
    asked.add_argument("--out", type=Path, help="a folder for the links, from which an interrupted run goes on")
    given = asked.parse_args()
    warnings.simplefilter("ignore", WherefromWarning)
    torch.set_num_threads(1)
    rows = corpus(given.folder)[: given.limit]
    opened = wherefrom.open_model(given.model, device=given.device)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
    print("| method | sentences | by the word that is put out | by the word that was read | seconds |", flush=True)
    straight = alignment_error_rate([diagonal(s, t) for s, t, _ in rows], [links for _, _, links in rows])
    print(f"|---|---|---|---|---|\n| the diagonal | {len(rows)} | {straight:.3f} | | |", flush=True)
    names = given.methods.split() if given.methods else defined(opened)
    together = [name for name in names if has_rows(choose(name)) and name not in SLOW]
    for group in ([together] if together else []) + [[name] for name in names if name not in together]:
        try:
            print(*measured(opened, rows, group, given.out), sep="\n", flush=True)
        except WherefromError as error:
            print(f"| {', '.join(group)} | | {error} | | |", flush=True)


if __name__ == "__main__":
    main()
