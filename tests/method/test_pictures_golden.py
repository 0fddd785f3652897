"""The authors' numbers on vision transformers: Chefer et al. (2021a, 2021b) on ViT and CLIP, Grad-ECLIP, DecompX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

import golden
import wherefrom
from wherefrom.model import Model, open_model

EXACT = {"rtol": 0, "atol": 1e-9}


def load_model(case: str, cls: str) -> Any:
    folder = golden.case_folder(golden.BEYOND, case) / "model"
    return getattr(transformers, cls).from_pretrained(folder, dtype=torch.float64).eval()


def opened(case: str, cls: str = "ViTForImageClassification", tokenizer: Any = None) -> Model:
    return open_model(load_model(case, cls), tokenizer)


def arrays(case: str, file: str) -> Any:
    return golden.load_arrays(golden.BEYOND, case, file)


def near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found / np.abs(expected).max(), expected / np.abs(expected).max(), **EXACT)


@pytest.mark.parametrize("case", ["vit", "vit14"])
def test_rollout_and_relevance_are_the_authors(case: str) -> None:
    model, theirs = opened(case), arrays(case, "vit")
    pixels = arrays(case, "inputs")["pixel_values"]
    for number, values in enumerate(pixels):
        given = {"pixel_values": torch.tensor(values)}
        for start in (0, 1):
            found = wherefrom.explain(given, model, method="attention-rollout", layers=(start, None))
            near(found.scores[1:], theirs[f"s{number}/rollout_start{start}"])
        classes = {int(key.split("/")[1].removeprefix("class")) for key in theirs if key.startswith(f"s{number}/class")}
        for target in classes:
            of_class = f"s{number}/class{target}"
            generic = wherefrom.explain(given, model, method="generic-attention", target=target)
            near(generic.scores[1:], theirs[f"{of_class}/generic"])
            # Their "partial_lrp_last_layer" is of another class, with older rules, and differs.
            partial = wherefrom.explain(given, model, method="partial-lrp", target=target)
            near(partial.scores[1:], theirs[f"{of_class}/last_layer"])
            for start in (0, 1):
                found = wherefrom.explain(
                    given, model, method="transformer-attribution", start_layer=start, target=target
                )
                near(found.scores[1:], theirs[f"{of_class}/transformer_attribution_start{start}"])


def test_attention_and_its_gradients_are_the_authors() -> None:
    model, theirs = opened("vit"), arrays("vit", "vit")
    given = {"pixel_values": torch.tensor(arrays("vit", "inputs")["pixel_values"][0])}
    found = wherefrom.explain(given, model, method="attention", head="all")
    near(found.head_maps, theirs["s0/attention"])


@pytest.mark.parametrize(("option", "name"), [({}, "default"), ({"bias": "none"}, "nobias")])
def test_decompx_is_the_oracles(option: dict[str, Any], name: str) -> None:
    model, theirs = opened("vit"), arrays("vit", "decompx_oracle")
    for number, values in enumerate(arrays("vit", "inputs")["pixel_values"]):
        given = {"pixel_values": torch.tensor(values)}
        for target in range(5):
            found = wherefrom.explain(given, model, method="decompx", target=target, **option)
            near(found.scores, theirs[f"{name}/classifier"][number, :, target])
        maps = wherefrom.explain(given, model, method="decompx-map", **option).maps
        near(maps, theirs[f"{name}/aggregated_norms"][:, number])


class Ids:
    """A tokenizer that is given numbers."""

    def __call__(self, text: str, **_: Any) -> Any:
        return {"input_ids": torch.tensor([[int(number) for number in text.split()]])}

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        return ids


def test_generic_relevance_of_clip_is_the_authors() -> None:
    inputs, theirs = arrays("clip", "inputs"), arrays("clip", "clip")
    model = opened("clip", "CLIPModel", Ids())
    given = {"pixel_values": torch.tensor(inputs["pixel_values"][0])}
    for number, ids in enumerate(inputs["input_ids"]):
        target = wherefrom.similarity(" ".join(map(str, ids)))
        for start, layers in ((0, (0, None)), (1, (1, None)), (-1, (model.depth - 1, None))):
            found = wherefrom.explain(given, model, method="generic-attention", target=target, layers=layers)
            near(found.scores[1:], theirs[f"generic_start{start}/image"][number])
            assert float(found.prediction or 0) == pytest.approx(inputs["logits_per_image"][0, number], rel=1e-3)


def eclip(model: Any, pixels: Any, ids: Any) -> Any:
    """Grad-ECLIP of an image and a text by its formula, with hooks on the last layer."""
    last, kept = model.vision_model.encoder.layers[-1].self_attn, {}
    hooks = [
        getattr(last, name).register_forward_hook(lambda _, __, made, name=name: kept.update({name: made}))
        for name in ("q_proj", "k_proj", "v_proj")
    ]
    hooks += [last.out_proj.register_forward_pre_hook(lambda _, given: kept.update(o=given[0]))]
    found = model(pixel_values=pixels, input_ids=ids)
    (gradient,) = torch.autograd.grad((found.image_embeds * found.text_embeds).sum(), kept["o"])
    for hook in hooks:
        hook.remove()
    query, keys = last.out_proj(kept["q_proj"][0, :1]), last.out_proj(kept["k_proj"][0, 1:])
    alike = torch.cosine_similarity(query, keys, dim=-1)
    weight = (alike - alike.min()) / (alike.max() - alike.min())
    return (weight * (gradient[0, 0] * kept["v_proj"][0, 1:]).sum(-1)).relu().detach().numpy()


def test_grad_eclip_is_the_formula_and_that_the_authors_on_their_one_head() -> None:
    inputs, theirs = arrays("clip", "inputs"), arrays("clip", "clip")
    pixels, texts = torch.tensor(inputs["pixel_values"]), torch.tensor(inputs["input_ids"])
    model = opened("clip", "CLIPModel", Ids())
    given = {"pixel_values": pixels[0]}
    clip = load_model("clip", "CLIPModel")
    for ids in texts:
        target = wherefrom.similarity(" ".join(map(str, ids.tolist())))
        scores = wherefrom.explain(given, model, method="grad-eclip", target=target).scores
        expected = eclip(clip, pixels, ids[None])
        near(scores[1:] / scores.max(), expected / expected.max())
        assert scores[0] == 0
    last = clip.vision_model.encoder.layers[-1].self_attn
    last.num_heads, last.head_dim, last.scale = 1, last.embed_dim, last.embed_dim**-0.5
    for number, ids in enumerate(texts):
        near_theirs = {"rtol": 0, "atol": 1e-6}  # they add something small to the divisor
        np.testing.assert_allclose(
            eclip(clip, pixels, ids[None]), theirs[f"grad_eclip/image{number}"].ravel(), **near_theirs
        )


@pytest.mark.parametrize("case", ["vit", "vit14"])
def test_fused_rollout_is_the_code_that_people_run(case: str) -> None:
    model, theirs = opened(case), arrays(case, "vit")
    given = {"pixel_values": torch.tensor(arrays(case, "inputs")["pixel_values"][0])}
    for fusion in ("mean", "max", "min"):
        for discard in (0.0, 0.5, 0.9):
            method = f"attention-fused(fusion={fusion}, discard={discard}, protocol=code)"
            found = wherefrom.explain(given, model, method=method).scores[1:]
            near(found / found.max(), theirs[f"s0/jacobgil_rollout_{fusion}_discard{discard}"].ravel())
    plain, usual = (
        wherefrom.explain(given, model, method=name).scores
        for name in ("attention-fused(fusion=mean, discard=0)", "attention-rollout")
    )
    np.testing.assert_allclose(plain, usual, rtol=1e-12)
    np.testing.assert_allclose(wherefrom.explain(given, model, method="attention-fused").maps.sum(-1), 1)
