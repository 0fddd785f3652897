"""Time and memory of the methods that explain one number: beside a plain forward pass, captum and a loop.

    python bench/output.py [--quick] [--threads 2]

A randomly initialised BERT-base classifier; every time is a ratio to a plain float32 forward pass measured in the same
process, the contestants taking turns; one that takes long gets fewer of them. With one thread it is the process's own
time, which others' work on the machine changes little. Peak memory is that of a process of its own, beyond what it held
once the model was loaded. Writes its table into bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from written import put

ENOUGH = 10.0  # seconds spent on one contestant, after which it runs no more
STEPS = 10  # of integrated gradients: both sides grow with it alike
TOGETHER = ["cat", "attcat", "gradient-x-input", "saliency", "attention-gradients"]


def contestants(n: int) -> dict[str, Callable[[], Any]]:
    """What is measured, by name."""
    import captum.attr
    import transformers

    import wherefrom

    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(transformers.BertConfig()).eval()
    ids = torch.randint(1000, 20000, (n,)).tolist()
    inputs = torch.tensor([ids])

    def forward() -> None:
        with torch.no_grad():
            model(inputs)

    def explained(method: str, **options: Any) -> Callable[[], Any]:
        return lambda: wherefrom.explain(ids, model, method=method, target=0, **options)

    def by_captum() -> None:
        """LayerIntegratedGradients as captum's tutorial on BERT has it."""
        method = captum.attr.LayerIntegratedGradients(lambda x: model(x).logits, model.bert.embeddings)
        method.attribute(inputs, torch.full_like(inputs, 103), target=0, n_steps=STEPS, internal_batch_size=32)

    def one_at_a_time() -> None:
        with torch.no_grad():
            model(inputs)
            for i in range(n):
                blanked = inputs.clone()
                blanked[0, i] = 100
                model(blanked).logits.softmax(-1)

    return {
        "forward": forward,
        **{name: explained(name) for name in TOGETHER},
        "these five together": lambda: wherefrom.compare(ids, model, methods=TOGETHER, target=0),
        "integrated-gradients": explained("integrated-gradients", n_steps=STEPS, baseline=103),
        "integrated-gradients: captum": by_captum,
        "deeplift": explained("deeplift", baseline=103),
        "ablation": explained("ablation", by=100),
        "ablation: one token at a time": one_at_a_time,
    }


def timed(n: int, runs: int) -> dict[str, float]:
    """Median seconds of each contestant; its first run warms up, where there are others."""
    entries = contestants(n)
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in entries}
    for _ in range(runs + 1):
        for name, go in entries.items():
            if sum(times[name]) < ENOUGH:
                begin = clock()
                go()
                times[name].append(clock() - begin)
    return {name: statistics.median(values[1:] or values) for name, values in times.items()}


def peaks(n: int, threads: int) -> dict[str, float]:
    """Megabytes beyond the loaded model, of each contestant in a process of its own that begins with it."""
    torch.set_num_threads(1)  # a process that has had several threads gives its children none
    entries = contestants(n)
    return {name: peak(go, threads) for name, go in entries.items()}


def peak(go: Callable[[], Any], threads: int) -> float:
    reading, writing = os.pipe()
    if not os.fork():
        torch.set_num_threads(threads)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        go()
        os.write(writing, str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before).encode())
        os._exit(0)
    os.close(writing)
    os.wait()
    with os.fdopen(reading) as told:
        return int(told.read()) / 1024


def child(*arguments: str) -> Any:
    result = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
    return json.loads(result.stdout)


def table(lengths: list[int], runs: int, threads: int) -> str:
    shared = ["--threads", str(threads)]
    times = {n: child("--time", str(n), "--runs", str(runs), *shared) for n in lengths}
    names = [name for name in times[lengths[0]] if name != "forward"]
    own = " by the process's own time" if threads == 1 else ""
    memory = {n: child("--peak", str(n), *shared) for n in lengths}
    lines = [
        f"BERT-base, one sentence of n tokens, {threads} thread{'s' * (threads > 1)}, median of {runs} runs (of fewer "
        f"where they take over {ENOUGH:.0f} s); times in forward passes{own} ("
        + ", ".join(f"n = {n}: {times[n]['forward'] * 1000:.0f} ms" for n in lengths)
        + f"); integrated gradients with {STEPS} steps.",
        "",
        "| method | " + " | ".join(f"n = {n}: time | n = {n}: peak memory" for n in lengths) + " |",
        "|---" * (1 + 2 * len(lengths)) + "|",
    ]
    for name in names:
        cells = [f"{times[n][name] / times[n]['forward']:.1f} × | {memory[n][name]:.0f} MB" for n in lengths]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="n = 32 only, three runs")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--time", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.time or options.peak:
        torch.set_num_threads(options.threads)
        found = timed(options.time, options.runs) if options.time else peaks(options.peak, options.threads)
        print(json.dumps(found))
        return
    text = table([32] if options.quick else [32, 128], 3 if options.quick else options.runs, options.threads)
    print(text)
    if not options.quick:
        put("output", f"## Towards one output (`python bench/output.py --threads {options.threads}`)\n\n{text}")


if __name__ == "__main__":
    main()
