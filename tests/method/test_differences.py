"""Scores that add up to a change of the output: what is missing has a sign, and each rule is exact for itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tiny
import whence
from whence.method.deeplift import _slope


@pytest.mark.parametrize("activation", [torch.nn.functional.gelu, torch.tanh, torch.nn.functional.silu])
@pytest.mark.parametrize("gap", [0.0, 1e-14, 1e-11, 1e-9, 1e-6, 1e-4, 3e-3, 0.1, 1.0, -1e-9, -0.1])
def test_the_slope_is_the_mean_derivative_at_every_distance(activation: object, gap: float) -> None:
    """∫ f'(x' + t (x − x')) dt over [0, 1]: near together the quotient rounds, far apart the derivative is another."""
    x0 = torch.linspace(-4, 4, 41, dtype=torch.float64)
    x = x0 + gap
    points, weights = (torch.from_numpy(each) for each in np.polynomial.legendre.leggauss(24))
    way = x0[:, None] + (points + 1) / 2 * (x - x0)[:, None]
    derivative = torch.func.jvp(activation, (way,), (torch.ones_like(way),))[1]
    expected = derivative @ weights / 2
    torch.testing.assert_close(_slope(activation, x, x0), expected, rtol=0, atol=3e-8)


@pytest.mark.parametrize("of", ["logit", "probability"])
def test_delta_is_by_how_much_the_sum_exceeds_the_change(of: str) -> None:
    """By two points of the integral, which are too few."""
    model, tokenizer = tiny.model(dtype=torch.float64), tiny.tokenizer()
    ids = tokenizer("the deep film is not very good")["input_ids"]
    blank = [ids[0], *[tokenizer.mask_token_id] * (len(ids) - 2), ids[-1]]
    with torch.no_grad():
        logits = model(torch.tensor([ids, blank]), token_type_ids=torch.zeros(2, len(ids), dtype=torch.long)).logits
    now, before = (logits.softmax(-1) if of == "probability" else logits)[:, 1].tolist()
    found = whence.explain(ids, model, tokenizer, "integrated-gradients", n_steps=2, target=1, of=of)
    assert found.delta == pytest.approx(found.scores.sum() - (now - before), abs=1e-10)
    assert abs(found.delta) > 1e-6
