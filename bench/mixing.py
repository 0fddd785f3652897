"""Time and memory of the context-mixing methods: beside a plain forward pass and beside the direct formula.

    python bench/mixing.py [--quick] [--only 512,8 …] [--threads 2]

A randomly initialised BERT-base; every number is a ratio within one run, so that the machine does not matter much.
Each setting is timed in two processes of its own, ours and the direct forms, the contestants taking turns, and the
fastest run of each counts: the machine is shared, and others' work only slows. Peak memory is that of a fresh process
which does nothing else, beyond what it held once the model was loaded. With one thread, CPU time is taken instead
of wall time: other work on the machine then counts for little. Writes its table into bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from memory import peak

HERE = Path(__file__).resolve().parent
START, END = "<!-- mixing: start -->", "<!-- mixing: end -->"
SETTINGS = [(n, batch) for n in (128, 32, 512) for batch in (1, 8)]  # the most telling first
QUICK = [(32, 1), (128, 1)]
METHODS = ("norm maps", "alti", "value-zeroing")
LAYERS = 12
TOKENS = 4  # of a sentence whose Value Zeroing is timed directly; the rest takes as long
RUNS, ENOUGH = 15, 6.0  # of each contestant, unless its runs have taken so many seconds
LONG = 256  # tokens from which one sentence of the batch stands for all, in what takes minutes
CAPTION = f"""BERT-base of random weights; fastest runs, ratios within one. Norm maps: N, N_FixedRes, N_Res, N_ResLN,
N_Enc and all mixing ratios. Norm maps and ALTI include the forward pass. Value Zeroing and the direct forms: one
layer timed, × {LAYERS}; from n = {LONG} on one sentence of the batch, multiplied, and its memory is that of one
sentence. Value Zeroing's loop: {TOKENS} tokens of one layer timed, multiplied. Its floor: the activation and W_2 on
n² vectors, nothing else. Memory: MB beyond the loaded model; of the direct forms, in one layer."""


class Contestant(NamedTuple):
    """Something to be measured, of which `factor` make the whole, `with_forward` beside a forward pass."""

    go: Callable[[], Any]
    factor: float = 1
    with_forward: bool = False


def contestants(n: int, batch: int) -> dict[str, Contestant]:
    """What is measured, by name; all but Value Zeroing, of which a part is enough, include a forward pass."""
    import direct
    import torch
    import transformers

    from wherefrom.method import lookup, norms
    from wherefrom.method.value_zeroing import value_zeroing
    from wherefrom.model import LayerTrace, Reader, collate, open_model, stream

    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    model = transformers.BertModel(transformers.BertConfig(num_hidden_layers=LAYERS), add_pooling_layer=False).eval()
    opened = open_model(model)
    ids = torch.randint(1000, 20000, (batch, n)).tolist()
    inputs = collate(Reader(None, opened.vocabulary_size, 0, 512).read(ids)[0], 0)

    shown = inputs if n < LONG else collate(Reader(None, opened.vocabulary_size, 0, 512).read(ids[:1])[0], 0)
    share = LAYERS * batch / len(shown.ids)  # of what is shown, in the whole

    @cache
    def states() -> Any:
        return model(shown.ids, attention_mask=shown.attention_mask, output_hidden_states=True).hidden_states

    def streamed(of: Callable[[LayerTrace], Any]) -> Callable[[], Any]:
        def go() -> list[Any]:
            kept: list[Any] = []
            stream(opened, inputs, lambda layer: kept.append(of(layer)))
            return kept

        return go

    def norm_maps(layer: LayerTrace) -> list[Any]:
        maps = (norms.norm, norms.norm_fixed_residual, norms.norm_residual, norms.norm_residual_ln, norms.globenc)
        return [each(layer) for each in (*maps, norms.mixing_ratios)]

    @cache
    def first_layer() -> LayerTrace:
        found: list[LayerTrace] = []
        stream(opened, shown, lambda layer: found.append(layer) if layer.index == 0 else None)
        return found[0]

    def floor() -> None:
        block = opened.blocks[0]
        hidden = torch.randn(512, model.config.intermediate_size)
        for _ in range(8):
            block.activation(hidden) @ block.ffn_out.weight

    return {
        "forward": Contestant(lambda: model(inputs.ids, attention_mask=inputs.attention_mask)),
        "norm maps": Contestant(streamed(norm_maps)),
        "alti": Contestant(streamed(lambda layer: lookup("alti")[0].run(layer))),
        "norm maps, direct": Contestant(lambda: direct.norm_maps(first_layer()), share, True),
        "alti, direct": Contestant(lambda: direct.alti(first_layer()), share, True),
        "value-zeroing": Contestant(lambda: value_zeroing(first_layer()), share),
        "value-zeroing, floor": Contestant(floor, batch * LAYERS * n * n / (8 * 512)),
        "value-zeroing, direct": Contestant(
            lambda: direct.value_zeroing(model.encoder.layer[0], *states()[:2], range(TOKENS)), share * n / TOKENS
        ),
    }


def time_all(n: int, batch: int, threads: int, direct: bool) -> dict[str, float]:
    """Seconds of each contestant's fastest run, taking turns; the direct forms, which need gigabytes, by themselves."""
    clock = time.process_time if threads == 1 else time.perf_counter
    every = contestants(n, batch)
    found = {name: each for name, each in every.items() if name == "forward" or name.endswith("direct") == direct}
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(RUNS + 1):
        for name, (go, factor, _) in found.items():
            if sum(seconds[name]) > ENOUGH * factor:
                continue
            begin = clock()
            go()
            elapsed = clock() - begin
            if turn or elapsed > ENOUGH:  # the first is a warm-up, which a long run does not need
                seconds[name].append(elapsed * factor)
    fastest = {name: min(each) for name, each in seconds.items()}
    return {name: each + fastest["forward"] * found[name].with_forward for name, each in fastest.items()}


def memory_of(n: int, batch: int, name: str) -> float:
    """Peak resident MB of one run beyond the loaded model."""
    import torch

    found = contestants(n, batch)
    torch.randn(64, 64) @ torch.randn(64, 64)  # MKL's own buffers
    return peak(found[name].go)


def worker(arguments: dict[str, Any]) -> Any:
    """One measurement in a process of its own."""
    call = [sys.executable, str(Path(__file__).resolve()), "--worker", json.dumps(arguments)]
    lines = subprocess.run(call, check=True, capture_output=True, text=True).stdout.splitlines()
    return json.loads(lines[-1])


def measure(settings: list[tuple[int, int]], threads: int) -> Iterator[tuple[tuple[int, int], list[str]]]:
    """The table's rows of one setting after the other."""
    for n, batch in settings:
        ours, theirs = (worker({"n": n, "batch": batch, "threads": threads, "direct": d}) for d in (False, True))
        forward = ours["forward"]
        # Each beside a forward pass of its own process.
        seconds = {name: each * forward / theirs["forward"] for name, each in theirs.items()} | ours
        names = ("forward", *METHODS, *(f"{method}, direct" for method in METHODS))
        asked = [{"n": n, "batch": batch, "threads": threads, "memory": name} for name in names]
        with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 4)) as pool:  # memory does not mind company
            memory = dict(zip(names, pool.map(worker, asked), strict=True))
        rows = [f"| {n} | {batch} | plain forward | {forward:.2f} s | 1 | | | {memory['forward']:.0f} | |"]
        rows += [_row(n, batch, name, seconds, memory) for name in METHODS]
        floor = seconds["value-zeroing, floor"]
        over = f"{seconds['value-zeroing'] / floor:.2f} × the floor"
        rows.append(f"| {n} | {batch} | its floor | {floor:.2f} s | {floor / forward:.2f} × | | {over} | | |")
        yield (n, batch), rows


def _row(n: int, batch: int, name: str, seconds: dict[str, float], memory: dict[str, float]) -> str:
    forward, ours, theirs = seconds["forward"], seconds[name], seconds[f"{name}, direct"]
    return (
        f"| {n} | {batch} | {name} | {ours:.2f} s | **{ours / forward:.2f} ×** | {theirs / forward:.0f} × | "
        f"{theirs / ours:.1f} × | {memory[name]:.0f} | {memory[f'{name}, direct']:.0f} |"
    )


def written() -> dict[tuple[int, int], list[str]]:
    """The rows that stand in bench/README.md, by setting."""
    page = HERE / "README.md"
    text = page.read_text() if page.exists() else ""
    rows: dict[tuple[int, int], list[str]] = {}
    for line in text.partition(START)[2].partition(END)[0].splitlines():
        cells = line.split(" | ")
        if line.startswith("| ") and cells[0][2:].isdigit():
            rows.setdefault((int(cells[0][2:]), int(cells[1])), []).append(line)
    return rows


def write(rows: dict[tuple[int, int], list[str]], threads: int, quick: bool) -> None:
    import torch

    table = [
        START,
        f"One run of `python bench/mixing.py{' --quick' if quick else ''} --threads {threads}`"
        f"{' (one thread: CPU time)' if threads == 1 else ''}, torch {torch.__version__}. {CAPTION}",
        "",
        "| n | batch | method | time | against forward | direct, against forward | faster than direct | peak MB | "
        "direct, peak MB |",
        "|---|---|---|---|---|---|---|---|---|",
        *(row for setting in sorted(rows) for row in rows[setting]),
        END,
    ]
    page = HERE / "README.md"
    text = page.read_text() if page.exists() else "# Measurements\n"
    if START not in text:
        text += f"\n## Context mixing\n\n{START}\n{END}\n"
    before, rest = text.split(START)
    page.write_text(before + "\n".join(table) + rest.split(END)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="n = 32 and 128, batch 1")
    parser.add_argument("--only", nargs="+", metavar="N,BATCH", help="these settings; the table's other rows stay")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        import torch

        arguments = json.loads(options.worker)
        torch.set_num_threads(arguments["threads"])
        n, batch = arguments["n"], arguments["batch"]
        name = arguments.get("memory")
        print(
            json.dumps(
                memory_of(n, batch, name) if name else time_all(n, batch, arguments["threads"], arguments["direct"])
            )
        )
        return
    rows = written() if options.only else {}
    settings = [tuple(map(int, each.split(","))) for each in options.only or ()] or (
        QUICK if options.quick else SETTINGS
    )
    for setting, found in measure(settings, options.threads):
        rows[setting] = found
        write(rows, options.threads, options.quick)  # at once: the large settings take minutes
        print(*found, sep="\n", flush=True)


if __name__ == "__main__":
    main()
