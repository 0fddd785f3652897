"""AttnLRP and CP-LRP: LXT's numbers on BERT, the rules written out once more, and what holds whatever the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import wherefrom

BEYOND = Path(__file__).parents[3] / "shared" / "golden-2" / "beyond"
WHERE = {"word": "word_embeddings", "embeddings": "embedding_output"}  # ours -> the golden name


@pytest.mark.skipif(not BEYOND.exists(), reason="no golden numbers in ../shared/golden-2")
def test_a_bert_classifier_has_the_relevance_of_lxt() -> None:
    """Through its tanh pooler, its GELUs and its norms after the residual; every class, both places to read."""
    folder = BEYOND / "bert_dx"
    model = transformers.BertForSequenceClassification.from_pretrained(folder / "model", dtype=torch.float64)
    inputs, theirs = np.load(folder / "inputs.npz"), np.load(folder / "attnlrp.npz")
    for row in range(3):
        n = int(inputs["attention_mask"][row].sum())
        read = {name: inputs[name][row, :n].tolist() for name in ("input_ids", "token_type_ids")}
        for at, name in WHERE.items():
            for target in range(3):
                found = wherefrom.explain(read, model, method="attn-lrp", at=at, target=target)
                expected = theirs[f"s{row}/{name}"][:, target]
                assert np.abs(found.scores - expected).max() <= 1e-7 * np.abs(expected).max()
