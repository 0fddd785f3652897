"""Maximum flow against networkx's Edmonds and Karp, as ratios in one run, on several kinds of attention.

    python bench/flow.py            # prints the table
    python bench/flow.py --write    # and puts it into bench/README.md

networkx solves a few sinks of the row; its time for the whole row is extrapolated from these. CPU seconds, so that
other work on the machine counts for little.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import networkx
from networkx.algorithms.flow import edmonds_karp
from written import put

from oracles.flow import graph
from wherefrom.aggregate.flow import flow_values

SHIPPED = "the shipped sentiment model's"
SINKS = 3  # solved by networkx, of 32
HEADING = """## Maximum flow (`python bench/flow.py --write`)

One row: the flows from one token of the last of 6 layers to all 32 inputs. networkx is 3.6, Edmonds and Karp,
extrapolated from three sinks; both in CPU seconds of one thread. The first row is real attention, averaged over heads,
on English prose (in the last column 10 layers, all that the model has); the others are synthetic, those from "peaked"
on harsher than averaged attention is. The causal row is the last token's; networkx has little to do there.

"""


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(kind: str, depth: int, n: int, seed: int = 0) -> np.ndarray:
    """Capacities ½ attention + ½ I."""
    if kind == SHIPPED:
        return shipped(depth, n)
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(depth, n, n))
    if kind == "mean of 12 sharp heads":
        logits = 3 * rng.normal(size=(12, depth, n, n))
        logits[..., 0] += 3 * rng.normal(size=(12, depth, 1))
        logits[..., -1] += 4 * rng.random(size=(12, depth, 1))
        weights = softmax(logits).mean(0)
    elif kind == "peaked":
        weights = softmax(6 * logits)
    elif kind == "one-hot":
        weights = softmax(40 * logits)
    elif kind == "nearly identity":
        weights = 0.1 * softmax(4 * logits) + 0.9 * np.eye(n)
    elif kind == "causal":
        weights = softmax(np.where(np.tri(n, dtype=bool), 3 * logits, -np.inf))
    else:
        weights = softmax(logits)
    return 0.5 * weights + 0.5 * np.eye(n)


PROSE = """the keys to the old cabinets that the gardener had left beside the door were never found again , although
everybody in the house remembered having seen them on the morning of the storm , when the pictures of his brothers fell
from the wall and the dog would not stop barking at the empty chair by the window of the long gallery ."""


def shipped(depth: int, n: int) -> np.ndarray:
    """The attention of the sentiment model that ships inside, ½ attention + ½ I, on n tokens of prose."""
    import wherefrom

    opened = wherefrom.open_model("wherefrom/sentiment")
    ids = opened.tokenizer(PROSE)["input_ids"][:n]
    found = wherefrom.explain(ids, opened, method="attention-fixed-residual", aggregate=None)
    return np.asarray(found.maps[:depth], dtype=np.float64)


KINDS = (SHIPPED, "diffuse", "mean of 12 sharp heads", "peaked", "one-hot", "nearly identity", "causal")


def fastest(run: Callable[[], object], times: int = 5) -> float:
    seconds = []
    for _ in range(times):
        begin = time.process_time()
        run()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--write", action="store_true", help="put the table into bench/README.md")
    write = arguments.parse_args().write
    lines = [
        "| attention | networkx, one row of 6 × 32 | wherefrom, that row | ratio | all rows and layers of 12 × 64 |",
        "|---|---|---|---|---|",
    ]
    for kind in KINDS:
        maps = attention(kind, 6, 32)
        row = 31 if kind == "causal" else 0
        network = graph(maps)
        begin = time.process_time()
        for sink in range(0, 30, 30 // SINKS):
            networkx.maximum_flow_value(network, (6, row), (0, sink), flow_func=edmonds_karp)
        slow = (time.process_time() - begin) / SINKS * 32
        fast = fastest(lambda maps=maps, row=row: flow_values(maps, rows=[row], last=True))
        deep = attention(kind, 12, 64)
        whole = "–" if kind == "nearly identity" else f"{fastest(lambda deep=deep: flow_values(deep), 1):.1f} s"
        lines.append(f"| {kind} | {slow:.1f} s | {fast * 1000:.1f} ms | {slow / fast:,.0f} × | {whole} |")
        print(lines[-1], flush=True)
    print("\n".join(lines))
    if write:
        put("flow", HEADING + "\n".join(lines))


if __name__ == "__main__":
    main()
