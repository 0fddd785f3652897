"""Evaluation: erasure against one sentence at a time, and ten thousand rows in bounded memory.

    python bench/evaluate.py [--quick] [--device cuda] [--threads 2] [--rows 10000] [--batch-size 16]
    python bench/evaluate.py --rate --device cuda --threads 4 --batch-size 2048 --shard 2048

The shipped sentiment model; five cheap methods. Erasure: the same AOPC curves, once as `wherefrom evaluate` computes
them and once with one forward pass for each step of each sentence and method, which is how the papers' code does it;
the largest difference of a probability is given. Then a whole evaluation in a process of its own, its memory and its
estimate of the time left taken down after every shard. Data: SST-2's training split where WHEREFROM_DATA names a folder
that has it, else wherefrom's own grammar. Writes its table into bench/README.md. With --rate: the rows a second of two
evaluations in one process, after one of a single shard, in which a device is set up and kernels are compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from written import put

METHODS = ("attention", "attention-rollout", "globenc", "attcat", "random")
METRICS = ("aopc", "log-odds")
MODEL = "wherefrom/sentiment"
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)


def data(limit: int) -> Any:
    import wherefrom

    folder = os.environ.get("WHEREFROM_DATA")
    if folder and (Path(folder) / "sst2").is_dir():
        return wherefrom.data.read("sst2", "train", limit=limit)
    return wherefrom.data.read("grammar", limit=limit)


def erasing(arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds of both ways over the same sentences, taking turns."""
    import torch

    from wherefrom.method import choose
    from wherefrom.metric.erasure import Way, curves, plan
    from wherefrom.model import collate, open_model
    from wherefrom.model.capture import rerunning
    from wherefrom.model.output import explained
    from wherefrom.pipeline.execution import run
    from wherefrom.pipeline.resolution import UNASKED, Wanted, resolve_job
    from wherefrom.result.answer import Answer

    torch.set_num_threads(arguments.threads)
    opened = open_model(MODEL, device=arguments.device)
    count = 8 if arguments.quick else 64  # the rows of a shard
    examples = list(data(20 * count))[::20]
    sentences, _ = opened.reader().read([each.text for each in examples])
    jobs = {name: resolve_job(opened, choose(name), Wanted(rows="readout")) for name in METHODS}
    found = run(opened, sentences, [UNASKED] * len(sentences), jobs, arguments.batch_size)
    way = Way()
    asked = [
        (sentence, each.explanations[0], way)
        for sentence, outcomes in zip(sentences, found, strict=True)
        for each in outcomes.values()
    ]

    def together() -> list[Any]:
        return [curve.probabilities for curve in curves(opened, asked)]

    def one(sentence: Any, explanation: Any) -> list[float]:
        order, taken = plan(sentence, explanation, way)
        answer = Answer(explanation.target, explanation.readout, None, {})
        return [
            float(explained(opened, opened.forward(batch), [answer], batch.lengths, "probability"))
            for k in taken
            for batch in [collate([sentence.without(set(order[:k]))], opened.pad_id)]
        ]

    def one_at_a_time() -> list[Any]:
        return rerunning(opened, torch.no_grad()(lambda: [one(*each[:2]) for each in asked]), own_attention=True)

    seconds: dict[str, list[float]] = {"together": [], "one": []}
    outcome: dict[str, list[Any]] = {}
    for turn in range(2 if arguments.quick else 4):
        for name, go in (("together", together), ("one", one_at_a_time)):
            begin = time.perf_counter()
            outcome[name] = go()  # ends with the numbers on the CPU, so that a GPU is waited for
            if turn:
                seconds[name].append(time.perf_counter() - begin)
    pairs = zip(outcome["together"], outcome["one"], strict=True)
    gap = max(abs(a - b) for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True))
    passes = sum(len(each) for each in outcome["one"])
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return {**medians, "gap": float(gap), "sentences": len(sentences), "passes": passes}


def evaluate(rows: int, arguments: argparse.Namespace) -> None:
    """The whole of it, into a folder that is thrown away."""
    import wherefrom

    with tempfile.TemporaryDirectory() as folder:
        wherefrom.evaluate(
            data(rows),
            MODEL,
            methods=METHODS,
            metrics=METRICS,
            out=Path(folder) / "run",
            batch_size=arguments.batch_size,
            shard=arguments.shard,
            device=arguments.device,
            progress=False,
        )


def tell_rate(arguments: argparse.Namespace) -> None:
    import torch

    torch.set_num_threads(arguments.threads)
    evaluate(arguments.shard, arguments)
    for _ in range(2):
        begin = time.perf_counter()
        evaluate(arguments.rows, arguments)
        seconds = time.perf_counter() - begin
        print(f"{arguments.rows} rows in {seconds:.2f} s, {arguments.rows / seconds:.0f} a second")


def evaluating(arguments: argparse.Namespace) -> dict[str, Any]:
    """The whole evaluation; after every shard: seconds gone, rows done, memory and the time left as estimated."""
    import torch

    from wherefrom.evaluation import steps as module

    torch.set_num_threads(arguments.threads)
    noted: list[tuple[float, int, float, float]] = []
    begin = time.perf_counter()

    @contextmanager
    def noting(*_: Any) -> Any:
        yield lambda clock: noted.append(
            (time.perf_counter() - begin, clock.rows_done, _resident(), clock.seconds_left() or 0.0)
        )

    module.bar = noting
    rows = 200 if arguments.quick else arguments.rows
    evaluate(rows, arguments)
    return {"seconds": time.perf_counter() - begin, "noted": noted}


def _resident() -> float:
    """Memory of this process in MB, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def report(arguments: argparse.Namespace, erased: dict[str, float], run: dict[str, Any]) -> str:
    noted = run["noted"]
    end, rows = noted[-1][0], noted[-1][1]
    lines = []
    for share in SHARES:
        seconds, done, memory, left = min(noted, key=lambda each: abs(each[1] - share * rows))
        truth = end - seconds
        lines.append(f"| {done} | {seconds:.0f} s | {memory:.0f} MB | {left:.0f} s | {truth:.0f} s |")
    cuda = arguments.device == "cuda"
    where = "one H200" if cuda else f"{arguments.threads} threads"
    source, together, one = data(1), erased["together"], erased["one"]
    size, passes = int(erased["sentences"]), int(erased["passes"])
    return f"""## Evaluation (`python bench/evaluate.py{" --device cuda" if cuda else ""}`)

{MODEL}, {where}, {len(METHODS)} methods ({", ".join(METHODS)}), {source.name} {source.split}.
AOPC curves of {size} sentences, {passes} steps: {together:.2f} s together, {one:.2f} s one at a time:
**{one / together:.1f} ×** faster, {size / together:.1f} sentences a second with all methods; probabilities differ by
at most {erased["gap"]:.0e}.

An evaluation of {rows} rows by {" and ".join(METRICS)} took {run["seconds"]:.0f} s, {rows / end:.1f} rows a second
(batches of {arguments.batch_size}, shards of {arguments.shard}).

| rows done | after | memory of the process | time left, estimated | time left, in truth |
|---|---|---|---|---|
{chr(10).join(lines)}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few sentences, and nothing is written")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--shard", type=int, default=64)
    parser.add_argument("--rate", action="store_true", help="rows a second alone, and nothing is written")
    parser.add_argument("--part", choices=("erasing", "evaluating"), help="used by this program itself")
    arguments = parser.parse_args()
    if arguments.part:
        part = {"erasing": erasing, "evaluating": evaluating}[arguments.part]
        print(json.dumps(part(arguments)))
        return
    if arguments.rate:
        tell_rate(arguments)
        return
    results = []
    for part in ("erasing", "evaluating"):
        command = [sys.executable, __file__, *sys.argv[1:], "--part", part]
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        results.append(json.loads(found.stdout.splitlines()[-1]))
    text = report(arguments, *results)
    print(text)
    if not arguments.quick:
        put("evaluate" if arguments.device == "cpu" else f"evaluate-{arguments.device}", text)


if __name__ == "__main__":
    main()
