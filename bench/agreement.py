"""How often a masked language model prefers the target to the foil: on the grammar, or on any data with a mask.

python bench/agreement.py
python bench/agreement.py blimp linzen_colorless --folder ../shared/data
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from wherefrom.data import MASK, Example, read
from wherefrom.data.grammar import PARADIGMS
from wherefrom.training import prompt
from wherefrom.training.checkpoints import locate

BATCH = 128
GRAMMAR = [f"grammar:{name}" for name in [*PARADIGMS, "distractor=1", "distractor=2", "distractor=3"]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="*", default=GRAMMAR)
    parser.add_argument("--model", default="wherefrom/mlm")
    parser.add_argument("--folder")
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    place = locate(options.model)
    tokenizer = AutoTokenizer.from_pretrained(place)
    model = AutoModelForMaskedLM.from_pretrained(place, dtype=torch.float32).eval()
    print("| data | group | asked | left out | accuracy | singular | plural |")
    print("|---|---|---|---|---|---|---|")
    for name in options.data:
        data = read(name, limit=options.limit, folder=options.folder)
        count: Counter[tuple[str, str]] = Counter()
        for example, right in answers(iter(data), model, tokenizer):
            group = example.group or ""
            count[group, "left out" if right is None else "asked"] += 1
            if right is not None:
                count[group, f"asked {example.label}"] += 1
                count[group, "right"] += right
                count[group, f"right {example.label}"] += right
        for group in dict.fromkeys(group for group, _ in count):
            share = [
                f"{count[group, f'right{of}'] / max(1, count[group, f'asked{of}']):.3f}"
                for of in ("", " singular", " plural")
            ]
            print(f"| {name} | {group} | {count[group, 'asked']} | {count[group, 'left out']} | {' | '.join(share)} |")


def answers(examples: Iterator[Example], model: Any, tokenizer: Any) -> Iterator[tuple[Example, bool | None]]:
    """Whether the target has the higher logit; None where a word is several pieces or the text too long."""
    pad = prompt.Pad(tokenizer)
    longest = model.config.max_position_embeddings
    while batch := list(islice(examples, BATCH)):
        prompts = [prompt.Prompt(0, *str(e.text).split(MASK), str(e.target), str(e.foil)) for e in batch]
        encoded = prompt.encode(prompts, tokenizer)
        fits = [len(each["input_ids"]) <= longest and None not in each["choices"] for each in encoded]
        right: list[bool] = []
        if any(fits):
            with torch.inference_mode():
                logits = prompt.compare(model, pad([each for each, fit in zip(encoded, fits, strict=True) if fit]))
            right = (logits[:, 0] > logits[:, 1]).tolist()
        left = iter(right)
        yield from ((example, next(left) if fit else None) for example, fit in zip(batch, fits, strict=True))


if __name__ == "__main__":
    main()
