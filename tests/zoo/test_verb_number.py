"""The shipped verb-number model: it follows the subject, not the noun next to the verb."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from wherefrom import zoo

SHARED = Path(__file__).parents[2] / ".." / "shared" / "data"

# Each prefix is asked as it is and with its subject's number changed: only the subject can flip the answer.
SUBJECTS = [
    ("the {} to the cabinets", "key", "keys"),
    ("the {} to the cabinet", "key", "keys"),
    ("the {} on the table", "book", "books"),
    ("the {} on the tables", "book", "books"),
    ("the {} of the story", "author", "authors"),
    ("the {} of the stories", "author", "authors"),
    ("the {} with the red roofs", "house", "houses"),
    ("the {} with the red roof", "house", "houses"),
    ("the {} near the old churches", "river", "rivers"),
    ("the {} near the old church", "river", "rivers"),
]


@pytest.fixture(scope="module")
def model():  # type: ignore[no-untyped-def]  # transformers types
    folder = zoo.path("wherefrom/agreement")
    network = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    return network, AutoTokenizer.from_pretrained(folder)


def test_the_subject_decides_across_attractors(model) -> None:  # type: ignore[no-untyped-def]
    network, tokenizer = model
    wrong = []
    for frame, *nouns in SUBJECTS:
        for noun, expected in zip(nouns, ("singular", "plural"), strict=True):
            with torch.inference_mode():
                logits = network(**tokenizer(frame.format(noun), return_tensors="pt")).logits
            if network.config.id2label[logits.argmax().item()] != expected:
                wrong.append(frame.format(noun))
    assert len(wrong) <= 0.1 * 2 * len(SUBJECTS), wrong  # guessing, or reading the last noun, errs on half of them


def test_it_is_the_paper_s_encoder(model) -> None:  # type: ignore[no-untyped-def]
    network, tokenizer = model
    config = network.config
    assert (config.model_type, config.n_layer, config.n_head, config.n_embd) == ("gpt2", 6, 8, 128)
    assert config._attn_implementation == "eager"
    one, other = (tokenizer(f"the key to the {end}", return_tensors="pt") for end in ("cabinet", "cabinets"))
    assert one["input_ids"][0, -1] == tokenizer.cls_token_id
    first = [network.transformer(**x).last_hidden_state[0, 0] for x in (one, other)]
    assert (first[0] - first[1]).abs().max() > 1e-6  # the first word sees the last: no causal mask


def test_a_padded_batch_answers_as_single_prefixes(model) -> None:  # type: ignore[no-untyped-def]
    network, tokenizer = model
    texts = ["the dogs", "the key to the cabinets that stand in the corner of the room"]
    with torch.inference_mode():
        together = network(**tokenizer(texts, padding=True, return_tensors="pt")).logits
        alone = torch.cat([network(**tokenizer(text, return_tensors="pt")).logits for text in texts])
    assert (together - alone).abs().max() < 1e-5


def test_linzen_is_as_the_card_says() -> None:
    pytest.importorskip("pyarrow")
    if not SHARED.exists():
        pytest.skip("linzen_lgd lies in ../shared/data, which is not here")
    from wherefrom.training import accuracy
    from wherefrom.training.labelled import Columns

    columns = Columns(text="sentence", until="verb_index", names={"0": "singular", "1": "plural"})
    scores = accuracy.labels("wherefrom/agreement", SHARED / "linzen_lgd" / "test.parquet", columns, by="n_attractors")
    stated = zoo.card("wherefrom/agreement").measured
    by = {score.group: score.accuracy for score in scores}
    assert by["2"] == pytest.approx(stated["linzen_lgd test, 2 attractors"], abs=0.005)
    # Most of these are plural: the mean of both labels' accuracies shows that it does not only guess the frequent one.
    [two] = [score for score in scores if score.group == "2"]
    assert two.balanced is not None
    assert two.balanced > 0.7
