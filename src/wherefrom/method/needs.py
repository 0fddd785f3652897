"""What a method needs of a model, in words, and which blocks cannot give it.

A method says its words once (`needs=`); what a model's blocks are like is found once (`Model.traits`). Whoever asks
whether the one is defined on the other, the pipeline before it runs anything, the default methods, `wherefrom doctor`
and `wherefrom methods --model`, asks `undefined` here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wherefrom.model import Model
    from wherefrom.model.traits import Traits

# A model whose blocks are not known can still give the last four.
NEEDS = {
    "one-stream": "one stream of tokens",
    "attention": "attention weights",
    "queries-keys": "queries and keys",
    "known-scores": "queries and keys that it can follow back to what attention reads",
    "values": "values",
    "output-projection": "W_O",
    "block-input": "the block's input",
    "first-norm": "its first norm",
    "both-norms": "both of its norms",
    "ffn-matrices": "the matrices of its FFN",
    "plain-ffn": "an FFN without a gate",
    "sequential": "an FFN that reads what attention made",
    "layer-norms": "LayerNorms",
    "two-norms": "one norm for each branch",
    "bare-branches": "no norm on a branch",
    "bare-stream": "a stream that only adds up",
    "linear-head": "a head that is linear but for its norm",
    "unscaled": "branches added as they are",
    "own-keys": "keys and values of its own for each head",
    "linear-values": "values that are a linear map of what attention reads",
    "linear-keys": "queries and keys that are linear maps of what attention reads",
    "plain-softmax": "attention weights that are the softmax of q·k alone",
    "hidden-states": "the hidden states of all layers",
    "layers": "what all blocks did, kept together",
    "weights": "the weights of all blocks and of the head, in float64",
    "frozen-pass": "a pass frozen where it is not linear, and one backward pass",
    "read-token": "a head that reads one token",
    "head": "an output of a linear layer",
    "chained-head": "a head that is a chain of linear layers, activations and norms at one token",
    "gradient": "one backward pass",
    "baseline": "a pass on a baseline",
    "reruns": "further forward passes",
    "rerun-gradients": "further forward and backward passes",
}
WITHOUT_BLOCKS = {"one-stream", "gradient", "baseline", "reruns", "rerun-gradients"}
OF_EMBEDDINGS = {"gradient", "baseline", "rerun-gradients"}  # of these, what takes the embeddings of single tokens
BACKWARD = {"gradient", "rerun-gradients"}
# What stands in the way of a need, where some blocks cannot give it; those last that take a pass to be seen.
IN_THE_WAY: dict[str, tuple[Callable[[Traits], bool], str]] = {
    "one-stream": (lambda t: t.opened.two_streams, "two, an encoder's and a decoder's"),
    "reruns": (lambda t: t.opened.hears, "sound, of which nothing can stand in for a frame"),
    "baseline": (lambda t: t.opened.hears, "sound, of which nothing can stand in for a frame"),
    "queries-keys": (lambda t: t.hidden_scores, "attention that does not show its queries and keys"),
    "ffn-matrices": (lambda t: t.experts, "an FFN of experts"),
    "sequential": (lambda t: t.parallel, "an FFN beside attention"),
    "plain-ffn": (lambda t: t.gated, "a gated FFN"),
    "bare-branches": (lambda t: bool(t.branch_norms), "norms on its branches"),
    "bare-stream": (lambda t: t.normed_stream, "norms on its stream"),
    "linear-head": (lambda t: t.bent_head, "a head with an activation"),
    "layer-norms": (lambda t: t.rms, "RMS norms"),
    "own-keys": (lambda t: t.grouped, "heads that share keys and values"),
    "unscaled": (lambda t: t.scaled, "branches that are scaled"),
    "two-norms": (lambda t: t.odd_norms, "branches without a norm, or with two"),
    "frozen-pass": (lambda t: t.loose_activation, "an activation that is a function of its own code"),
    "linear-values": (lambda t: t.latent, "values made through a latent"),
    "head": (lambda t: t.opened.task == "encoder", "no head: it gives an embedding, whose numbers are none"),
    "read-token": (lambda t: t.pooled, "a head that reads several"),
    "linear-keys": (lambda t: t.bent_keys, "queries and keys that are turned, normed or scaled"),
    "known-scores": (lambda t: t.unknown_scores, "attention scores by a rule that wherefrom does not know"),
    "plain-softmax": (lambda t: t.bent_softmax, "sinks, a soft-cap or a position bias in its softmax"),
    "chained-head": (lambda t: t.odd_head, "another one"),
}
PLAIN_BLOCKS = frozenset(IN_THE_WAY) - {
    "reruns",
    "baseline",
    "bare-stream",
    "head",
    "read-token",
    "frozen-pass",
    "linear-head",
    "chained-head",
}  # the blocks of BERT and GPT-2


def lacking(needs: Iterable[str], opened: Model, wants: str = "needs") -> Iterator[str]:
    """Why a model cannot give what a method needs (or otherwise `wants`): a clause for each word that it cannot."""
    traits, words = opened.traits, set(needs)
    if not traits.mapped:
        if words - WITHOUT_BLOCKS:
            yield f"it looks into the blocks, which wherefrom does not know for '{opened.family.name}'"
        elif words & OF_EMBEDDINGS and traits.embeds_otherwise:
            yield "it needs the embedding of each token, and this model embeds tokens in another order, or more of them"
        elif words & BACKWARD and traits.refuses_gradients:
            yield f"it {wants} {NEEDS['gradient']}, which this model's own code does not take but in training"
        return
    for word, (there, what) in IN_THE_WAY.items():
        if word in words and there(traits):
            yield f"it {wants} {NEEDS[word]}, and this model has {what}"


def undefined(needs: Iterable[str], opened: Model, wants: str = "needs") -> str | None:
    """Why a method with these needs is not defined on a model, in a clause; None if it is."""
    return next(lacking(needs, opened, wants), None)
