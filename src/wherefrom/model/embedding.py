"""A sentence embedding as an output: one of its dimensions, or its similarity to another text.

    e(A)  the last hidden states at the readout position, a token's or the mean of all, through what follows the pooling
    y  =  e_k(A)                                a dimension; with a foil l the difference e_k(A) − e_l(A)
    y  =  cos(e(A), e(B))                       a similarity; with a foil C the difference to cos(e(A), e(C))

Where A is a picture and B a text (CLIP, SigLIP), y is their logit, exp(s) cos(e(A), e(B)) with the model's own s.
A is explained. B and C are fixed: they are read once, as texts of their own, pooled as A is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from wherefrom.errors import InvalidTarget, UnsupportedModel
from wherefrom.model.capture import rerunning
from wherefrom.model.model import Model
from wherefrom.model.parts import promote
from wherefrom.model.pictures import text_direction
from wherefrom.model.sentences import collate
from wherefrom.options import other_text
from wherefrom.result.answer import Readout, Target

KINDS = ("dimension", "similarity")
BY_RULE = {"first token": 0, "last token": -1, "mean": None}  # readouts that mean the same in any text, and where


def embedding_target(opened: Model, target: Any, foil: Any, readout: Readout, width: int) -> Target:
    """The number of a sentence embedding that is asked for."""
    if (other := other_text(target)) and opened.both is not None:
        return Target("similarity", None, other, foil_label=None if foil is None else other_text(foil) or str(foil))
    if other:
        if opened.images:
            raise InvalidTarget(f"{opened.name} reads images alone, and no text that one could be similar to")
        if readout.why not in BY_RULE:
            raise InvalidTarget(
                "a similarity compares two embeddings that are read in the same way; position= is 'first', 'last' or "
                "'mean' here"
            )
        third = None if foil is None else other_text(foil) or str(foil)  # a foil may be the bare text
        if third == other:
            raise InvalidTarget(f"target and foil are the same text, '{other}'; expected two")
        return Target("similarity", None, other, foil_label=third)
    index, against = _dimension(opened, target, width), None if foil is None else _dimension(opened, foil, width)
    if against == index:
        raise InvalidTarget(f"target and foil are the same dimension, {index}; expected two")
    return Target("dimension", index, str(index), foil=against, foil_label=None if against is None else str(against))


def _dimension(opened: Model, wanted: Any, width: int) -> int:
    if isinstance(wanted, str) and wanted.isascii() and wanted.isdecimal():
        wanted = int(wanted)
    if isinstance(wanted, int) and not isinstance(wanted, bool) and 0 <= wanted < width:
        return wanted
    raise InvalidTarget(
        f"{opened.name} is a bare encoder and predicts nothing: target={wanted!r} is none of its outputs. Expected the "
        f"similarity to another text (target=wherefrom.similarity('another text')) or a "
        f"dimension from 0 to {width - 1}; or open the checkpoint with a head (task=)"
    )


def embedding_number(
    opened: Model, output: Any, row: int, target: Target, readout: Readout, n: int | None, *, frozen: bool = False
) -> Tensor:
    """The number as a scalar of the model's own graph; `frozen`: the length of e(A) is a constant on the way back."""
    found = embedding(opened, output, row, readout, n)
    if target.kind == "dimension":
        number = found[target.index]
        return number if target.foil is None else number - found[target.foil]
    length = found.norm().detach() if frozen else found.norm()
    assert target.label is not None
    towards = _direction(opened, target.label, readout)
    if target.foil_label is not None:
        towards = towards - _direction(opened, target.foil_label, readout)
    similar: Tensor = (found @ towards.to(found)) / length
    return similar


def embedding(opened: Model, output: Any, row: int, readout: Readout, n: int | None) -> Tensor:
    """e(A) of one sentence of a batch, which has n tokens; float32 or float64."""
    if opened.unread:
        raise UnsupportedModel(
            f"the embeddings of {opened.name} go through {' and '.join(opened.unread)} after the pooling, which is not "
            f"read from a folder; pass the model as sentence_transformers.SentenceTransformer loads it"
        )
    if "image_embeds" in output:
        beside: Tensor = promote(output.image_embeds[row])
        return beside
    states = promote(output.last_hidden_state[row, :n])
    found: Tensor = states.mean(0) if readout.position is None else states[readout.position]
    for module in opened.then:
        found = module({"sentence_embedding": found[None]})["sentence_embedding"][0]
    return found


def _direction(opened: Model, text: str, readout: Readout) -> Tensor:
    """e(B) / ‖e(B)‖ of a text that is not explained: read once."""
    key = (text, readout.why)
    if opened.both is not None and key not in opened.fixed:
        opened.fixed[key] = text_direction(opened, text)
    if key not in opened.fixed:
        (sentence,), _ = opened.reader().read(text)

        @torch.no_grad()
        def run() -> Tensor:
            output = opened.forward(collate([sentence], opened.pad_id))
            return embedding(opened, output, 0, Readout(BY_RULE[readout.why], readout.why), None)

        found = rerunning(opened, run)
        opened.fixed[key] = found / found.norm()
    return opened.fixed[key]
