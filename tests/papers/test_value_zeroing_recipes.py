"""Value Zeroing's quantities, recomputed from the paper's formulas."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

import tiny
import wherefrom
from wherefrom import explain
from wherefrom.data.blimp import PARADIGMS
from wherefrom.errors import InvalidInput
from wherefrom.metric.correlation import summary
from wherefrom.metric.probing import layer_codes, representations
from wherefrom.papers import lookup
from wherefrom.papers.agreement_tuning import EPOCHS, TRAINING, agreement_half, fine_tune, measured_examples
from wherefrom.papers.recipe import Measured, RecipeCall, Table, number
from wherefrom.papers.request import ReproduceRequest, resolve
from wherefrom.papers.value_zeroing import ROWS, best_in_every_layer, layer_columns
from wherefrom.papers.value_zeroing_compression import jumps_at_4_and_9
from wherefrom.training import prompt as training_prompt

TEXT, TARGET, FOIL = "the keys to the cabinets [MASK] good", "is", "not"


def states_and_gradients(words: dict[str, int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The input of every block, and the gradient of Σ sign · logit of these words at the mask with respect to it."""
    model, tokenizer = tiny.model("bert", "masked-lm").double(), tiny.tokenizer()
    batch = tokenizer(TEXT, return_tensors="pt")
    at = batch["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    output = model(**batch, output_hidden_states=True)
    number = sum(sign * output.logits[0, at, tokenizer.convert_tokens_to_ids(word)] for word, sign in words.items())
    states = output.hidden_states[:-1]
    return [
        (x[0].detach().numpy(), g[0].numpy()) for x, g in zip(states, torch.autograd.grad(number, states), strict=True)
    ]


@pytest.mark.parametrize(("of", "words"), [("target-logit", {TARGET: 1}), ("auto", {TARGET: 1, FOIL: -1})])
def test_gradients_are_of_the_true_label_or_of_target_minus_foil(of: str, words: dict[str, int]) -> None:
    """Gradient × input at every layer; IG and DeepLift add up to the change of that number."""
    model, tokenizer = tiny.model("bert", "masked-lm").double(), tiny.tokenizer()
    expected = [np.abs((x * g).sum(-1)) for x, g in states_and_gradients(words)]
    found = explain(TEXT, model, tokenizer, method="gradient-x-input", norm="abs", of=of, target=TARGET, foil=FOIL)
    assert np.allclose(found.layer_scores, expected, rtol=1e-9, atol=1e-12)
    ids = tokenizer(TEXT)["input_ids"]
    blank = [token if token in tokenizer.all_special_ids else tokenizer.mask_token_id for token in ids]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids, blank])).logits[:, ids.index(tokenizer.mask_token_id)]
    change = sum(sign * float(np.diff(logits[:, tokenizer.convert_tokens_to_ids(w)])[0]) for w, sign in words.items())
    for method, options in (("integrated-gradients", {"n_steps": 40}), ("deeplift", {})):
        parts = explain(TEXT, model, tokenizer, method=method, of=of, target=TARGET, foil=FOIL, **options)
        assert parts.scores.sum() == pytest.approx(-change, rel=1e-3)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("value-zeroing")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny masked model that knows the words of our agreement sentences."""
    folder = tmp_path_factory.mktemp("model")
    words = ["is", "are", "was", "were", "not", "the", "key", "keys", "to", "cabinet", "cabinets", "good", "big"]
    tokenizer = tiny.tokenizer()
    tokenizer.add_tokens(words)
    network = tiny.model("bert", "masked-lm")
    network.resize_token_embeddings(len(tokenizer))
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Agreement sentences in our own format; half of them are tested on."""
    path = tmp_path_factory.mktemp("data") / "agreement.jsonl"
    rows = []
    for row_id in range(48):
        noun, target, foil = (("key", "is", "are"), ("keys", "are", "is"))[row_id % 2]
        start = len("the ")
        rows.append(
            {
                "text": f"the {noun} to the cabinet{'s' * (row_id // 2 % 2)} [MASK] {'good' if row_id % 3 else 'big'}",
                "target": target,
                "foil": foil,
                "label": ("singular", "plural")[row_id % 2],
                "group": ("a", "b")[row_id // 24],
                "cues": [[start, start + len(noun)]],
            }
        )
    split = [{**row, "target": "zebraically"} for row in rows[:8]]  # a word of several tokens: left out
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, *split]), encoding="utf-8")
    return str(path)


def call(name: str, model: str, data: str, out: Path, **changes: Any) -> RecipeCall:
    options = changes.pop("options", {})
    return resolve(
        lookup(f"value-zeroing/{name}")[0],
        ReproduceRequest(models=(("", model),), data=(data,), out=out, options=options, **changes),
    )


def test_the_model_is_trained_on_all_of_its_half_for_all_epochs(model: str, data: str, out: Path) -> None:
    """Whatever the limit, which is of the examples that are measured."""
    asked = call("table3", model, data, out, limit=3)
    halves = {test: list(agreement_half(asked, test=test)) for test in (False, True)}
    assert len(halves[False]) + len(halves[True]) == 48
    tuned = fine_tune(asked)
    assert tuned.sentences == len(halves[False])
    assert tuned.steps == EPOCHS * -(-len(halves[False]) // TRAINING["batch"])
    for scores in tuned.accuracy.values():
        assert scores[-1].rows == len(halves[True])  # all of the other half
        assert {score.group for score in scores} == {"a", "b", "all"}
    few = fine_tune(call("table3", model, data, out, limit=3, train_limit=5))
    assert (few.sentences, few.folder != tuned.folder) == (5, True)


def test_the_accuracy_is_how_often_the_target_has_the_higher_logit(model: str, data: str, out: Path) -> None:
    asked = call("table1", model, data, out)
    tuned = fine_tune(asked)
    for name, folder in (("PT", model), ("FT", tuned.folder)):
        network = AutoModelForMaskedLM.from_pretrained(folder).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        right = []
        for each in agreement_half(asked, test=True):
            batch = tokenizer(each.text, return_tensors="pt")
            at = batch["input_ids"][0].tolist().index(tokenizer.mask_token_id)
            with torch.no_grad():
                logits = network(**batch).logits[0, at]
            target, foil = tokenizer.convert_tokens_to_ids([each.target, each.foil])
            right.append(bool(logits[target] > logits[foil]))
        assert tuned.accuracy[name][-1].right == sum(right)
    assert f"{EPOCHS} epochs" in tuned.note
    assert f"{tuned.steps} steps" in tuned.note
    assert "(paper's BERT: 0.96)" in tuned.note


def test_a_model_whose_training_was_cut_is_trained_again(
    model: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = call("table3", model, data, tmp_path)
    calls = []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments[1].out)
        if len(calls) == 1:
            calls[0].mkdir()
            (calls[0] / "config.json").write_text("{}")  # a model without weights or report
            raise KeyboardInterrupt
        (calls[0] / "config.json").unlink()
        return trained(*arguments, **options)

    trained = training_prompt.prompt
    monkeypatch.setattr(training_prompt, "prompt", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fine_tune(asked)
    assert fine_tune(asked).folder == fine_tune(asked).folder == str(calls[0])
    assert len(calls) == 2


FEW: dict[str, Any] = {"n_steps": 3, "costly_limit": 2}


def test_figure_1_is_the_dot_product_of_the_paper(model: str, data: str, out: Path) -> None:
    """GradXinput of every layer: the share of |x · ∂y/∂x| on the cue, y the true label's logit; IG on two sentences."""
    result = wherefrom.reproduce("value-zeroing/figure1", model=model, data=data, limit=4, out=out, **FEW)
    contrast = wherefrom.reproduce(
        "value-zeroing/figure1", model=model, data=data, limit=4, out=out, gradient="target-foil", **FEW
    )
    network = AutoModelForMaskedLM.from_pretrained(model).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    shares: dict[str, list[list[float]]] = {"true-label": [], "target-foil": []}
    for each in measured_examples(call("figure1", model, data, out, limit=4)):
        batch = tokenizer(each.text, return_tensors="pt", return_offsets_mapping=True)
        offsets = batch.pop("offset_mapping")[0].tolist()
        ((start, end),) = each.cues
        cue = [a < end and b > start for a, b in offsets]
        at = batch["input_ids"][0].tolist().index(tokenizer.mask_token_id)
        target, foil = tokenizer.convert_tokens_to_ids([each.target, each.foil])
        for name, value in (("true-label", 0), ("target-foil", 1)):
            output = network(**batch, output_hidden_states=True)
            logits = output.logits[0, at]
            states = output.hidden_states[:-1]
            gradients = torch.autograd.grad(logits[target] - value * logits[foil], states)
            scores = [(x * g).sum(-1)[0].abs() for x, g in zip(states, gradients, strict=True)]
            shares[name].append([float((each[cue].sum() / each.sum()).detach()) for each in scores])
    for name, found in (("true-label", result), ("target-foil", contrast)):
        ours = [found.table.mean("GradXinput", column) for column in layer_columns(found.table, "dot")]
        assert ours == pytest.approx(np.mean(shares[name], axis=0), rel=1e-4)
        assert any(f"gradient={name}" in note for note in found.table.notes)
    assert result.table.ours["IG", "dot L1"].count == 2
    assert result.table.ours["Value Zeroing", "dot L1"].count == 4
    assert "costly_limit=2" in " ".join(result.table.notes)
    assert {"-dot", "-AP"} == set(result.table.pictures)


def test_costly_methods_take_every_example_where_no_limit_is_set(model: str, data: str, out: Path) -> None:
    found = wherefrom.reproduce(
        "value-zeroing/table3(costly_limit=None, n_steps=30)", model=model, data=data, limit=3, train_limit=4, out=out
    )
    assert {each.count for each in found.table.ours.values()} == {3}


@pytest.mark.parametrize("probe", ["mlp", "mlp-code", "linear"])
def test_figure_3_names_its_probe(probe: str, model: str, data: str, out: Path) -> None:
    found = wherefrom.reproduce(
        f"value-zeroing/figure3(probe={probe})", model=model, data=data, limit=20, train_limit=4, out=out
    )
    asked = call("figure3", model, data, out, limit=20)
    examples = list(measured_examples(asked))
    vectors = representations([each.text for each in examples], model)
    codes = layer_codes(vectors, [each.label for each in examples], probe=probe)
    for layer, code in enumerate(codes):
        assert found.table.mean("pre-trained", f"L{layer}") == pytest.approx(code.compression)
    assert f"probe={probe}" in found.table.notes[0]


def test_figure_4_explains_the_users_text(model: str, data: str, out: Path) -> None:
    """Blank-out is the loss of p(target) among target and foil when a token becomes [UNK]."""
    text = "the keys to the cabinet [MASK] big"
    found = wherefrom.reproduce(
        "value-zeroing/figure4", model=model, data=data, texts=text, out=out, train_limit=4, target="are", n_steps=30
    )
    folder = fine_tune(call("figure4", model, data, out, train_limit=4)).folder
    network = AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor(tokenizer(text)["input_ids"])
    at = ids.tolist().index(tokenizer.mask_token_id)
    words = tokenizer.convert_tokens_to_ids(["are", "is"])

    def probability(ids: torch.Tensor) -> float:
        with torch.no_grad():
            return float(network(input_ids=ids[None]).logits[0, at, words].softmax(-1)[0])

    assert len(found.table.rows) == len(ids)
    for place, row in enumerate(found.table.rows):
        blank = ids.clone()
        blank[place] = tokenizer.unk_token_id
        assert found.table.mean(row, "blank-out") == pytest.approx(probability(ids) - probability(blank), abs=1e-5)
    for name in ("Attn", "IG", "Value Zeroing"):
        assert sum(found.table.mean(row, name) for row in found.table.rows) == pytest.approx(1)
    with pytest.raises(InvalidInput, match=r"one \[MASK\]"):
        wherefrom.reproduce("value-zeroing/figure4", model=model, data=data, texts="no mask", out=out, train_limit=4)


def test_maps_of_a_sentence_are_the_methods_own_and_rolled_out(model: str, data: str, out: Path) -> None:
    texts = ["the keys to the cabinet [MASK] big", "the key [MASK] good"]
    options: dict[str, Any] = {"model": model, "data": data, "texts": texts, "out": out, "train_limit": 4}
    own, rolled = (wherefrom.reproduce(f"value-zeroing/figure-a{number}", **options) for number in (17, 18))
    folder = fine_tune(call("figure-a17", model, data, out, train_limit=4)).folder
    maps = wherefrom.explain(texts[1], folder, method="value-zeroing").maps
    joint = maps[0]
    at = 3  # [CLS] the key [MASK]
    for layer, own_map in enumerate(maps):
        joint = own_map @ joint if layer else joint
        column = f"L{layer + 1}"
        rows = [row for row in own.table.rows if row.startswith("2. ")]
        assert [own.table.mean(row, column) for row in rows] == pytest.approx(own_map[at])
        assert [rolled.table.mean(row, column) for row in rows] == pytest.approx(joint[at], abs=1e-6)
    assert set(own.table.pictures) == {"-1", "-2"}


def test_claims_of_layers_are_asked_of_every_layer() -> None:
    """One layer in which another method is better is enough against the claim."""
    rng = np.random.default_rng(0)

    def cell(mean: float) -> Measured:
        values = {str(i): mean + 0.01 * value for i, value in enumerate(rng.normal(size=30))}
        return Measured.of(summary(values.values()), lambda: values)

    def table(worst: float) -> Table:
        ours: dict[tuple[str, str], Measured] = {(row, f"dot L{i}"): cell(0.1) for row in ROWS for i in (1, 2)}
        ours |= {("Value Zeroing", "dot L1"): cell(0.9), ("Value Zeroing", "dot L2"): cell(worst)}
        return Table(ROWS, ["dot L1", "dot L2", "dot mean"], ours, "", [])

    claim = best_in_every_layer("dot", "dot product", "section 5")
    assert claim.holds(table(0.5), "") is True
    assert claim.holds(table(0.01), "") is False


@pytest.mark.parametrize("name", ["value-zeroing/figure1", "value-zeroing/figure2"])
def test_layers_4_and_9_of_12_are_compared_with_the_mean_over_the_layers(name: str) -> None:
    def table(depth: int, high: set[int]) -> Table:
        values = {layer: 0.8 if layer in high else 0.1 for layer in range(1, depth + 1)}
        columns = {f"{prefix} L{layer}": value for prefix in ("dot", "AP") for layer, value in values.items()}
        columns |= {f"{prefix} mean": float(np.mean(list(values.values()))) for prefix in ("dot", "AP")}
        ours = {("Value Zeroing", column): number(value, 9) for column, value in columns.items()}
        return Table(["Value Zeroing"], list(columns), ours, "", [])

    (claim,) = [claim for claim in lookup(name)[0].claims if claim.where == "section 6"]
    assert claim.holds(table(12, {4, 9, 11}), "") is True
    assert claim.holds(table(12, {4, 11}), "") is False
    assert claim.holds(table(10, {4, 9}), "") is None


def test_the_jumps_of_figure_3() -> None:
    columns = [f"L{layer}" for layer in range(13)]
    jumps = np.cumsum([1, 0.1, 0.1, 0.1, 0.3, 0.1, 0.1, 0.1, 0.1, 0.4, 0.1, 0.1, 0.1])
    for values, expected in ((jumps, True), (np.sqrt(np.arange(13)), False)):
        ours = {("fine-tuned", column): number(value, 9) for column, value in zip(columns, values, strict=True)}
        assert jumps_at_4_and_9(Table(["fine-tuned"], columns, ours, "", [])) is expected
        assert jumps_at_4_and_9(Table(["fine-tuned"], columns[:9], ours, "", [])) is None


def test_balance_leaves_as_many_singular_as_plural_sentences_of_one_paradigm(
    model: str, data: str, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in Path(data).read_text(encoding="utf-8").splitlines()]
    chosen = [row for place, row in enumerate(rows) if place % 2 == 0 or place % 8 == 1]  # few plural ones
    path = tmp_path / "rpsv.jsonl"
    path.write_text("".join(f"{json.dumps({**row, 'group': PARADIGMS['rpsv']})}\n" for row in chosen), encoding="utf-8")

    def labels(balance: bool) -> Counter[str]:
        asked = call("table1", model, str(path), tmp_path, options={"balance": balance})
        return Counter(str(each.label) for test in (False, True) for each in agreement_half(asked, test=test))

    assert labels(balance=False)["singular"] > labels(balance=False)["plural"]
    assert labels(balance=True) == dict.fromkeys(("singular", "plural"), labels(balance=False)["plural"])
