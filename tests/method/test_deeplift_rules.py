"""DeepLift's rules one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from oracles.deeplift import Pair, llama_block
from wherefrom.method.deeplift import _slope, difference
from wherefrom.model.keys import product_of


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


def test_float32_keeps_its_digits_where_the_two_nearly_coincide() -> None:
    x0 = torch.linspace(-4, 4, 41, dtype=torch.float32)
    for gap in (1e-5, 1e-4, 1e-3):
        x = x0 + gap
        expected = _slope(torch.nn.functional.gelu, x.double(), x0.double())
        torch.testing.assert_close(_slope(torch.nn.functional.gelu, x, x0).double(), expected, rtol=0, atol=1e-6)


@torch.no_grad()
def test_a_llamas_block_is_its_rules_in_every_direction() -> None:
    """Not only along x − x', where any complete set of rules gives o − o'."""
    model = tiny.model("llama-biased", "encoder", dtype=torch.float64)
    now, then = (wherefrom.capture(tiny.ids(5, seed=seed), model).layers[1] for seed in (1, 2))
    turn = product_of(now).key.turn
    assert turn is not None
    cos, sin = (torch.cat([part, part], -1)[0, 0] for part in (turn.factors.real, turn.factors.imag))
    random = torch.randn(now.x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for d in (random, now.x - then.x):
        expected = llama_block(model.layers[1], Pair(now.x[0], then.x[0], d[0]), cos, sin)
        torch.testing.assert_close(expected.now, now.output[0], rtol=0, atol=1e-10)
        torch.testing.assert_close(difference(now, then, d)[0], expected.d, rtol=0, atol=1e-10)
