"""Kernels in Triton against their formulas: on a GPU, or slowly anywhere with Triton and TRITON_INTERPRET=1."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import tiny
import wherefrom
from wherefrom.method.normalise import to_one_or_self
from wherefrom.method.value_zeroing import by_sentence
from wherefrom.method.value_zeroing_device import moved as at_once
from wherefrom.method.value_zeroing_device import suits

if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("neither a CUDA device nor Triton's interpreter (TRITON_INTERPRET=1)", allow_module_level=True)
lengths = pytest.importorskip("wherefrom.method.length_kernel", reason="Triton is not installed")
nearness = pytest.importorskip("wherefrom.method.nearness_kernel", reason="Triton is not installed")
rescaling = pytest.importorskip("wherefrom.method.rescaling_kernel", reason="Triton is not installed")
zeroing = pytest.importorskip("wherefrom.method.value_zeroing_kernel", reason="Triton is not installed")
attention = pytest.importorskip("wherefrom.model.attention_kernel", reason="Triton is not installed")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, HEADS, N, WIDTH = 2, 5, 45, 40
CUTS = (slice(0, 20), slice(20, N))


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).to(DEVICE)


def given(causal: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """α, f, and the T_ij that they make."""
    alpha = drawn(BATCH, HEADS, N, N).abs() * 0.05
    alpha = alpha.tril() if causal else alpha
    f = drawn(BATCH, N, HEADS, WIDTH)
    return alpha, f, torch.einsum("bhij,bjhd->bijd", alpha.double(), f.double())


@pytest.mark.parametrize("causal", [True, False])
def test_lengths_and_own_parts(causal: bool) -> None:
    alpha, f, t = given(causal)
    found, own = torch.zeros(BATCH, N, N, device=DEVICE), torch.full((BATCH, N, WIDTH), torch.nan, device=DEVICE)
    for some in CUTS:
        first = some.start if causal else 0
        part, weights = f[:, some].flatten(0, 1), alpha[:, :, first:, some]
        lengths.lengths_into(found, weights, part @ part.mT, some.start, first)
        lengths.own_into(own, weights, part, some.start, first)
    assert (found - t.norm(dim=-1)).abs().max() <= 1e-5
    assert (own - t.diagonal(dim1=1, dim2=2).mT).abs().max() <= 1e-5


@pytest.mark.parametrize("causal", [True, False])
def test_nearness_and_shares(causal: bool) -> None:
    alpha, f, t = given(causal)
    y, scale = drawn(BATCH, N, WIDTH), drawn(BATCH, N, 1).abs() + 0.5
    itself, mask = 0.1 * drawn(BATCH, N, WIDTH), torch.ones(BATCH, N, dtype=torch.bool, device=DEVICE)
    mask[1, -5:] = False
    y[0, 3], itself[0, 3] = 0, 1  # nothing comes near it
    found = torch.full((BATCH, N, N), torch.nan, device=DEVICE)  # what nobody writes nobody reads
    for some in CUTS:
        first = some.start if causal else 0
        part = f[:, some].flatten(0, 1)
        nearness.add_up(alpha[:, :, first:, some], part, y * scale, found, some.start, first, causal)
    empty = nearness.share_out(found, y, itself, scale, mask, causal)
    goal = y.double()
    near = goal.abs().sum(-1, keepdim=True) - (goal.unsqueeze(2) - t / scale.unsqueeze(-1)).abs().sum(-1)
    near.diagonal(dim1=1, dim2=2).copy_(goal.abs().sum(-1) - (goal - itself).abs().sum(-1))
    near = near.clamp(min=0) * mask.unsqueeze(-1)
    near = near.tril() if causal else near
    total = near.sum(-1, keepdim=True)
    alone = torch.eye(N, device=DEVICE) * mask.unsqueeze(-1)
    expected = torch.where(total == 0, alone, near / torch.where(total == 0, 1, total))
    assert torch.equal(empty, (total[..., 0] == 0) & mask)
    assert empty[0, 3]
    assert (found - expected).abs().max() <= 1e-4


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("dtype", "weight", "mixed"), [(torch.float16, 2**-10, 5e-3), (torch.float32, 3e-6, 2e-5)])
def test_attention_and_its_weights(causal: bool, dtype: torch.dtype, weight: float, mixed: float) -> None:
    heads, groups, n, width = 4, 2, 150, 16
    q, k, v = (drawn(BATCH, n, count, width).to(dtype).transpose(1, 2) for count in (heads, groups, groups))
    mask = torch.zeros(BATCH, 1, n, n, dtype=q.dtype, device=DEVICE)
    least = torch.finfo(q.dtype).min
    if causal:
        mask.masked_fill_(torch.ones(n, n, device=DEVICE).triu(1).bool(), least)
    mask[1, :, :, -5:] = least
    out, weights = attention.attend(q, k, v, mask, 0.3, causal)
    keys, values = (each.repeat_interleave(heads // groups, 1).double() for each in (k, v))
    expected = (0.3 * q.double() @ keys.mT + mask.double()).softmax(-1)
    assert (weights - expected).abs().max() <= weight
    assert (out - (expected @ values).transpose(1, 2)).abs().max() <= mixed


@pytest.mark.parametrize(
    ("variant", "metric", "budget"), [("bert", "cosine", 10**9), ("gpt2", "euclidean", 10**9), ("llama", "cosine", 1)]
)
def test_value_zeroing_of_a_batch_is_that_of_its_sentences(variant: str, metric: str, budget: int) -> None:
    """A padded batch in which one sentence has a third of the other's tokens: its rows stand between the other's."""
    model = tiny.model(variant, "encoder", dtype=torch.float32).to(DEVICE)
    layer = wherefrom.capture([tiny.ids(5), tiny.ids(2, 1), tiny.ids(4, 2)], model).layers[1]
    assert suits(layer, metric, False)
    expected = to_one_or_self(by_sentence(layer, metric), layer, "value-zeroing")
    for precision, digits in (("exact", 1e-5), ("split", 2e-5), ("fast", 2e-2)):
        found = to_one_or_self(at_once(layer, metric, precision, budget, zeroing), layer, "value-zeroing")
        assert (found - expected).abs().max() <= digits * expected.abs().max()


def test_value_zeroing_keeps_its_digits_where_one_number_outweighs_all_others() -> None:
    """γ of 30, as some models have: what changes points nearly along what is there, and its rest is what counts."""
    model = tiny.model("bert", "encoder", dtype=torch.float64).to(DEVICE)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.weight.data[3] = 30
    ids = [tiny.ids(5), tiny.ids(3, 1)]
    exact = by_sentence(wherefrom.capture(ids, model).layers[1], "cosine")
    layer = wherefrom.capture(ids, model.float()).layers[1]
    found = at_once(layer, "cosine", "exact", 10**9, zeroing)
    assert ((found - exact).abs() <= 1e-4 * exact + 1e-9).all()
    rows = to_one_or_self(exact, layer, "value-zeroing")
    for precision, digits in (
        ("split", 2e-3),
        ("fast", 1e-2),
    ):  # rounding w or r to bfloat16 left rows without a number
        shares = to_one_or_self(at_once(layer, "cosine", precision, 10**9, zeroing), layer, "value-zeroing")
        assert (shares - rows).abs().max() <= digits


FAR = 1_200_000_000  # between two heads: three of them lie further apart than 2^31 numbers


def far_apart(folder: Path, values: torch.Tensor, dim: int) -> torch.Tensor:
    """The values with a stride of `FAR` along one axis; on a CPU in a sparse file, of which little is ever written."""
    strides = [FAR if axis == dim else stride for axis, stride in enumerate(values.stride())]
    size = 1 + sum((count - 1) * stride for count, stride in zip(values.shape, strides, strict=True))
    if DEVICE == "cuda":
        if torch.cuda.mem_get_info()[0] < 5 * size:
            pytest.skip(f"this GPU has less than {5 * size / 1e9:.0f} GB left")
        room = torch.empty(size, device=DEVICE)
    else:
        room = torch.from_file(str(folder / f"{len([*folder.iterdir()])}.bin"), shared=True, size=size)
    found = room.as_strided(values.shape, strides)
    found.copy_(values)
    return found


def test_lengths_and_own_parts_of_heads_far_apart(tmp_path: Path) -> None:
    alpha, f = drawn(1, 3, 8, 8).abs(), drawn(1, 8, 3, WIDTH)
    t = torch.einsum("bhij,bjhd->bijd", alpha.double(), f.double())
    part, far = f.flatten(0, 1), far_apart(tmp_path, alpha, 1)
    found, own = torch.zeros(1, 8, 8, device=DEVICE), torch.zeros(1, 8, WIDTH, device=DEVICE)
    lengths.lengths_into(found, far, part @ part.mT, 0, 0)
    lengths.own_into(own, far, far_apart(tmp_path, part, 1), 0, 0)
    assert (found - t.norm(dim=-1)).abs().max() <= 1e-5
    assert (own - t.diagonal(dim1=1, dim2=2).mT).abs().max() <= 1e-5


def test_nearness_of_heads_far_apart(tmp_path: Path) -> None:
    alpha, f, y = drawn(1, 3, 8, 8).abs(), drawn(8, 3, WIDTH), drawn(1, 8, WIDTH)
    found = torch.zeros(1, 8, 8, device=DEVICE)
    nearness.add_up(far_apart(tmp_path, alpha, 1), far_apart(tmp_path, f, 1), y, found, 0, 0, False)
    t, goal = torch.einsum("bhij,jhd->bijd", alpha.double(), f.double()), y.double().unsqueeze(2)
    assert (found - (goal.abs() - (goal - t).abs()).sum(-1)).abs().max() <= 1e-4


def test_attention_of_heads_far_apart(tmp_path: Path) -> None:
    q, k, v, mask = (drawn(1, 3, 8, size) for size in (16, 16, 16, 8))
    given = [far_apart(tmp_path, each, 1) for each in (q, k, v, mask)]
    out, weights = attention.attend(*given, 0.3, False)
    expected = (0.3 * q.double() @ k.double().mT + mask.double()).softmax(-1)
    assert (weights - expected).abs().max() <= 3e-6
    assert (out - (expected @ v.double()).transpose(1, 2)).abs().max() <= 2e-5


def test_rescaling_in_a_map_past_31_bits(tmp_path: Path) -> None:
    """One program of a text of 33,000 tokens, whose third head begins past 2^31 numbers."""
    n, heads, eps, width = 33_000, 3, 1e-3, 40
    few, some = drawn(1, heads, 16, 1).abs(), drawn(1, heads, 16, 1)
    strides, size = (heads * n * n, n * n, n, 1), heads * n * n
    if DEVICE == "cuda":
        room = torch.zeros(size, device=DEVICE)
    else:
        room = torch.from_file(str(tmp_path / "alpha.bin"), shared=True, size=size)
    alpha = room.as_strided((1, heads, n, n), strides)
    alpha[:, :, :16, :1] = few
    cross = torch.zeros(1, heads, n, 1, device=DEVICE)
    cross[:, :, :16] = some
    f, scale = drawn(heads, width), drawn(1, n).abs() + 1
    gram = (f @ f.mT)[None].contiguous()
    kappa, taken = torch.zeros(1, 1, n, device=DEVICE), torch.zeros(1, 1, n, heads, device=DEVICE)
    rescaling._rescaling[(1, 1, 1)](
        *(alpha, cross, gram, scale, kappa, taken, taken, 0, 1, n, width, eps), H=heads, LOST=False, BI=16, BJ=32
    )
    a, c, s = few[0, :, :, 0].double(), some[0, :, :, 0].double(), scale[0, :16].double()
    more = (torch.einsum("hi,hk,ki->i", a, gram[0].double(), a) - 2 * (a * c).sum(0)) / width
    after = (s * s + more).clamp(min=eps).sqrt()
    assert (kappa[0, 0, :16] + more / (s * after * (s + after))).abs().max() <= 1e-5
    assert (taken[0, 0, :16].T + a / after).abs().max() <= 1e-5
