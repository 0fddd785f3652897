"""Methods on a GPU beside a forward pass of the same batch: BERT-base's shape, random weights, nothing downloaded.

    PYTHONPATH=src python3 bench/gpu.py [--runs 3] [--quick]

Each call is `wherefrom.explain` of a whole batch, tokens in and explanations out, maps kept where a method has maps. In
each setting the contestants take turns after a first round, in which kernels are compiled. Peak memory is that of
torch's allocator beyond the weights. The last column is the share of the device's peak that is reached by what nobody
can do without (`arithmetic`): its time at the rates of large matrix products, measured first, over the time taken.
Writes its table into bench/README.md.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers
from decoders import timed
from written import put

import wherefrom


class Setting(NamedTuple):
    dtype: torch.dtype
    batch: int
    n: int
    methods: tuple[str, ...]
    batches: int = 1

    @property
    def texts(self) -> int:
        return self.batch * self.batches


MAPS = ("attention-rollout", "globenc", "alti")
ZEROING = ("value-zeroing", "value-zeroing(precision=split)", "value-zeroing(precision=fast)")
LAYERS, HEADS, WIDTH, UNITS = 12, 12, 768, 3072  # of BERT-base
SIDE = 8192  # of the square matrices whose product is the peak
BAR = 40  # letters from the floor to the roof
SETTINGS = [
    Setting(torch.float32, 64, 128, (*MAPS, *ZEROING, "attcat", "TransAtt")),
    Setting(torch.float32, 64, 128, MAPS[:1], batches=8),  # a pass runs while the results of the last are read
    Setting(torch.float32, 32, 512, (*MAPS, "TransAtt")),
    Setting(torch.bfloat16, 64, 128, MAPS),
    Setting(torch.float32, 1, 32, MAPS),
]


def contestants(model: Any, setting: Setting) -> dict[str, Callable[[], Any]]:
    inputs = torch.randint(1000, 20000, (setting.texts, setting.n), device="cuda")
    ids, opened = inputs.tolist(), wherefrom.open_model(model)

    @torch.no_grad()
    def forward() -> None:
        for some in inputs.split(setting.batch):
            model(some)

    def explained(method: str) -> Callable[[], Any]:
        target = (
            {} if method in (*MAPS, *ZEROING) else {"target": 0}
        )  # what a representation is made of is the same for all
        return lambda: wherefrom.explain(ids, opened, method=method, batch_size=setting.batch, **target)

    return {"forward": forward, **{name: explained(name) for name in setting.methods}}


def arithmetic(method: str, setting: Setting) -> dict[torch.dtype, float]:
    """Multiplications and additions of a method by their precision, its passes included."""
    tokens, d, h = setting.texts * setting.n, WIDTH, HEADS
    pairs = tokens * setting.n
    linear, mixing = tokens * (8 * d * d + 4 * d * UNITS), 4 * pairs * d
    joining = 2 * pairs * setting.n  # a product of two maps, in float64
    carried = 2 * tokens * d * d  # f = v W_C
    if method in ZEROING:  # all but W_2 on n² vectors is little
        products = 2 * pairs * UNITS * d * (1, 3, 1)[ZEROING.index(method)]
        own = {setting.dtype: LAYERS * (linear + mixing)}
        kind = setting.dtype if method == ZEROING[0] else torch.bfloat16
        return {**own, kind: own.get(kind, 0) + LAYERS * products}
    own, double = {
        "forward": (linear + mixing, 0),
        "attention-rollout": (linear + mixing, joining),
        "globenc": (linear + mixing + carried + 2 * tokens * h * h * d + pairs * h * (h + 1), joining),
        "alti": (linear + mixing + carried + 2 * pairs * h * d + 4 * pairs * d, joining),
        "attcat": (2 * linear + 3 * mixing, 0),  # no gradients of weights
        "TransAtt": (2 * linear + 3 * mixing, 4 * linear + 3 * mixing + joining),  # rules: method/lrp_rules.py
    }[method]
    return {setting.dtype: LAYERS * own, torch.float64: LAYERS * double}


def peak(dtype: torch.dtype) -> float:
    """Multiplications and additions a second in a large product of random matrices."""
    a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=dtype) for _ in range(2))
    return 2 * SIDE**3 / min(timed(lambda: a @ b, "cuda") for _ in range(4))


class Row(NamedTuple):
    """A row of the table, and what the picture shows of it."""

    line: str
    name: str
    share: float  # of the device's peak

    @property
    def bar(self) -> str:
        """How far it reaches below the roof."""
        full = round(BAR * self.share)
        return f"{self.name:<58}{'█' * full}{'·' * (BAR - full)} {self.share:4.0%}"


def rows(setting: Setting, runs: int, rates: dict[torch.dtype, float]) -> list[Row]:
    torch.manual_seed(0)
    gc.collect()  # the model of the setting before
    with torch.device("cuda"):  # a hundred million random numbers take a processor seconds
        model = transformers.BertForSequenceClassification(transformers.BertConfig()).eval().to(setting.dtype)
    weights, found = torch.cuda.memory_allocated(), contestants(model, setting)
    seconds: dict[str, list[float]] = {name: [] for name in found}
    peaks: dict[str, float] = {}
    for _ in range(runs + 1):
        for name, go in found.items():
            gc.collect()  # what a call leaves behind is not another's
            torch.cuda.reset_peak_memory_stats()
            seconds[name].append(timed(go, "cuda"))
            peaks[name] = (torch.cuda.max_memory_allocated() - weights) / 2**30
    forward = statistics.median(seconds["forward"][1:])
    kind = str(setting.dtype).removeprefix("torch.")
    found_rows = []
    for name, each in seconds.items():
        time = statistics.median(each[1:])
        floor = sum(count / rates[dtype] for dtype, count in arithmetic(name, setting).items())
        size = f"{setting.texts} × {setting.n}"
        line = (
            f"| {kind} | {size} | {name} | {1000 * time:.1f} ms | **{time / forward:.2f} ×** | "
            f"{peaks[name]:.2f} GB | {each[0]:.1f} s | {floor / time:.0%} |"
        )
        found_rows.append(Row(line, f"{kind:<9}{size:<11}{name}", floor / time))
        print(line, flush=True)
    return found_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="the first setting, and nothing written")
    options = parser.parse_args()
    warnings.simplefilter("ignore", wherefrom.WherefromWarning)
    rates = {dtype: peak(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float64)}
    said = ", ".join(f"{str(dtype).removeprefix('torch.')} {rate / 1e12:.0f}" for dtype, rate in rates.items())
    lines = [
        "## BERT-base on a GPU (`PYTHONPATH=src python3 bench/gpu.py`)",
        "",
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {transformers.__version__}, median "
        f"of {options.runs} runs after a first, in which kernels are compiled. The device's peak: {said} TFLOP/s (in a "
        f"product of matrices of {SIDE} × {SIDE}).",
        "",
        "| dtype | texts × tokens | method | time | in forward passes | peak memory beyond the weights | first run | "
        "of the device's peak |",
        "|---" * 8 + "|",
    ]
    every = [row for setting in SETTINGS[: 1 if options.quick else None] for row in rows(setting, options.runs, rates)]
    lines += [row.line for row in every]
    lines += [
        "",
        "The last column as a picture, the roof at its right:",
        "",
        "```text",
        *(row.bar for row in every),
        "```",
    ]
    if not options.quick:
        put("gpu", "\n".join(lines))


if __name__ == "__main__":
    main()
