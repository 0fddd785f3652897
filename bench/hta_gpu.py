"""HTA × input of 256 sentences through a BERT-base on an accelerator (the GlobEnc paper: two hours on a 3070).

    PYTHONPATH=src python3 bench/hta_gpu.py [--sentences 256] [--device cuda] [--tf32]

Random weights and ids, with lengths as in SST-2's validation set (25 tokens in the mean, at most 60): neither
changes the arithmetic. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import time

import torch
import transformers

import wherefrom


def lengths(count: int) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    drawn = 25 + 11 * torch.randn(count, generator=generator)
    return [int(n) for n in drawn.clamp(5, 60)]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sentences", type=int, default=256)
    arguments.add_argument("--layers", type=int, default=12)
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--tf32", action="store_true", help="allow reduced precision in products")
    chosen = arguments.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = chosen.tf32
    torch.manual_seed(0)
    config = transformers.BertConfig(num_hidden_layers=chosen.layers, num_labels=2)
    model = transformers.BertForSequenceClassification(config).eval().to(chosen.device)
    sentences = [torch.randint(1000, 20_000, (n,)).tolist() for n in lengths(chosen.sentences)]
    wherefrom.explain(sentences[:2], model, method="hta-x-input")  # to warm up
    if chosen.device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    found = wherefrom.explain(sentences, model, method="hta-x-input", batch_size=32)
    seconds = time.perf_counter() - begin
    tokens = sum(map(len, sentences))
    print(f"{len(found)} sentences, {tokens} tokens, {chosen.layers} layers on {chosen.device}: {seconds:.1f} s")
    if chosen.device.startswith("cuda"):
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")


if __name__ == "__main__":
    main()
