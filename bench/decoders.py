"""Time and memory of the methods on decoders: beside the model's own forward pass and, for Value Zeroing, its floor.

    python bench/decoders.py [--threads 2]                      a Llama of 135 M, 128 tokens, on the CPU
    PYTHONPATH=src python3 bench/decoders.py --gpu [--profile]  a Llama of 8 B in bfloat16, 512 and 2,048 tokens

Random weights, made on the device; nothing is downloaded. Each call is `wherefrom.explain(…, keep="scores")`, tokens in
and scores out. Every time is a ratio to a forward pass of the same process, with the model's own attention and its
logits at every token, contestants taking turns. Memory is what a call holds at its peak beyond the weights: on a GPU
that of torch's allocator, on a CPU that of a fresh process. One JSON line for each measurement, then the table, which
`--write` puts into bench/README.md. `--profile` adds the twenty longest kernels of norms and ALTI at the first length.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import transformers
from memory import peak
from torch import Tensor
from written import put

import wherefrom
from wherefrom.method import lookup
from wherefrom.method.value_zeroing import value_zeroing
from wherefrom.model import LayerTrace, Model, collate, open_model, stream

STEPS = 10  # of integrated gradients: its time grows with them
MAPS = ("attention-rollout", "norm-residual", "globenc", "alti")  # by layer, their readout row asked for
PROFILED = ("globenc", "alti")
FLOOR_ROWS = 4096  # hidden vectors that are timed for the floor of Value Zeroing
SMALL = {
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}
LARGE = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


class Setting(NamedTuple):
    """A model, and where it runs."""

    name: str
    config: dict[str, int]
    device: str
    dtype: torch.dtype
    lengths: tuple[int, ...]


ON_CPU = Setting("135 M", SMALL, "cpu", torch.float32, (128,))
ON_GPU = Setting("8 B", LARGE, "cuda", torch.bfloat16, (512, 2048))


def llama(setting: Setting) -> Any:
    """Made where it stays, in its own dtype: 8 B parameters are never held twice."""
    config = transformers.LlamaConfig(**setting.config, max_position_embeddings=4096)
    torch.manual_seed(0)
    torch.set_default_dtype(setting.dtype)
    with torch.device(setting.device):
        model = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    return model


def tokens(n: int, vocabulary: int) -> list[int]:
    return torch.randint(3, vocabulary, (n,), generator=torch.Generator().manual_seed(n)).tolist()


# What is measured -----------------------------------------------------------------------------------------


def contestants(opened: Model, n: int, setting: Setting) -> dict[str, Callable[[], Any]]:
    """By name; each takes tokens and gives scores, but for `forward` and `followed`."""
    ids = tokens(n, setting.config["vocab_size"])
    inputs = torch.tensor([ids], device=setting.device)

    @torch.no_grad()
    def forward() -> None:
        opened.model(inputs)

    def followed() -> None:
        sentences, _ = opened.reader().read([ids])
        stream(opened, collate(sentences, opened.pad_id), lambda _layer: None)

    def explained(method: str, **options: Any) -> Callable[[], Any]:
        return lambda: wherefrom.explain(ids, opened, method=method, **options)

    return {
        "forward": forward,
        "followed": followed,
        **{name: explained(name, rows="readout", keep="scores") for name in MAPS},
        "attcat": explained("attcat"),
        "integrated-gradients": explained("integrated-gradients", n_steps=STEPS, baseline=0),
    }


def synchronised(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def timed(go: Callable[[], Any], device: str) -> float:
    synchronised(device)
    begin = time.perf_counter()
    go()
    synchronised(device)
    return time.perf_counter() - begin


def times(found: dict[str, Callable[[], Any]], device: str, runs: int) -> dict[str, float]:
    """Median seconds of each, taking turns after one run to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for go in found.values():
        go()
    for _ in range(runs):
        for name, go in found.items():
            seconds[name].append(timed(go, device))
    return {name: statistics.median(each) for name, each in seconds.items()}


def phases(opened: Model, n: int, setting: Setting) -> dict[str, float]:
    """Seconds in the layers' maps alone, waited for one by one: what is left of a call is the pass and the joining."""
    sentences, _ = opened.reader().read([tokens(n, setting.config["vocab_size"])])
    batch = collate(sentences, opened.pad_id)
    spent: dict[str, float] = {}
    for name in MAPS:
        method, total = lookup(name)[0], 0.0

        @torch.no_grad()
        def work(layer: LayerTrace, run: Callable[..., Tensor] = method.run) -> None:
            nonlocal total
            total += timed(lambda: run(layer), setting.device)

        stream(opened, batch, work)
        spent[name] = total
    return spent


def one_layer(opened: Model, n: int, setting: Setting) -> LayerTrace:
    """The middle block of a captured pass."""
    sentences, _ = opened.reader().read([tokens(n, setting.config["vocab_size"])])
    kept: list[LayerTrace] = []
    middle = opened.depth // 2
    stream(
        opened, collate(sentences, opened.pad_id), lambda layer: kept.append(layer) if layer.index == middle else None
    )
    return kept[0]


def zeroing(opened: Model, n: int, setting: Setting, runs: int) -> dict[str, float]:
    """One layer's Value Zeroing, and its floor: activation, gate and W_2 for every pair of which one sees the other."""
    layer = one_layer(opened, n, setting)
    block = layer.block
    out, rows = block.ffn_out.weight, min(FLOOR_ROWS, n * n)
    gate, up = torch.randn(2, rows, block.units, device=setting.device, dtype=out.dtype)

    @torch.no_grad()
    def floor() -> None:
        (block.activation(gate) * up) @ out

    found = times({"value-zeroing": lambda: value_zeroing(layer), "floor": floor}, setting.device, runs)
    return {**found, "floor": found["floor"] * (n * (n + 1) / 2) / rows}


# Memory ---------------------------------------------------------------------------------------------------


def device_memory(go: Callable[[], Any], weights: int) -> float:
    """MB that a call holds at its peak beyond the weights."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    go()
    return (torch.cuda.max_memory_allocated() - weights) / 2**20


def process_memory(go: Callable[[], Any]) -> float:
    """The same of this process, which should be a fresh one."""
    torch.randn(64, 64) @ torch.randn(64, 64)  # MKL's own buffers
    return peak(go)


def memory(
    found: dict[str, Callable[[], Any]], setting: Setting, n: int, threads: int, weights: int
) -> Iterator[tuple[str, float]]:
    for name, go in found.items():
        if setting.device != "cpu":
            yield name, device_memory(go, weights)
            continue
        call = [sys.executable, __file__, "--peak", name, "--n", str(n), "--threads", str(threads)]
        yield name, float(subprocess.run(call, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


# The run --------------------------------------------------------------------------------------------------


def say(**found: Any) -> None:
    print(json.dumps(found), flush=True)


def measured(opened: Model, n: int, setting: Setting, options: Any, weights: int) -> list[str]:
    """The table's rows for one length; each number is printed as soon as it is known."""
    found = contestants(opened, n, setting)
    if options.only:
        found = {name: go for name, go in found.items() if name in ("forward", *options.only)}
    seconds = times(found, setting.device, options.runs)
    say(model=setting.name, n=n, what="seconds", **seconds)
    say(model=setting.name, n=n, what="seconds in maps alone", **phases(opened, n, setting))
    peak = dict(memory(found, setting, n, options.threads, weights))
    say(model=setting.name, n=n, what="peak MB", **peak)
    rows = [
        f"| {n} | {name} | {1000 * seconds[name]:.0f} ms | **{seconds[name] / seconds['forward']:.2f} ×** | "
        f"{peak[name]:.0f} | {peak[name] / peak['forward']:.2f} × |"
        for name in found
    ]
    if options.only and "value-zeroing" not in options.only:
        return rows
    zeroed = zeroing(opened, n, setting, options.runs if n < 1024 else 1)
    say(model=setting.name, n=n, what="seconds of one layer", **zeroed)
    for name, said in (("value-zeroing", "value-zeroing"), ("floor", "its floor")):
        whole = zeroed[name] * opened.depth
        over = f"{zeroed[name] / zeroed['floor']:.2f} × the floor" if name != "floor" else ""
        rows.append(f"| {n} | {said} | {whole:.2f} s | **{whole / seconds['forward']:.1f} ×** | {over} | |")
    return rows


def profiled(opened: Model, n: int, setting: Setting) -> None:
    from torch.profiler import ProfilerActivity, profile

    found = contestants(opened, n, setting)
    on_gpu = setting.device != "cpu"
    for name in PROFILED:
        found[name]()
        with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as run:
            found[name]()
            synchronised(setting.device)
        order = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
        print(f"{name}, n = {n}\n{run.key_averages().table(sort_by=order, row_limit=20, max_name_column_width=70)}")


def table(rows: list[str], setting: Setting, runs: int, threads: int) -> str:
    where = f"{threads} threads" if setting.device == "cpu" else torch.cuda.get_device_name()
    name = str(setting.dtype).removeprefix("torch.")
    return "\n".join(
        [
            f"A Llama of {setting.name} in {name}, {where}, torch {torch.__version__}, transformers "
            f"{transformers.__version__}, median of {runs} runs; `followed` is the captured pass alone; Value Zeroing "
            f"and its floor (activation, gate and W_2 for every pair of tokens of which one sees the other): one layer "
            f"× {setting.config['num_hidden_layers']}; integrated gradients with {STEPS} steps. Peak MB: beyond the "
            f"weights.",
            "",
            "| n | method | time | in forward passes | peak MB | beside the forward pass |",
            "|---|---|---|---|---|---|",
            *rows,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="the large model, in bfloat16")
    parser.add_argument("--n", type=int, nargs="+", help="these lengths")
    parser.add_argument("--only", nargs="+", metavar="METHOD", help="these methods")
    parser.add_argument("--layers", type=int, help="fewer layers, to try it")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", wherefrom.WherefromWarning)
    torch.set_num_threads(options.threads if not options.gpu else torch.get_num_threads())
    setting = ON_GPU if options.gpu else ON_CPU
    if options.layers:
        setting = setting._replace(config={**setting.config, "num_hidden_layers": options.layers})
    model = llama(setting)
    weights = torch.cuda.memory_allocated() if options.gpu else 0
    begin = time.perf_counter()
    opened = open_model(model)
    lengths = options.n or setting.lengths
    if options.peak:
        print(process_memory(contestants(opened, lengths[0], setting)[options.peak]))
        return
    say(what="opened", parameters=opened.parameters, seconds=time.perf_counter() - begin, weights_mb=weights / 2**20)
    rows: list[str] = []
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: print(table(rows, setting, options.runs, options.threads), flush=True))
        for n in lengths:
            rows += measured(opened, n, setting, options, weights)
        if options.profile:
            profiled(opened, lengths[0], setting)
    if options.write:
        key, flag = ("decoders-gpu", " --gpu") if options.gpu else ("decoders", "")
        text = table(rows, setting, options.runs, options.threads)
        put(key, f"## Decoders (`python bench/decoders.py{flag} --write`)\n\n{text}")


if __name__ == "__main__":
    main()
