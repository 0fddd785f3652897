"""HTA × input of one BERT-base block against one backward pass per output component, as a ratio in one run.

    python bench/hta.py [--write]

A few backward passes are timed and extrapolated to all n·d of them. CPU seconds, which with one thread are those of
an idle machine whatever else runs; with --threads 2 --wall, the clock's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import transformers
from written import put

import wherefrom
from wherefrom.method.hta import hta_x_input

LENGTHS = (16, 32, 64)
BACKWARD = 24  # backward passes that are timed
HEADING = """## HTA × input (`python bench/hta.py --write`)

One block of a randomly initialised BERT-base, against one backward pass per output component (24 timed, the fastest
taken
for all n·d); CPU seconds of one thread. The ratio grows with n, as n² d³ against n d³ should.

"""


def fastest(run: Callable[[], object], times: int, clock: Callable[[], float]) -> float:
    seconds = []
    for _ in range(times):
        begin = clock()
        run()
        seconds.append(clock() - begin)
    return min(seconds)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--write", action="store_true", help="put the table into bench/README.md")
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--wall", action="store_true", help="seconds of the clock; needs an idle machine")
    chosen = arguments.parse_args()
    torch.set_num_threads(chosen.threads)
    clock = time.perf_counter if chosen.wall else time.process_time
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(num_hidden_layers=1)).eval()
    lines = [
        f"| n | backward passes, {chosen.threads} thread{'s' * (chosen.threads > 1)} | closed form | ratio |",
        "|---|---|---|---|",
    ]
    for n in LENGTHS:
        layer = wherefrom.capture(torch.randint(1000, 20_000, (n,)).tolist(), model, grad=True).layers[0]
        x, output = layer.raw["x"], layer.raw["output"]

        def back(output: torch.Tensor = output, x: torch.Tensor = x) -> None:
            torch.autograd.grad(output[0, 1, 2], x, retain_graph=True)

        slow = fastest(back, BACKWARD, clock) * output[0].numel()
        fast = fastest(lambda layer=layer: hta_x_input(layer), 2, clock)
        lines.append(f"| {n} | {slow:.0f} s | {fast:.2f} s | {slow / fast:.0f} × |")
        print(lines[-1], flush=True)
    if chosen.write:
        put("hta", HEADING + "\n".join(lines))


if __name__ == "__main__":
    main()
