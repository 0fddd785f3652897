"""What it saves to ask for ten methods at once: `compare` against ten calls of `explain`.

    python bench/compare.py [--threads 2]

A randomly initialised BERT-base classifier, one sentence of 64 tokens; the two ways take turns in one process. Writes
its line into bench/README.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from written import put

METHODS = [
    "attention-rollout",
    "attention-residual",
    "norm",
    "norm-residual",
    "norm-residual-ln",
    "globenc",
    "cat",
    "attcat",
    "gradient-x-input",
    "attention-gradients",
]


def seconds(go: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    go()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()

    import torch
    import transformers

    import wherefrom

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(transformers.BertConfig()).eval()
    ids = torch.randint(1000, 20000, (64,)).tolist()
    together: list[float] = []
    apart: list[float] = []
    forward: list[float] = []
    for _ in range(options.runs + 1):
        with torch.no_grad():
            forward.append(seconds(lambda: model(torch.tensor([ids]))))
        together.append(seconds(lambda: wherefrom.compare(ids, model, methods=METHODS, target=0)))
        apart.append(seconds(lambda: [wherefrom.explain(ids, model, method=name, target=0) for name in METHODS]))
    one, ten, plain = (statistics.median(times[1:]) for times in (together, apart, forward))
    put(
        "compare",
        "## One pass for ten methods (`python bench/compare.py`)\n\n"
        f"BERT-base, 64 tokens, {options.threads} threads, median of {options.runs} runs: ten calls of `explain` take "
        f"{ten / plain:.1f} plain forward passes, one `compare` of the same ten methods {one / plain:.1f}: "
        f"{ten / one:.1f} × less.",
    )


if __name__ == "__main__":
    main()
