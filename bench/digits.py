"""How many digits a method keeps in float32 and bfloat16: its scores beside those of the same model in float64.

    python bench/digits.py sst2.parquet [--model wherefrom/sentiment] [--methods attn-lrp,cp-lrp] [--texts 50]

The first texts of the file's column `sentence`, target 1. The largest gap of a text's scores as a share of its largest
score, median and maximum over the texts; how many texts have their tokens in the same order.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

import wherefrom


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--model", default="wherefrom/sentiment")
    parser.add_argument("--methods", default="attn-lrp,cp-lrp")
    parser.add_argument("--texts", type=int, default=50)
    options = parser.parse_args()
    texts = pd.read_parquet(options.data)["sentence"].tolist()[: options.texts]
    models = {dtype: wherefrom.open_model(options.model, dtype=dtype) for dtype in ("float64", "float32", "bfloat16")}
    print("| method | dtype | median gap | largest gap | same order |\n|---|---|---|---|---|")
    for method in options.methods.split(","):
        exact, *others = (
            [wherefrom.explain(text, model, method=method, target=1).scores for text in texts]
            for model in models.values()
        )
        for dtype, found in zip([*models][1:], others, strict=True):
            pairs = list(zip(exact, found, strict=True))
            gaps = [float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs]
            same = sum(bool((np.argsort(a) == np.argsort(b)).all()) for a, b in pairs)
            print(
                f"| {method} | {dtype} | {np.median(gaps):.1e} | {max(gaps):.1e} | {same} of {len(texts)} |", flush=True
            )


if __name__ == "__main__":
    main()
