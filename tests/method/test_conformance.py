"""Every registered method keeps what it claims, and a claim that does not hold is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from torch import Tensor

import wherefrom
from wherefrom.method import Method, Scores, base, citations, method
from wherefrom.testing import IDENTITIES, CheckFailed, check_method
from wherefrom.work import Work


def spellings(each: Method) -> Iterator[str]:
    """The method as it comes; and a layer's map by every choice of every option, of which the claims hold too."""
    yield each.name
    for option, kind in each.kinds.items() if each.by_layer else ():
        choices = get_args(kind) if get_origin(kind) is Literal else ("true", "false") if kind is bool else ()
        yield from (
            f"{each.name}({option}={choice})" for choice in choices if choice not in ("false", each.options[option])
        )


@pytest.mark.parametrize("name", [name for each in wherefrom.methods() for name in spellings(each)])
def test_a_method_keeps_what_it_claims(name: str) -> None:
    check_method(name)


def test_every_claim_has_its_check() -> None:
    assert set(IDENTITIES) == set(base.CHECKS)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[..., Any]]:
    """A decorator that registers a method for the length of a test."""
    for part in ("_entries", "_names"):
        monkeypatch.setattr(base.METHODS, part, dict(getattr(base.METHODS, part)))

    def register(*checks: str, **more: Any) -> Callable[..., Any]:
        stated = {"cost": lambda s, _: Work(moved=s.pairs), "needs": {"attention"}, **more}
        return method("own", idea="a test", paper=citations.ABNAR_2020, checks=set(checks), **stated)

    return register


def attention(layer: wherefrom.LayerTrace) -> Tensor:
    """Attention."""
    return layer.attention.mean(1)


def test_a_right_method_passes_by_name_and_by_function(registered: Any) -> None:
    found = registered("rows-sum-to-one", "token-permutation", "batch-equals-single", "hidden-tokens")(attention)
    check_method("own")
    check_method(found)


def own(change: Callable[[Tensor], Tensor]) -> Callable[[wherefrom.LayerTrace], Tensor]:
    def run(layer: wherefrom.LayerTrace) -> Tensor:
        """Attention, changed."""
        return change(layer.attention.mean(1))

    return run


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("rows-sum-to-one", lambda maps: 2 * maps),
        ("batch-equals-single", lambda maps: maps / maps.shape[-1]),
        ("token-permutation", lambda maps: maps * torch.arange(maps.shape[-1])),
        ("hidden-tokens", lambda maps: maps + 0.1),
    ],
)
def test_a_claim_on_maps_that_does_not_hold_is_found(registered: Any, claim: str, change: Any) -> None:
    registered(claim)(own(change))
    with pytest.raises(CheckFailed, match=rf"'own' claims {claim}, and .*: numbers differ by .* of the largest"):
        check_method("own")


def size(output: Any) -> Scores:
    """Size of the gradient."""
    return Scores(output.gradients().embeddings.norm(dim=-1))


@pytest.mark.parametrize("claim", ["sign-flips-with-foil", "adds-up"])
def test_a_claim_on_scores_that_does_not_hold_is_found(registered: Any, claim: str) -> None:
    registered(claim, kind="scores", class_specific=True, needs={"gradient"})(size)
    with pytest.raises(CheckFailed, match=f"'own' claims {claim}, and "):
        check_method("own")


def negative(layer: wherefrom.LayerTrace) -> Tensor:
    """Attention below zero."""
    return -layer.attention.mean(1)


def undocumented(layer: wherefrom.LayerTrace) -> Tensor:
    return layer.attention.mean(1)


def untyped(layer: wherefrom.LayerTrace, *, power: Any = 2) -> Tensor:
    """Attention, and an option that may be anything."""
    return layer.attention.mean(1) * power


def careless(layer: wherefrom.LayerTrace) -> Tensor:
    """Attention, and the block changed."""
    layer.block.module.register_forward_hook(lambda *_: None)
    return layer.attention.mean(1)


@pytest.mark.parametrize(
    ("run", "stated", "message"),
    [
        (negative, {}, "below zero, and does not say signed=True"),
        (undocumented, {}, "has no docstring"),
        (untyped, {}, "what its option power may be"),
        (attention, {"cost": None}, "states no cost="),
        (careless, {}, "the model does not come back as it was; changed: hooks"),
    ],
)
def test_what_is_wrong_with_a_method_is_said(registered: Any, run: Any, stated: dict[str, Any], message: str) -> None:
    registered(**stated)(run)
    with pytest.raises(CheckFailed, match=message):
        check_method("own")


def test_all_that_is_wrong_is_said_together(registered: Any) -> None:
    registered("rows-sum-to-one", "hidden-tokens", cost=None)(own(lambda maps: 2 * maps + 0.1))
    with pytest.raises(CheckFailed) as failed:
        check_method("own")
    said = str(failed.value).splitlines()
    assert [any(part in line for line in said) for part in ("no cost=", "rows-sum-to-one", "hidden-tokens")] == 3 * [
        True
    ]
    assert len(said) == 3


def test_words_that_nobody_knows_are_refused_at_once(registered: Any) -> None:
    with pytest.raises(ValueError, match=r"'own' checks 'rows-sum-to-two'; did you mean 'rows-sum-to-one'\?"):
        registered("rows-sum-to-two")
    with pytest.raises(ValueError, match=r"'own' needs 'atention'; did you mean 'attention'\?"):
        registered(needs={"atention"})
    with pytest.raises(CheckFailed, match="attention is not registered; decorate it"):
        check_method(attention)
