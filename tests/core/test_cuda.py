"""The same answers on a GPU, where there is one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.model.at_once import at_once

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
TEXTS = ["the film is deep and meaningful", "a cat"]


@pytest.mark.parametrize("variant", ["bert", "albert", "gpt2", "gpt2-encoder"])
def test_the_gpu_gives_what_the_cpu_gives(variant: str) -> None:
    model, tokenizer = tiny.model(variant, dtype=torch.float64), tiny.tokenizer()
    for method in (
        "attention-rollout",
        "globenc",
        "alti",
        "value-zeroing",
        "hta-x-input",
        "attcat",
        "ablation",
        "TransAtt",
        "decompx",
        "decompx(bias=none)",
        "decompx-map",
        "norm-ffn",
    ):
        here = wherefrom.explain(TEXTS, model.cpu(), tokenizer, method=method)
        there = wherefrom.explain(TEXTS, model.cuda(), tokenizer, method=method)
        for a, b in zip(here, there, strict=True):
            assert np.abs(a.scores - b.scores).max() <= 1e-8 * max(1.0, np.abs(a.scores).max())


@pytest.mark.parametrize(
    ("variant", "dtype"), [("llama", torch.float32), ("bert", torch.float32), ("llama", torch.bfloat16)]
)
def test_the_kernels_of_the_gpu_give_what_the_cpu_gives(variant: str, dtype: torch.dtype) -> None:
    """Single layers: what a layer's map is made of is the same on both sides."""
    model = tiny.model(variant, "encoder", dtype=dtype)
    ids = [tiny.ids(30), tiny.ids(17, 1)]
    for method in ("alti", "norm-residual", "globenc", "value-zeroing"):
        here = wherefrom.explain(ids, model.cpu(), method=method, aggregate=None)
        opened, plain = (wherefrom.open_model(model.cuda(), compile=each) for each in ("always", "never"))
        there = wherefrom.explain(ids, opened, method=method, aggregate=None)
        rows = wherefrom.explain(ids, opened, method=method, aggregate=None, keep="row")
        steps = wherefrom.explain(ids, plain, method=method, aggregate=None)
        for a, b, c, d in zip(here, there, rows, steps, strict=True):
            limit = (1e-4 if dtype == torch.float32 else 5e-2) * np.abs(a.maps).max()
            assert np.abs(a.maps - b.maps).max() <= limit, method
            assert np.abs(a.maps - d.maps).max() <= limit, method
            assert np.abs(b.readout_rows - c.layer_scores).max() <= limit, method


def test_the_kernels_follow_a_batch_with_padding_and_a_hidden_first_token() -> None:
    """A row that sees nothing gives zeros, and no kernel reads beyond a text."""
    tried = tiny.model("llama", "encoder", dtype=torch.bfloat16, head_dim=16, max_position_embeddings=200).cuda()
    model = wherefrom.open_model(tried, compile="always")
    long, short = tiny.ids(140), tiny.ids(17, 1)
    texts = [{"input_ids": long, "attention_mask": [0, *[1] * 139]}, {"input_ids": short, "attention_mask": [1] * 17}]
    both = {name: [texts[0][name], texts[1][name] + [0] * 123] for name in texts[0]}
    for method in ("alti", "globenc", "attention-rollout"):
        together = wherefrom.explain(both, model, method=method)
        for each, found in zip(texts, together, strict=True):
            alone = wherefrom.explain(each, model, method=method)
            assert np.isfinite(found.scores).all()
            assert np.abs(found.scores - alone.scores).max() <= 2e-2 * np.abs(alone.scores).max()


@pytest.mark.parametrize(("variant", "wide"), [("bert", {"hidden_size": 32}), ("llama", {"head_dim": 16})])
def test_attention_of_float32_in_one_kernel(
    variant: str, wide: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ran = tiny.model(variant, "encoder", num_attention_heads=2, **wide), []

    def seen(*given: Any, **more: Any) -> Any:
        ran.append(found := at_once(*given, **more))
        return found

    monkeypatch.setattr(import_module("wherefrom.model.capture"), "at_once", seen)
    here = wherefrom.capture([tiny.ids(30), tiny.ids(17, 1)], wherefrom.open_model(model, compile="always"))
    assert all(each is None for each in ran)
    ran.clear()
    there = wherefrom.capture([tiny.ids(30), tiny.ids(17, 1)], wherefrom.open_model(model.cuda(), compile="always"))
    assert ran
    assert all(each is not None for each in ran)
    for a, b in zip(here.layers, there.layers, strict=True):
        for row, n in enumerate((30, 17)):
            assert (a.attention - b.attention.cpu())[row, :, :n].abs().max() <= 1e-5
            assert (a.output - b.output.cpu())[row, :n].abs().max() <= 1e-4 * a.output.abs().max()


def test_a_run_of_many_shards_gives_what_the_cpu_gives(tmp_path: Path) -> None:
    """Erasure of one shard goes on beside the passes of the next."""
    words = ["the", "film", "is", "not", "very", "deep", "and", "meaningful", "but", "good", "!"]
    texts = [" ".join(words[i % 5 :][: 3 + i % 6]) for i in range(60)]
    model, found = tiny.model("bert", "classification", dtype=torch.float64), {}
    for device in ("cpu", "cuda"):
        options = {"out": tmp_path / device, "shard": 7, "batch_size": 3, "progress": False}
        run = wherefrom.evaluate(
            texts, model.to(device), tiny.tokenizer(), ["attention-rollout", "attcat"], ["aopc", "log-odds"], **options
        )
        records = run.table("records").sort_by([(name, "ascending") for name in ("example", "method", "metric")])
        found[device] = np.array(records["value"].to_pylist())
    assert len(found["cpu"]) == 4 * len(texts)
    assert np.abs(found["cpu"] - found["cuda"]).max() <= 1e-9
