"""Time and memory of the LRP methods, beside a plain float32 forward pass of the same model on the same input.

    python bench/relevance.py [--quick] [--threads 2]

A randomly initialised BERT-base classifier in float32. Each call is the whole `wherefrom.explain`: captured pass,
gradient, the pass in float64, relevance, rollout. The contestants take turns and the fastest run of each counts. With
one thread, CPU time is taken instead of wall time: other work on the machine then counts for little. Peak memory is
that of a fresh process which does nothing else, beyond what it held once the model had run. Writes its table into
bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import written

SETTINGS = [(32, 1), (128, 1), (32, 8), (128, 8)]
METHODS = ["partial-lrp", "full-lrp", "transformer-attribution"]
TOGETHER = "all three together"


def contestants(n: int, batch: int) -> dict[str, Callable[[], Any]]:
    """What is measured, by name."""
    import torch
    import transformers

    import wherefrom

    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(transformers.BertConfig()).eval()
    inputs = torch.randint(1000, 20000, (batch, n))

    def forward() -> None:
        with torch.no_grad():
            model(inputs)

    def explained(method: str) -> Callable[[], Any]:
        return lambda: wherefrom.explain(inputs, model, method=method, target=0)

    return {
        "forward": forward,
        **{name: explained(name) for name in METHODS},
        TOGETHER: lambda: wherefrom.compare(inputs[0].tolist(), model, methods=METHODS, target=0),
    }


def timed(n: int, batch: int, runs: int, clock: Callable[[], float]) -> dict[str, float]:
    """Seconds of each contestant's fastest run."""
    entries = contestants(n, batch)
    if batch > 1:
        del entries[TOGETHER]
    best = dict.fromkeys(entries, float("inf"))
    for _ in range(runs + 1):  # the first round warms up; it is never the fastest
        for name, go in entries.items():
            begin = clock()
            go()
            best[name] = min(best[name], clock() - begin)
    return best


def peak(n: int, batch: int, name: str) -> float:
    """Megabytes beyond the loaded model and a forward pass."""
    entries = contestants(n, batch)
    entries["forward"]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    entries[name]()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def child(*arguments: object) -> Any:
    command = [sys.executable, __file__, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def table(settings: list[tuple[int, int]], runs: int, threads: int) -> str:
    lines = [
        "## Relevance propagation (`python bench/relevance.py`)",
        "",
        f"BERT-base of random weights in float32, {threads} thread{'s (wall time)' if threads > 1 else ' (CPU time)'}, "
        f"fastest of {runs} runs; times in plain forward passes of the same input.",
        "",
        "| n | sentences | forward pass | " + " | ".join([*METHODS, TOGETHER]) + " | peak memory of the third |",
        "|---" * (5 + len(METHODS)) + "|",
    ]
    for n, batch in settings:
        found = child("--time", n, batch, "--runs", runs, "--threads", threads)
        memory = child("--peak", n, batch, "--threads", threads)
        cells = [f"{found[name] / found['forward']:.1f} ×" if name in found else "–" for name in [*METHODS, TOGETHER]]
        lines.append(f"| {n} | {batch} | {found['forward'] * 1000:.0f} ms | {' | '.join(cells)} | {memory:.0f} MB |")
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one sentence, n = 32 only, and nothing written")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--time", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--peak", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.time or options.peak:
        import torch

        torch.set_num_threads(options.threads)
        clock = time.process_time if options.threads == 1 else time.perf_counter
        found = timed(*options.time, options.runs, clock) if options.time else peak(*options.peak, METHODS[-1])
        print(json.dumps(found))
        return
    text = table(SETTINGS[:1] if options.quick else SETTINGS, options.runs, options.threads)
    print(text)
    if not options.quick:
        written.put("relevance", text)


if __name__ == "__main__":
    main()
