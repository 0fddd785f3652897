"""Time and memory of decompositions and of methods that read a frozen pass, beside a plain forward pass and LXT.

    python bench/decomposition.py [--quick] [--threads 2]
    PYTHONPATH=src python3 bench/decomposition.py --gpu     the same BERT, and a Llama of 8 B in bfloat16, on a GPU

Randomly initialised models in float32: a classifier of BERT-base's shape, and a language model of the shape of a Llama
of 135 million weights, where LXT runs beside it (`pip install lxt "transformers<5.10"`). LXT changes classes for the
whole process and so has one of its own; its time is held against a forward pass there. The model is opened once;
each call is the whole `wherefrom.explain`. The contestants take turns and the fastest run of each counts. With one
thread, CPU time is taken instead of wall time: other work on the machine then counts for little. Peak memory is that of
a fresh process which does nothing else, beyond what it held once the model had run. Writes its table into
bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import memory
import written

SETTINGS = [("bert", 32, 1), ("bert", 128, 1), ("bert", 128, 8), ("llama", 128, 1)]
METHODS = ["attn-lrp", "cp-lrp", "decompx(bias=none)", "generic-attention"]
TOGETHER = "the first three together"
FORWARD = "decompx"  # with biases shared out by the vectors: all of them taken forward
LENGTHS = (32, 64, 128)
LXT = "LXT's AttnLRP"
# LXT 2.1 ran with transformers 5.9; it replaces the table of attentions by a dictionary, which for 5.22 is not enough.
LXT_RUNS = find_spec("lxt") is not None and tuple(map(int, version("transformers").split(".")[:2])) < (5, 10)
LLAMA = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
}


def made(kind: str) -> Any:
    """The model."""
    import torch
    import transformers

    torch.manual_seed(0)
    if kind == "bert":
        return transformers.BertForSequenceClassification(transformers.BertConfig()).eval()
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)).eval()


def contestants(
    kind: str, n: int, batch: int, *, lxt: bool = False, slow: bool = False
) -> dict[str, Callable[[], Any]]:
    """What is measured, by name; or LXT alone, or what is slow."""
    import torch

    model = made(kind)
    if slow:  # without biases nothing would be shared out
        for name, weight in model.named_parameters():
            weight.data += 0.1 * torch.randn_like(weight) * name.endswith("bias")
    inputs = torch.randint(1000, 20000, (batch, n))

    def forward() -> None:
        with torch.no_grad():
            model(inputs)

    if lxt:
        import lxt_peer

        return {"forward": forward, LXT: lxt_peer.attn_lrp(model, inputs)}
    import wherefrom

    opened = wherefrom.open_model(model)

    def explained(method: str) -> Callable[[], Any]:
        return lambda: wherefrom.explain(inputs, opened, method=method, target=0)

    if slow:
        return {"forward": forward, FORWARD: explained(FORWARD)}
    together = {TOGETHER: lambda: wherefrom.compare(inputs.tolist(), opened, methods=METHODS[:3], target=0)}
    return {"forward": forward, **{name: explained(name) for name in METHODS}, **together}


def timed(entries: dict[str, Callable[[], Any]], runs: int, clock: Callable[[], float]) -> dict[str, float]:
    """Seconds of each contestant's fastest run."""
    best = dict.fromkeys(entries, float("inf"))
    for _ in range(runs + 1):  # the first round warms up; it is never the fastest
        for name, go in entries.items():
            begin = clock()
            go()
            best[name] = min(best[name], clock() - begin)
    return best


def peak(entries: dict[str, Callable[[], Any]], name: str) -> float:
    """Megabytes beyond the loaded model and a forward pass."""
    entries["forward"]()
    return memory.peak(entries[name])


def child(*arguments: object) -> Any:
    command = [sys.executable, __file__, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def row(setting: tuple[str, int, int], more: list[object]) -> str:
    kind, n, batch = setting
    found = child("--time", *setting, *more)
    columns = [*METHODS, TOGETHER]
    cells = [f"{found[name] / found['forward']:.2f} ×" if name in found else "–" for name in columns]
    held = f"{child('--peak', *setting, *more):.0f} MB"
    if kind == "llama" and LXT_RUNS:
        theirs = child("--time", *setting, "--lxt", *more)
        cells.append(f"{theirs[LXT] / theirs['forward']:.2f} ×")
        held += f" ({child('--peak', *setting, '--lxt', *more):.0f} MB)"
    else:
        cells.append("–")
    return f"| {kind} | {n} | {batch} | {found['forward'] * 1000:.0f} ms | {' | '.join(cells)} | {held} |"


def table(settings: list[tuple[str, int, int]], runs: int, threads: int) -> str:
    names = [*METHODS, TOGETHER, LXT]
    lines = [
        "## Frozen passes (`python bench/decomposition.py`)",
        "",
        f"Random weights in float32, {threads} thread{'s (wall time)' if threads > 1 else ' (CPU time)'}, fastest of "
        f"{runs} runs; times in plain forward passes of the same input. The machine had other work to do, so that the "
        "ratios tell more than the seconds.",
        "",
        f"| model | n | texts | forward pass | {' | '.join(names)} | peak memory of attn-lrp (LXT's) |",
        "|---" * (5 + len(names)) + "|",
    ]
    for setting in settings:
        lines.append(row(setting, ["--runs", runs, "--threads", threads]))
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def forward_table(lengths: Sequence[int], threads: int) -> str:
    """All n² vectors, once each: they take long."""
    lines = [
        "`decompx` as it comes, biases shared out by the vectors: all n² of them are taken forward through the same "
        "BERT with random biases, one text. In forward passes, as are the multiplications that this takes.",
        "",
        "| n | forward pass | decompx | multiplications | peak memory |",
        "|---" * 5 + "|",
    ]
    for n in lengths:
        more = ["--runs", 1, "--threads", threads, "--slow"]
        found = child("--time", "bert", n, 1, *more)
        held = child("--peak", "bert", n, 1, *more)
        times = f"{found[FORWARD] / found['forward']:.0f} × | {0.82 * n * 10.8 / 12:.0f} ×"
        lines.append(f"| {n} | {found['forward'] * 1000:.0f} ms | {times} | {held:.0f} MB |")
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


# On a GPU -------------------------------------------------------------------------------------------------


def gpu_times(model: Any, batch: int, n: int, method: str, runs: int) -> tuple[float, float, float]:
    """Median seconds of a forward pass and of a method, and GB that the method holds beyond the weights."""
    import torch

    import wherefrom

    opened, weights = wherefrom.open_model(model), torch.cuda.memory_allocated()
    inputs = torch.randint(1000, 20000, (batch, n), device="cuda")

    @torch.no_grad()
    def forward() -> None:
        model(inputs)

    def explained() -> None:
        wherefrom.explain(inputs.tolist(), opened, method=method, target=0, batch_size=batch)

    found = []
    for go in (forward, explained):
        seconds = []
        for _ in range(runs + 1):  # the first warms up
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            go()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
        found.append(statistics.median(seconds[1:]))
    return found[0], found[1], (torch.cuda.max_memory_allocated() - weights) / 2**30


def gpu_table(runs: int) -> str:
    """`decompx` the forward way on BERT-base, and AttnLRP on a Llama of 8 B."""
    import decoders
    import torch
    import transformers

    lines = [
        "## Frozen passes on a GPU (`PYTHONPATH=src python3 bench/decomposition.py --gpu`)",
        "",
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {transformers.__version__}, random "
        f"weights, median of {runs} runs. BERT-base in float32 with random biases: `decompx` as it comes, all n² "
        "vectors taken forward. A Llama of 8 B in bfloat16: `attn-lrp` of the first logit.",
        "",
        "| model | method | n | texts | forward pass | method | in forward passes | peak beyond the weights |",
        "|---" * 8 + "|",
    ]

    def measure(name: str, model: Any, method: str, sizes: list[tuple[int, int]]) -> None:
        for n, batch in sizes:
            forward, seconds, held = gpu_times(model, batch, n, method, runs)
            lines.append(
                f"| {name} | {method} | {n} | {batch} | {1000 * forward:.1f} ms | {1000 * seconds:.0f} ms | "
                f"**{seconds / forward:.1f} ×** | {held:.2f} GB |"
            )
            print(lines[-1], flush=True)

    bert = made("bert").cuda()
    for weight_name, weight in bert.named_parameters():
        weight.data += 0.1 * torch.randn_like(weight) * weight_name.endswith("bias")
    measure("BERT-base", bert, FORWARD, [(64, 1), (128, 1), (64, 8)])
    measure("Llama 8 B", decoders.llama(decoders.ON_GPU), "attn-lrp", [(128, 1), (512, 1), (128, 8)])
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one text, n = 32 only, and nothing written")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--time", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--lxt", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--slow", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--gpu", action="store_true", help="on a GPU, and nothing on the CPU")
    options = parser.parse_args()
    if options.gpu:
        text = gpu_table(options.runs)
        written.put("decomposition-gpu", text)
        return
    if options.time or options.peak:
        import torch

        torch.set_num_threads(options.threads)
        clock = time.process_time if options.threads == 1 else time.perf_counter
        kind, n, batch = options.time or options.peak
        entries = contestants(kind, int(n), int(batch), lxt=options.lxt, slow=options.slow)
        name = LXT if options.lxt else FORWARD if options.slow else METHODS[0]
        print(json.dumps(timed(entries, options.runs, clock) if options.time else peak(entries, name)))
        return
    text = table(SETTINGS[:1] if options.quick else SETTINGS, options.runs, options.threads)
    text += "\n\n" + forward_table(LENGTHS[:1] if options.quick else LENGTHS, options.threads)
    print(text)
    if not options.quick:
        written.put("decomposition", text)


if __name__ == "__main__":
    main()
