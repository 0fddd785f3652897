"""Checks that a method or a model of your own can be trusted, as scikit-learn's `check_estimator` does.

    from wherefrom.testing import check_family, check_method

    check_method("value-norm")                  # or the decorated function; options may stand in the name
    check_family(AutoModel.from_pretrained("…"))

`check_method` runs a registered method on tiny random models built here, a BERT and a GPT-2 in float64. It must say
what it is and what it costs, refuse options of a wrong kind, leave the model as it was, give finite numbers of the
right shape, and keep the identities that it claims (`checks=`; `wherefrom.method.base.CHECKS` lists them).

`check_family` takes a model through a pass and puts every block together again from the parts that its row in
model/families.py names: that must give what the model itself computed.

What does not hold raises `CheckFailed`, which says what and by how much, of a method a line for each.
"""

from __future__ import annotations

import copy
import inspect
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from wherefrom.api import capture, explain
from wherefrom.errors import InvalidOption, WherefromError, WherefromWarning
from wherefrom.method import MethodSpec, choose, methods
from wherefrom.method.needs import PLAIN_BLOCKS, undefined
from wherefrom.model import LayerTrace, Model, Trace, open_model
from wherefrom.model.keys import linear_keys
from wherefrom.model.undo import EAGER, configs
from wherefrom.result.explanation import Explanation
from wherefrom.typecheck import kinds_of
from wherefrom.work import BatchShape

__all__ = ["CheckFailed", "check_family", "check_method"]

WORDS = ("a", "the", "film", "cat", "key", "deep", "good", "bad", "was", "is", "not", "very", "and", "of", "meaning")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TEXTS = ("a good film", "the deep meaning of a very bad cat was not good", "the key is not a cat")
KINDS = ("bert", "gpt2")
PERMUTED = [3, 1, 7, 0, 2, 6, 5, 4]
EXACT = 1e-7  # differences in float64, relative to the largest number: rounding, through blocks and back
CLOSE = 0.01  # of the scores' total, by which those that are summed up numerically may miss it
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}  # of a block put together again; half precision would hide mistakes
ROUNDED = 1e-5  # of models whose norms, softmax or rotary angles transformers computes in float32 whatever the dtype


class CheckFailed(AssertionError):
    """What was checked does not hold."""


# A method --------------------------------------------------------------------------------------------------


def check_method(method: str | Callable[..., Any]) -> None:
    """Check a registered method, by its name (with options, if you like) or its function; all that fails is named."""
    spec = choose(_name_of(method))
    wrong = _failed((_check_statement, _check_options, _check_cost), spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WherefromWarning)  # rows of random models that hold no contribution, say
        numbers = _failed((_check_numbers,), spec)
        # Identities of numbers that are wrong by themselves would say the same again.
        claimed = () if numbers else [IDENTITIES[each] for each in IDENTITIES if each in spec.method.checks]
        wrong += numbers + _failed(claimed, spec)
    if wrong:
        raise CheckFailed("\n".join(wrong))


def _failed(checks: Sequence[Callable[[MethodSpec], None]], spec: MethodSpec) -> list[str]:
    """What each of the checks says that fails, or what refused the method's result."""
    found = []
    for check in checks:
        try:
            check(spec)
        except (CheckFailed, WherefromError) as error:
            found.append(str(error))
    return found


def _name_of(method: str | Callable[..., Any]) -> str:
    if isinstance(method, str):
        return method
    name = next((each.name for each in methods() if inspect.unwrap(each.run) is inspect.unwrap(method)), None)
    if name is None:
        raise CheckFailed(f"{getattr(method, '__name__', method)} is not registered; decorate it with @method(…)")
    return name


def _check_statement(spec: MethodSpec) -> None:
    method = spec.method
    if not inspect.getdoc(method.run) or not method.summary.strip():
        raise CheckFailed(f"'{method.name}' has no docstring; its first line is what `wherefrom methods` prints")
    if not method.idea.strip():
        raise CheckFailed(f"'{method.name}' has no idea=, under which it is listed")


def _check_options(spec: MethodSpec) -> None:
    """Every option says what it may be, and anything else is refused before the model is run."""
    kinds = kinds_of(spec.method.run)
    for option, default in spec.method.options.items():
        if kinds[option] is Any:
            raise CheckFailed(f"'{spec.method.name}' does not say by an annotation what its option {option} may be")
        choose(spec.method.name, {option: default})
        try:
            choose(spec.method.name, {option: object()})
        except WherefromError:
            continue
        raise CheckFailed(f"'{spec.method.name}' takes anything for its option {option}; annotate what it may be")


def _check_cost(spec: MethodSpec) -> None:
    cost = spec.method.cost
    if cost is None:
        raise CheckFailed(f"'{spec.method.name}' states no cost=, so its time cannot be estimated")
    options = {**spec.method.options, **spec.options}
    works = [cost(BatchShape((n,), 12, 12, 768, 3072, 4), options) for n in (16, 256)]
    small, large = (sum(work[:-1]) for work in works)
    if not 0 < small < large:
        raise CheckFailed(
            f"'{spec.method.name}' costs {small:g} for 16 tokens and {large:g} for 256; expected more for more tokens"
        )


def _kinds(spec: MethodSpec) -> list[str]:
    """The models on which the method is defined."""
    found = [kind for kind in KINDS if undefined(spec.method.needs, open_model(_model(kind))) is None]
    if not found:
        raise CheckFailed(f"'{spec.method.name}' is defined neither on a BERT nor on a GPT-2; it needs too much")
    return found


def _check_numbers(spec: MethodSpec) -> None:
    """On every kind of model: shape (which `explain` looks at), sign, and the model as it was before."""
    for kind in _kinds(spec):
        model = awkward(copy.deepcopy(_model(kind)))
        before = state(model)
        found = _explained(spec, TEXTS[1], model)
        refuse_changes(before, state(model), f"'{spec.method.name}' on {kind}")
        numbers = _numbers(found)
        if not (found.signed or (numbers >= 0).all()):
            raise CheckFailed(
                f"'{spec.method.name}' gives {numbers.min():g} on {kind}, below zero, and does not say signed=True"
            )


# Its identities --------------------------------------------------------------------------------------------


def _batch_equals_single(spec: MethodSpec) -> None:
    for kind in _kinds(spec):
        together = _explained(spec, list(TEXTS), _model(kind))
        for text, found in zip(TEXTS, together, strict=True):
            alone = _explained(spec, text, _model(kind))
            _same(spec, "batch-equals-single", _numbers(found), _numbers(alone), f"{text!r} on {kind}")


def _token_permutation(spec: MethodSpec) -> None:
    model = copy.deepcopy(_model("bert"))
    with torch.no_grad():
        model.base_model.embeddings.position_embeddings.weight.zero_()
    words = TEXTS[1].split()[: len(PERMUTED)]
    straight = _numbers(_explained(spec, " ".join(words), model))
    permuted = _numbers(_explained(spec, " ".join(words[i] for i in PERMUTED), model))
    order = [0, *(i + 1 for i in PERMUTED), len(words) + 1]  # the tokenizer's own stay in their places
    expected = straight[order] if straight.ndim == 1 else straight[:, order][:, :, order]
    _same(spec, "token-permutation", permuted, expected, "the words in another order")


def _hidden_tokens(spec: MethodSpec) -> None:
    ids = _tokenizer()(TEXTS[0])["input_ids"]
    hidden = {"input_ids": ids, "attention_mask": [0, *[1] * (len(ids) - 2), 0]}
    maps = _numbers(_explained(spec, hidden, _model("bert"))).copy()
    maps[:, range(len(ids)), range(len(ids))] = 0
    _same(spec, "hidden-tokens", maps[:, :, [0, -1]], 0 * maps[:, :, [0, -1]], "tokens that the mask hides")
    causal = _numbers(_explained(spec, TEXTS[1], _model("gpt2")))
    _same(spec, "hidden-tokens", np.triu(causal, 1), 0 * causal, "tokens that come later in a causal model")


def _rows_sum_to_one(spec: MethodSpec) -> None:
    for kind in _kinds(spec):
        sums = _numbers(_explained(spec, TEXTS[1], _model(kind))).sum(-1)
        _same(spec, "rows-sum-to-one", sums, np.ones_like(sums), f"rows on {kind}")


def _sign_flips_with_foil(spec: MethodSpec) -> None:
    for kind in _kinds(spec):
        one = _numbers(_explained(spec, TEXTS[1], _model(kind), foil=1))
        other = _numbers(_explained(spec, TEXTS[1], _model(kind), target=1, foil=0))
        _same(spec, "sign-flips-with-foil", one, -other, f"target and foil exchanged on {kind}")


def _adds_up(spec: MethodSpec) -> None:
    for kind in _kinds(spec):
        found = _explained(spec, TEXTS[1], _model(kind))
        total = float(np.abs(found.scores).sum())
        if found.delta is None or not abs(found.delta) <= CLOSE * total:
            raise CheckFailed(
                f"'{spec.asked}' claims adds-up, and on {kind} its scores miss their sum by {found.delta}, where their "
                f"magnitudes add up to {total:g}; Scores(delta=…) says by how much they miss it"
            )


IDENTITIES: dict[str, Callable[[MethodSpec], None]] = {
    "batch-equals-single": _batch_equals_single,
    "token-permutation": _token_permutation,
    "hidden-tokens": _hidden_tokens,
    "rows-sum-to-one": _rows_sum_to_one,
    "sign-flips-with-foil": _sign_flips_with_foil,
    "adds-up": _adds_up,
}


def _explained(spec: MethodSpec, inputs: Any, model: Any, *, target: int = 0, foil: int | None = None) -> Any:
    asked: dict[str, Any] = {"target": target, "foil": foil} if spec.method.class_specific else {}
    return explain(inputs, model, _tokenizer(), spec, **asked)


def _numbers(found: Explanation) -> NDArray[np.float64]:
    """What is compared: the layer maps where there are some, [L, n, n], else the scores [n]."""
    return np.asarray(found.scores if found.maps is None else found.maps, dtype=np.float64)


def _same(spec: MethodSpec, identity: str, found: Any, expected: Any, where: str) -> None:
    scale = max(float(np.abs(expected).max()), float(np.abs(found).max()), np.finfo(float).tiny)
    apart = float(np.abs(found - expected).max()) / scale
    if not apart <= EXACT:
        raise CheckFailed(
            f"'{spec.asked}' claims {identity}, and {where}: numbers differ by {apart:.2g} of the largest "
            f"(allowed: {EXACT:g})"
        )


# The models to try it on -----------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _model(kind: str) -> Any:
    """A tiny classifier in float64 with every weight, bias and norm random and far from its initial value."""
    shape = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 20, "num_labels": 3}
    more = {"intermediate_size": 40} if kind == "bert" else {"n_inner": 40}
    config = transformers.AutoConfig.for_model(
        kind, **shape, **more, max_position_embeddings=16, pad_token_id=0, bos_token_id=2, eos_token_id=3
    )
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            around = 1.0 if bool((weight == 1).all()) else 0.0  # the scale of a norm
            weight.copy_(around + 0.3 * torch.randn(weight.shape, generator=random))
    return model.double().eval()


@lru_cache(maxsize=1)
def _tokenizer() -> Any:
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(each, vocabulary[each]) for each in ("[CLS]", "[SEP]")]
    )
    names = {f"{each.strip('[]').lower()}_token": each for each in SPECIAL}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)


def awkward(model: Any) -> Any:
    """The model in a state that carelessness would spoil: training, half of it frozen, gradients and hooks in place."""
    model.train()
    model.get_input_embeddings().eval()
    for number, weight in enumerate(model.parameters()):
        weight.requires_grad_(number % 2 == 0)
        if number % 4 == 0:
            weight.grad = torch.full_like(weight, 0.5)
    model.base_model.register_forward_hook(lambda *_: None)
    return model


# A family --------------------------------------------------------------------------------------------------


def check_family(model: Any, **opening: Any) -> None:
    """Check that a model is followed exactly. `opening`: what `wherefrom.open_model` takes beside it."""
    opened = model if isinstance(model, Model) else open_model(model, **opening)
    opened.need_blocks("check_family")
    if opened.images or opened.two_streams:
        raise InvalidOption(
            f"check_family reads one stream of tokens, and {opened.name} reads "
            f"{'pictures' if opened.images else 'two'}; opening it has proved its blocks already"
        )
    if opened.dtype not in TOLERANCE:
        raise InvalidOption(
            f"the model is in {opened.dtype}, whose rounding hides mistakes; open it in float32 or float64"
        )
    before = state(opened.model)
    plain = copy.deepcopy(opened.model).eval()  # to ask for what the model says itself: that leaves traces in it
    long, short = _ids(opened, 9), _ids(opened, 5)
    trace = capture([long, short], opened)
    _check_states(opened, plain, trace)
    for layer in trace.layers:
        _check_layer(opened, layer)
    _check_batch(opened, trace, [long, short])
    hidden = {"input_ids": [*short, *long], "attention_mask": [0] * len(short) + [1] * len(long)}
    for what, each in (("padded on the right", trace), ("hidden on the left", capture(hidden, opened))):
        _check_output(opened, plain, each, what)
    refuse_changes(before, state(opened.model), opened.family.name)


def _ids(opened: Model, n: int) -> list[int]:
    """Tokens from all over the vocabulary, the same at every call."""
    usual = [token for token in range(opened.vocabulary_size) if token != opened.pad_id]
    return [usual[(7 * i + 11 * n) % len(usual)] for i in range(1, n + 1)]


def _check_states(opened: Model, plain: Any, trace: Trace) -> None:
    """What enters each block is what the model itself says of its hidden states."""
    with torch.no_grad():
        hidden = plain(**_inputs(opened, trace), output_hidden_states=True).hidden_states
    if len(hidden) != len(trace.layers) + 1:
        raise CheckFailed(
            f"{opened.family.name}: {len(trace.layers)} blocks were followed; the model has {len(hidden) - 1}: "
            f"does `layers` in its row of model/families.py name them all?"
        )
    for number, layer in enumerate(trace.layers):
        _close(opened, f"the input of block {number}", layer.x, hidden[number], layer.mask)


def _check_layer(opened: Model, layer: LayerTrace) -> None:
    """The parts that the row names give what the block computed."""
    block, where = layer.block, f"of block {layer.index}"
    source = block.source(layer.x)
    projected = [] if block.latent else [("values", block.w_v, layer.value)]
    if linear_keys(layer):  # rotary and relative positions act on queries and keys after their projections
        projected += [("queries", block.w_q, layer.query), ("keys", block.w_k, layer.key)]
    for name, weights, taken in projected:
        made = torch.einsum("bnd,hdk->bhnk", source - source[:, :1], weights)  # differences: without the bias
        _close(
            opened, f"the {name} {where}", made.transpose(1, 2), (taken - taken[:, :, :1]).transpose(1, 2), layer.mask
        )
    if undefined(PLAIN_BLOCKS - {"plain-softmax"}, opened) is None:  # whose attention weights are the softmax of q·k
        seen = (layer.attention > 0).any(1, keepdim=True)
        logits = (layer.query @ layer.key.mT * layer.scaling).masked_fill(~seen, -torch.inf)
        rows = layer.attention.transpose(1, 2)
        _close(opened, f"the attention weights {where}", logits.softmax(-1).transpose(1, 2), rows, layer.mask)
    bias = block.b_o if block.after is None else block.after.linear(block.b_o) / layer.branch_scale + block.after.beta
    mixed = torch.einsum("bhij,bhjd->bid", layer.weights, layer.f) + bias + layer.x
    _close(opened, f"what tokens give and the residual {where}", mixed, layer.u, layer.mask)
    again = block.finish(block.mix(layer.x, layer.attention, layer.value), layer.x)
    _close(opened, f"the output {where}", again, layer.output, layer.mask)


def _check_batch(opened: Model, trace: Trace, inputs: Sequence[list[int]]) -> None:
    """A text is followed in a batch as it is alone."""
    for row, ids in enumerate(inputs):
        for many, one in zip(trace.layers, capture([ids], opened).layers, strict=True):
            padded, alone = many.output[row : row + 1, : len(ids)], one.output
            _close(opened, f"a text in a batch, block {one.index}", padded, alone, one.mask)


def _check_output(opened: Model, plain: Any, trace: Trace, what: str) -> None:
    """A captured pass ends as the model's own with eager attention does."""
    next(each for each in plain.modules() if isinstance(each, PreTrainedModel)).set_attn_implementation("eager")
    with torch.no_grad():
        eager = plain(**_inputs(opened, trace))
    seen = trace.batch.attention_mask.bool()  # what stands at a token that nobody sees has no meaning
    for name in ("logits", "start_logits", "end_logits", "last_hidden_state"):
        if name in eager:
            mask = torch.ones(len(seen), dtype=torch.bool) if opened.task == "classification" else seen
            _close(opened, f"{name} of a batch {what}", trace.output[name], eager[name], mask)


def _inputs(opened: Model, trace: Trace) -> dict[str, Tensor]:
    found = {"input_ids": trace.batch.ids, "attention_mask": trace.batch.attention_mask}
    return {name: tensor.to(opened.device) for name, tensor in found.items()}


def _close(opened: Model, what: str, found: Tensor, expected: Tensor, mask: Tensor) -> None:
    found, expected = (each.detach().double().cpu()[mask.cpu()] for each in (found, expected))
    allowed = ROUNDED if undefined(PLAIN_BLOCKS, opened) else TOLERANCE[opened.dtype]
    apart = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-30))
    if not apart <= allowed:
        raise CheckFailed(
            f"{opened.family.name}: {what}: {apart:.2g} of the largest number away from the model's own (allowed: "
            f"{allowed:g}); a path, a norm or a switch in its row of model/families.py may be wrong"
        )


# The model as it was ---------------------------------------------------------------------------------------


def state(model: nn.Module) -> dict[str, list[Any]]:
    """Everything that must be as it was before."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return {
        "weights": [(float(w.detach().double().sum()), float(w.detach().double().norm())) for w in model.parameters()],
        "gradients": [None if w.grad is None else float(w.grad.double().norm()) for w in model.parameters()],
        "requires_grad": [w.requires_grad for w in model.parameters()],
        "training mode": [module.training for module in model.modules()],
        "hooks": [[dict(getattr(module, kind)) for kind in hooks] for module in model.modules()],
        "attention implementation": [config._attn_implementation_internal for config in configs(model)],
        "registered attentions": [dict(r._global_mapping) for r in (AttentionInterface, AttentionMaskInterface)],
        "eager attention": [
            vars(sys.modules[cls.__module__]).get(EAGER) for module in model.modules() for cls in type(module).__mro__
        ],
    }


def refuse_changes(before: dict[str, list[Any]], after: dict[str, list[Any]], where: str) -> None:
    changed = [part for part in before if before[part] != after[part]]
    if changed:
        raise CheckFailed(f"{where}: the model does not come back as it was; changed: {', '.join(changed)}")
