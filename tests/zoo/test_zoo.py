"""The models that ship inside: they open as plain folders, and know what they were taught."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer
from typer.testing import CliRunner

import wherefrom
from wherefrom import zoo
from wherefrom.cli import app
from wherefrom.errors import WherefromError

SHARED = Path(__file__).parents[2] / ".." / "shared" / "data"

# A sentence, and words of which one must be among the model's first five for the mask.
BLANKS = [
    ("she opened the [MASK] and walked into the room .", {"door", "doors"}),
    ("the film was so boring that i fell [MASK] .", {"asleep"}),
    ("he drank a glass of [MASK] .", {"water", "wine", "beer"}),
    ("i have [MASK] been to london before .", {"never"}),
    ("he put the letter in his [MASK] .", {"pocket", "hand", "hands"}),
    ("thank you very [MASK] .", {"much"}),
    ("in the north and in the [MASK] .", {"south", "east", "west"}),
    ("he was born on the first of [MASK] , 1850 .", {"may", "june", "july", "august", "january", "march"}),
    ("he has two brothers and three [MASK] .", {"sisters"}),
    ("it was a cold [MASK] in december .", {"day", "night", "evening"}),
    ("the king and the [MASK] sat on their thrones .", {"queen"}),
    ("my father and my [MASK] were married in church .", {"mother"}),
]

# Target, foil, and a sentence in which only the number of one word far from the mask decides.
NUMBER = [
    ("are", "is", "the books on the old table [MASK] new ."),
    ("is", "are", "the book on the old tables [MASK] new ."),
    ("were", "was", "the letters from my brother [MASK] lost ."),
    ("was", "were", "the letter from my brothers [MASK] lost ."),
    ("have", "has", "the men in the house [MASK] gone ."),
    ("has", "have", "the man in the houses [MASK] gone ."),
    ("themselves", "himself", "the boys hurt [MASK] ."),
    ("himself", "themselves", "the boy hurt [MASK] ."),
    ("these", "this", "he likes [MASK] books ."),
    ("this", "these", "he likes [MASK] book ."),
]


@pytest.fixture(scope="module")
def mlm():  # type: ignore[no-untyped-def]  # transformers types
    folder = zoo.path("wherefrom/mlm")
    network = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def at_mask(sentence: str) -> dict[str, float]:
        inputs = tokenizer(sentence, return_tensors="pt")
        [place] = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()
        with torch.inference_mode():
            logits = network(**inputs).logits[0, place.item()]
        return dict(zip(tokenizer.convert_ids_to_tokens(range(len(logits))), logits.tolist(), strict=True))

    return at_mask


@pytest.mark.parametrize(("sentence", "expected"), BLANKS)
def test_sensible_words_for_masks(mlm, sentence: str, expected: set[str]) -> None:  # type: ignore[no-untyped-def]
    logits = mlm(sentence)
    first = sorted(logits, key=logits.__getitem__, reverse=True)[:5]
    assert expected & set(first), first


@pytest.mark.parametrize(("target", "foil", "sentence"), NUMBER)
def test_the_mask_agrees_in_number_with_its_subject(mlm, target: str, foil: str, sentence: str) -> None:  # type: ignore[no-untyped-def]
    logits = mlm(sentence)
    assert logits[target] > logits[foil]


# A prompt, a next word and one that the model must find less likely.
NEXT = [
    ("The keys to the cabinet", " are", " is"),
    ("The key to the cabinets", " is", " are"),
    ("The doctor told the nurse that he", " was", " were"),
    ("The boys hurt", " themselves", " himself"),
    ("The girl looked at", " herself", " himself"),
    ("When Mary saw her brother, she gave", " him", " it"),
    ("He has two brothers and three", " sisters", " sister"),
    ("The king and the", " queen", " door"),
    ("Thank you very", " much", " many"),
]


@pytest.fixture(scope="module")
def lm():  # type: ignore[no-untyped-def]  # a Model, whose room is private
    return wherefrom.open_model("wherefrom/lm")


@pytest.mark.parametrize(("prompt", "word", "other"), NEXT)
def test_the_next_word_is_sensible(lm, prompt: str, word: str, other: str) -> None:  # type: ignore[no-untyped-def]
    inputs = lm.tokenizer(prompt, return_tensors="pt")
    first, second = (lm.tokenizer(text, add_special_tokens=False)["input_ids"][0] for text in (word, other))
    with torch.inference_mode():
        logits = lm.model(**inputs).logits[0, -1]
    assert logits[first] > logits[second]


def test_blimp_is_as_the_card_says() -> None:
    pytest.importorskip("pyarrow")
    if not SHARED.exists():
        pytest.skip("BLiMP lies in ../shared/data, which is not here")
    from wherefrom.training import accuracy
    from wherefrom.training.prompt import PromptColumns

    where = {"paradigm": ("anaphor_number_agreement",)}
    columns = PromptColumns(good="sentence_good", bad="sentence_bad", where=where)
    [score] = accuracy.prompts("wherefrom/mlm", SHARED / "blimp" / "test.parquet", columns)
    stated = zoo.card("wherefrom/mlm").measured["BLiMP anaphor_number_agreement (1000 pairs)"]
    assert score.accuracy == pytest.approx(stated, abs=0.002)


@pytest.mark.parametrize("name", zoo.names())
def test_a_shipped_folder_is_whole(name: str) -> None:
    folder = zoo.path(name)
    files = {file.name for file in folder.iterdir()}
    writes = {"generation_config.json"} if name == "wherefrom/translate" else set()
    card = zoo.card(name)
    reading = {"preprocessor_config.json"} if card.task == zoo.IMAGES else {"tokenizer.json", "tokenizer_config.json"}
    assert files - writes == {"card.json", "config.json", "model.safetensors", *reading}
    assert card.name == name
    assert card.measured
    assert all(0 < value < 100 for value in card.measured.values())
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    assert sorted(config.get("id2label", {}).values()) == sorted(card.labels)
    assert (folder / "model.safetensors").stat().st_size == pytest.approx(2 * card.parameters, rel=0.01)


def test_all_weights_fit_the_wheel() -> None:
    sizes = [(zoo.path(name) / "model.safetensors").stat().st_size for name in zoo.names()]
    assert sum(sizes) <= 90e6


def test_an_unknown_name_names_the_known_ones() -> None:
    with pytest.raises(WherefromError, match=r"'wherefrom/gpt'; there are: .*wherefrom/mlm"):
        zoo.path("wherefrom/gpt")


def test_looking_models_up_imports_no_torch() -> None:
    script = "import sys, wherefrom.zoo as z; z.card(z.names()[0]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_command_lists_models_and_prints_cards() -> None:
    listed = CliRunner().invoke(app, ["models"], env={"COLUMNS": "160"})
    assert listed.exit_code == 0
    assert all(name in listed.output for name in zoo.names())
    printed = CliRunner().invoke(app, ["models", "wherefrom/mlm"])
    assert "wherefrom train pretrain" in printed.output
    assert "BLiMP" in printed.output


def test_ablation_of_a_language_model_without_an_unknown_token_hides_tokens(lm) -> None:  # type: ignore[no-untyped-def]
    asked = {"model": lm, "target": " are", "foil": " is"}
    found = wherefrom.explain("The keys to the cabinet", method="ablation", **asked)
    hidden = wherefrom.explain("The keys to the cabinet", method="ablation(by=attention)", **asked)
    assert found.scores == pytest.approx(hidden.scores)
    assert found.tokens[1 + int(abs(found.scores[1:]).argmax())] == "ys"  # after the mark of the beginning
