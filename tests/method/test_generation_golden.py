"""What a decoder says and why, against golden numbers: greedy answers, contrastive erasure and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from test_decoders_golden import apart, arrays, having, opened, sentence

import wherefrom

GRADIENTS = {"logit": "logit", "logprob": "log-probability"}


@having("oracle", "s0/generation/sequence")
def test_answers_are_the_oracles(case: str) -> None:
    for number in (0, 1):
        prompt = sentence(case, number)[0]
        expected = {
            name: arrays(case, "oracle")[f"s{number}/generation/{name}"]
            for name in ("sequence", "logprob", "grad_x_input_logit", "grad_x_input_logprob", "loo_logprob")
        }
        how: dict[str, Any] = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None}
        for name, of in GRADIENTS.items():
            found = wherefrom.generate(prompt, opened(case), method=f"gradient-x-input(at=word, of={of})", **how)
            assert found.ids == expected["sequence"].tolist()
            assert apart(found.scores, expected[f"grad_x_input_{name}"]) < 1e-10
            assert np.allclose(found.log_probabilities, expected["logprob"], atol=1e-5)
        left_out = wherefrom.generate(prompt, opened(case), method="ablation(by=attention)", **how)
        assert apart(left_out.scores[:, : len(prompt)], expected["loo_logprob"]) < 1e-10


@having("oracle", "s0/erasure/plain/mask")
def test_erasure_is_the_oracles(case: str) -> None:
    """Of the token that is read nobody can say what is left when it is deleted; the oracle reads the one before it."""
    for number in (0, 1):
        ids, target = sentence(case, number)
        foil = int(arrays(case, "inputs")[f"foil{number}"])
        expected = arrays(case, "oracle")
        for what, method in (("mask", "ablation(by=attention"), ("remove", "ablation(by=delete")):
            plain = wherefrom.explain(ids, opened(case), method=f"{method})", target=target)
            both = wherefrom.explain(ids, opened(case), method=f"{method}, over=difference)", target=target, foil=foil)
            kept = len(ids) - (what == "remove")
            assert apart(plain.scores[:kept], expected[f"s{number}/erasure/plain/{what}"][:kept]) < 1e-10
            assert apart(both.scores[:kept], expected[f"s{number}/erasure/contrast/{what}"][:kept]) < 1e-10


@having("contrastive")
def test_contrastive_explanations_are_the_authors(case: str) -> None:
    theirs = arrays(case, "contrastive")
    for number in (0, 1):
        ids, target = sentence(case, number)
        foil = int(arrays(case, "inputs")[f"foil{number}"])
        for what, against in (("plain", None), ("contrast", foil)):
            if f"s{number}/{what}/grad_l1" not in theirs.files:
                continue
            names = {"grad_l1": "saliency(norm=l1, at=word)", "grad_x_input": "gradient-x-input(at=word)"}
            found = wherefrom.compare(ids, opened(case), methods=list(names.values()), target=target, foil=against)
            for name, method in names.items():
                assert apart(found[method].scores, theirs[f"s{number}/{what}/{name}"]) < 1e-10
            if case.startswith("gpt2"):  # on OPT and BLOOM their mask also moves positions
                over = "difference" if against is not None else "auto"
                erased = wherefrom.explain(
                    ids, opened(case), method="ablation", by="attention", over=over, target=target, foil=against
                )
                assert apart(erased.scores, theirs[f"s{number}/{what}/erasure"]) < 1e-10
