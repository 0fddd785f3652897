"""Products in fewer digits: how many, and that both forms of them have as many."""

from __future__ import annotations

import pytest
import torch

from wherefrom.method.products import Precision, product, products_by_head

# Of the largest product of absolute values: half a unit in the last place of each factor, or what is left out of both.
LOST: dict[Precision, float] = {"exact": 1e-6, "split": 2**-15, "fast": 2**-8}


@pytest.mark.parametrize("precision", LOST)
def test_products_lose_what_they_are_said_to(precision: Precision) -> None:
    draw = torch.Generator().manual_seed(0)
    x, weight = torch.randn(3, 50, 24, generator=draw), torch.randn(3, 24, 40, generator=draw)
    whole, sizes = x.double() @ weight.double(), x.double().abs() @ weight.double().abs()
    by_head, again = (each.transpose(0, 1) for each in products_by_head(x, [weight, weight], precision))
    assert torch.equal(by_head, again)
    alone = torch.stack([product(x[h], weight[h], precision) for h in range(3)])
    for found in (by_head, alone):
        lost = ((found - whole).abs() / sizes).max()
        assert lost <= LOST[precision]
        if precision != "exact":  # a product in more digits would be another function on a GPU
            assert lost >= LOST[precision] / 200
    assert (by_head - alone).abs().max() <= 1e-5 * sizes.max()
