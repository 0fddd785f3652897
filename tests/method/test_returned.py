"""What a method of one's own returns in a wrong shape is refused by its name, and never cut to fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import wherefrom
from wherefrom.errors import InvalidOption, NotDefined
from wherefrom.method import Scores, base, citations, method
from wherefrom.method.returned import layer_heads, layer_row
from wherefrom.testing import CheckFailed, check_method
from wherefrom.work import Work

SHORT = "a good film ."  # six tokens, fewer than the model has heads


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    for part in ("_entries", "_names"):
        monkeypatch.setattr(base.METHODS, part, dict(getattr(base.METHODS, part)))

    def register(run: Callable[[Any], Any], **more: Any) -> None:
        run.__doc__ = "A test."
        stated = {"needs": {"attention", "values"}, "cost": lambda s, _: Work(moved=s.pairs), **more}
        method("own", idea="a test", paper=citations.ABNAR_2020, checks={"batch-equals-single"}, **stated)(run)

    return register


@pytest.mark.parametrize(
    ("run", "got"),
    [
        (lambda layer: layer.value.norm(dim=-1), r"a float32 tensor of shape \[1, 8, 6\]"),
        (lambda layer: layer.attention, r"a float32 tensor of shape \[1, 8, 6, 6\]"),
        (lambda layer: layer.attention[:, 0, 0], r"a float32 tensor of shape \[1, 6\]"),
        (lambda layer: layer.attention.mean(1).bfloat16(), "a bfloat16 tensor"),
        (lambda layer: layer.attention.mean(1).numpy(), r"a ndarray of shape \[1, 6, 6\]"),
        (lambda layer: [layer.attention.mean(1)], "a list"),
        (lambda _layer: None, "nothing"),
    ],
)
def test_a_layer_map_of_a_wrong_shape_is_refused(registered: Any, run: Any, got: str) -> None:
    registered(run)
    for keep in ("maps", "scores"):
        with pytest.raises(InvalidOption, match=rf"'own' returned {got}.* of shape \[1, 6, 6\] \(\[B, n, n\]"):
            wherefrom.explain(SHORT, method="own", keep=keep)
    with pytest.raises(CheckFailed, match=r"^the method 'own' returned .* expected a float32 or float64 tensor.*$"):
        check_method("own")


def test_a_method_that_returns_nan_is_named(registered: Any) -> None:
    registered(lambda layer: layer.attention.mean(1) * float("nan"))
    for keep in ("maps", "scores"):
        with pytest.raises(NotDefined, match=r"the method 'own' has no value here: scores.* contain NaN or infinite"):
            wherefrom.explain(SHORT, method="own", keep=keep)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda g: g.norm(dim=-1), r"a float32 tensor of shape \[1, 6\]; expected wherefrom.method.Scores\(scores\)"),
        (lambda _g: None, r"nothing.*; expected wherefrom.method.Scores\(scores\) with scores of \[B, n\] = \[1, 6\]"),
        (lambda g: Scores(g), r"of shape \[1, 6, 256\] as scores; expected .* \[1, 6\] \(\[B, n\]\)"),
        (lambda g: Scores(g.norm(dim=-1), layers=g[0]), r"of shape \[6, 256\] as layers; expected .*\[L, B, n\]"),
        (lambda g: Scores(g.norm(dim=-1), delta=0.1), r"a float as delta; expected .* \[1\] \(\[B\]\)"),
    ],
)
def test_scores_of_a_wrong_shape_are_refused(registered: Any, make: Any, message: str) -> None:
    registered(
        lambda output: make(output.gradients().embeddings), kind="scores", class_specific=True, needs={"gradient"}
    )
    with pytest.raises(InvalidOption, match=f"the method 'own' returned .*{message}"):
        wherefrom.explain(SHORT, method="own")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda maps: maps[:3], "3 maps; expected 10, one for each layer"),
        (lambda maps: maps[0], r"a float32 tensor of shape \[1, 6, 6\]; expected a list of 10 maps"),
        (lambda maps: [each[:, 0] for each in maps], r"of shape \[1, 6\] for layer 0; expected"),
    ],
)
def test_maps_of_all_layers_of_a_wrong_shape_are_refused(registered: Any, make: Any, message: str) -> None:
    registered(
        lambda output: make([layer.attention.mean(1) for layer in output.trace.layers]), whole=True, needs={"layers"}
    )
    with pytest.raises(InvalidOption, match=f"the method 'own' returned .*{message}"):
        wherefrom.explain(SHORT, method="own")


def test_rows_and_heads_of_a_wrong_shape_are_refused() -> None:
    layer = wherefrom.capture(SHORT, "wherefrom/sentiment").layers[0]
    found = base.lookup("attention")[0]
    assert layer_row(found, layer.attention[:, 0, 0], layer).shape == (1, 6)
    assert layer_heads(found, layer.attention, layer).shape == (1, 8, 6, 6)
    with pytest.raises(InvalidOption, match=r"'attention' returned .*\[6\] by row=, .* \[1, 6\]"):
        layer_row(found, layer.attention[0, 0, 0], layer)
    with pytest.raises(InvalidOption, match=r"'attention' returned .*\[1, 6, 6\] by heads=, .* \[1, 8, 6, 6\]"):
        layer_heads(found, layer.attention.mean(1), layer)


def test_a_map_on_each_stream_is_right(registered: Any) -> None:
    """An encoder's and a decoder's maps have their own sizes, and neither is that of the axis they share."""
    registered(lambda layer: layer.attention.mean(1))
    found = wherefrom.explain("Guten Morgen .", model="wherefrom/translate", target="good morning .", method="own")
    own = wherefrom.explain("Guten Morgen .", model="wherefrom/translate", target="good morning .", method="attention")
    assert torch.equal(torch.from_numpy(found.maps), torch.from_numpy(own.maps))
