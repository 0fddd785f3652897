"""Odd values for every argument and every option: a sentence or a finite result, never another exception."""

from __future__ import annotations

import inspect
import random
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.model import open_model

TEXT = "the cat sat on a mat"
TOKENIZER = tiny.tokenizer()
MODELS = {task: tiny.model(task=task) for task in ("classification", "masked-lm", "token-classification", "encoder")}
ENTRIES: dict[str, Callable[..., Any]] = {
    "explain": wherefrom.explain,
    "compare": wherefrom.compare,
    "capture": wherefrom.capture,
    "estimate": wherefrom.estimate,
}
CHEAP = ("attention", "attcat", "alti", "ablation", "random", "deeplift", "saliency", "attention-flow")
MODEL = ("model", "tokenizer", "task", "device", "dtype", "model_kwargs")  # asked of models that wherefrom loads


class Hostile:
    """An object of which nothing can be had."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")


def odd_values() -> list[Callable[[], Any]]:
    """Made anew each time, since some can be used up."""
    plain: list[Any] = [
        *(None, True, False, 0, 1, -1, 2, 7, 10**12, -(10**12), 10**5000, 0.0, -0.0, 0.5, 1e300),
        *(float("nan"), float("inf"), float("-inf"), 1j),
        *("", " ", "a", "all", "auto", "none", "1", "yes", "no", "mask", "first", "mean", "answer", "junk(", "x(y=z)"),
        *("\ud800", "\x00", "cat", "🙂" * 5, "a" * 1000, b"", b"bytes"),
        *([], (), {}, set(), frozenset({1}), [None], [[]], [[1, 2], [3]], (1, 2), [0, 1], (0, 2), (None, None), [1.5]),
        *({"a": 1}, {1: 2}, {"input_ids": [45]}, {"input_ids": [45], "token_type_ids": [None]}, {"input_ids": []}),
        *({"input_ids": [5, 6], "attention_mask": [1, None]}, {"input_ids": [5, 6], "token_type_ids": [0, 9]}),
        *({"input_ids": "cat"}, {"input_ids": 5}, {"text": None}, {"text": 5}, {"max_length": "x"}, {"unheard_of": 1}),
        *(range(3), slice(1), Ellipsis, object, object(), Hostile(), print, int, lambda: None, ["a", 1], ["", "a"]),
        *(np.array(1), np.array([1, 2]), np.zeros((2, 2)), np.array([]), np.array(["a"]), np.float32(0.5), np.int64(1)),
        *(np.bool_(True), np.nan, np.array([None]), np.zeros((1, 2, 3)), np.array([5, 6])),
        *(torch.tensor(1), torch.tensor([1, 2]), torch.zeros(2, 2), torch.tensor([]), torch.tensor(True)),
        *(torch.tensor(float("nan")), torch.zeros(2, device="meta"), torch.float32, torch.device("cpu")),
    ]
    once: list[Callable[[], Any]] = [lambda: iter([1]), lambda: (x for x in ["a", "b"]), lambda: iter([])]
    return [*((lambda value=value: value) for value in plain), *once]


def arguments(entry: str) -> list[str]:
    return [
        name
        for name, each in inspect.signature(ENTRIES[entry]).parameters.items()
        if each.kind is not each.VAR_KEYWORD and name not in (*MODEL, "progress")
    ]


def finite(found: Any) -> bool:
    if isinstance(found, list):
        return all(map(finite, found))
    if isinstance(found, wherefrom.Comparison):
        return all(map(finite, found.values()))
    return not isinstance(found, wherefrom.Explanation) or bool(np.isfinite(found.scores).all())


def survives(call: Callable[[], Any], what: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = call()
    except WherefromError:
        return
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    assert finite(found), what


def calls(rng: random.Random) -> Iterator[tuple[str, Callable[[], Any]]]:
    """One or two odd arguments at a time, or one odd option; for ever."""
    values = odd_values()
    described = [f"value {i}" for i in range(len(values))]
    methods = [each for each in wherefrom.methods() if each.options]
    while True:
        task = rng.choice(list(MODELS))
        if rng.random() < 0.5:
            method = rng.choice(methods)
            option, which = rng.choice(list(method.options)), rng.randrange(len(values))
            asked: dict[str, Any] = {"method": method.name, option: values[which]()}
            yield f"{method.name}({option}={described[which]}) on {task}", caller("explain", task, asked)
            continue
        entry = rng.choice(list(ENTRIES))
        chosen = {name: rng.randrange(len(values)) for name in rng.sample(arguments(entry), rng.choice([1, 1, 2]))}
        asked = {name: values[which]() for name, which in chosen.items()}
        if entry in ("explain", "estimate") and "method" not in asked:
            asked["method"] = rng.choice(CHEAP)
        yield f"{entry}({chosen}) on {task}", caller(entry, task, asked)


def caller(entry: str, task: str, asked: dict[str, Any]) -> Callable[[], Any]:
    given = {"inputs": TEXT, **asked} if "tokens" not in asked else asked
    return lambda: ENTRIES[entry](model=MODELS[task], tokenizer=TOKENIZER, **given)


def run(count: int, seed: int) -> None:
    found = calls(random.Random(seed))
    for _ in range(count):
        what, call = next(found)
        survives(call, f"{what}, seed {seed}")


def test_odd_values_give_a_sentence_or_a_result() -> None:
    run(250, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_many_odd_values_give_a_sentence_or_a_result(seed: int) -> None:
    run(1000, seed)


def odd_evaluations(count: int, seed: int) -> None:
    rng, values = random.Random(seed), odd_values()
    names = [*inspect.signature(wherefrom.evaluate).parameters]
    names = [name for name in names if name not in (*MODEL, "progress", "workers")]  # which would start processes
    for _ in range(count):
        name, which = rng.choice(names), rng.randrange(len(values))
        asked = {"data": [TEXT, "a mat"], "methods": ["attention"], "metrics": ["aopc"], "threads": 1}
        asked[name] = values[which]()
        ask = partial(wherefrom.evaluate, model=MODELS["classification"], tokenizer=TOKENIZER, progress=False, **asked)
        survives(ask, f"evaluate({name}=value {which}), seed {seed}")


def test_odd_values_for_evaluate_give_a_sentence_or_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="evaluate needs the extra eval")
    monkeypatch.chdir(tmp_path)  # some of the values are names of folders
    odd_evaluations(60, seed=0)


@pytest.mark.slow
def test_many_odd_values_for_evaluate_give_a_sentence_or_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    odd_evaluations(1500, seed=1)


@pytest.mark.parametrize("name", ["task", "device", "dtype", "model_kwargs", "tokenizer", "model"])
def test_odd_values_for_a_model_to_load_give_a_sentence_or_a_result(name: str) -> None:
    """Few of them: each that is let pass is a model loaded."""
    odd = [5, 0.5, "junk", "", b"x", [], {"unheard_of": 1}, {1: 2}, object(), np.zeros(2), torch.zeros(2), Hostile()]
    for value in odd:
        asked = {"model": "wherefrom/agreement", "method": "attention", name: value}
        survives(lambda asked=asked: wherefrom.explain("the key", **asked), f"{name}={type(value).__name__}")


@pytest.mark.parametrize(
    ("method", "option", "value", "said"),
    [
        ("transformer-attribution", "start_layer", "1", "start_layer='1'; expected a whole number"),
        ("value-zeroing", "metric", np.zeros(3), "metric=array.*; expected 'cosine', 'euclidean' or 'spearman'"),
        ("norm-residual", "normalize", np.zeros(3), "normalize=array.*; expected True or False"),
        ("globenc", "normalize", "no", "normalize='no'; expected True or False"),
        ("globenc", "normalize", 1, "normalize=1; expected True or False"),
        ("integrated-gradients", "baseline", {}, "baseline={}; expected 'auto', 'mask'.* or a list of whole numbers"),
        ("integrated-gradients", "n_steps", 0, "n_steps=0; expected a whole number from 1 to 100,000, or None"),
        ("integrated-gradients", "tolerance", "small", "tolerance='small'; expected a number between 0 and 1"),
        ("attcat", "at", object(), "at=<object.*; expected 'input' or 'output'"),
        ("random", "seed", -1, "seed=-1; expected a whole number, at least 0"),
        ("alti", "budget", 0.5, "budget=0.5; expected a whole number, at least 1, or None"),
    ],
)
def test_an_option_of_a_wrong_kind_is_refused(method: str, option: str, value: Any, said: str) -> None:
    """Before anything is run, and wherever a method is named."""
    model = open_model(MODELS["classification"], TOKENIZER)
    for ask in (wherefrom.explain, wherefrom.estimate):
        with pytest.raises(WherefromError, match=f"'{method}' cannot have {said}") as refused:
            ask(TEXT, model, method=method, **{option: value})
        assert refused.value.code == "invalid-option"


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    model = MODELS["classification"]
    plain = wherefrom.explain(TEXT, model, TOKENIZER, method="random", seed=3)
    for seed in (np.int64(3), torch.tensor(3), np.array(3)):
        found = wherefrom.explain(TEXT, model, TOKENIZER, method="random", seed=seed, batch_size=np.int32(4))
        assert (found.scores == plain.scores).all()
        assert found.options == {"seed": 3}
        assert type(found.options["seed"]) is int
    assert (
        wherefrom.explain(TEXT, model, TOKENIZER, method="alti", layers=(np.int64(0), torch.tensor(2))).maps.shape[0]
        == 2
    )


def test_the_kind_of_an_option_without_an_annotation_is_its_defaults() -> None:
    from wherefrom.typecheck import checks_arguments

    @checks_arguments
    def own(layer, *, power=2.0, on=False, name="a", other=object):  # type: ignore[no-untyped-def]
        return layer, power, on, name, other

    assert own(None, power=3, on=True, name="b", other=[]) == (None, 3, True, "b", [])
    with pytest.raises(WherefromError, match="power='two'; expected a number"):
        own(None, power="two")
    with pytest.raises(WherefromError, match="on='no'; expected True or False"):
        own(None, on="no")
    with pytest.raises(TypeError, match="unheard_of"):
        own(None, unheard_of=1)
