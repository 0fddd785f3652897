r"""Probing: how easily can a property be read off a layer's vectors? Minimum description length by online coding.

    MDL          =  t_1 log₂ K  −  Σ_i log₂ p_{θ_i}(y_{t_i+1 … t_{i+1}} | x_{t_i+1 … t_{i+1}})      (Voita & Titov)
    compression  =  N log₂ K / MDL                                                        (Value Zeroing, equation 13)

The labels are sent in blocks: the first by a uniform code, each other by a probe θ_i trained on all sent before it.
A code is short when the labels follow from the vectors *and* few examples are enough to see how. Compression is 1 for a
guess at random, above it for a layer that knows the property, below it for a probe that learns by heart.

The timesteps are those of Value Zeroing's code (0.8, 1.6, 3.2, 6.25, 12.5, 25, 50 and 100 % of the labels). The probe:

    mlp         the authors' MLP with one hidden layer of 128 (wherefrom/metric/mlp_probe.py), by the formula above
    mlp-code    that MLP as their code measures it: two softmaxes, and nats as bits. A guess among two classes has a
                compression of 1.44, a perfect code 3.14; the paper's printed numbers (1.52 to 2.45) have this scale
    linear      p_θ(y|x) = softmax(W x̂), with x̂ the vector scaled to mean 0 and variance 1 in every dimension, and a
                constant 1 beside; W minimizes Σ −ln p + ½ λ ‖W‖². Sender and receiver both hold the x, so x̂ may be
                taken over all of them. The penalty bounds the cost of a class that has not been sent yet

Voita & Titov (2020), Information-Theoretic Probing with Minimum Description Length. EMNLP.
Mohebbi et al. (2023), Quantifying Context Mixing in Transformers. EACL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

from wherefrom.errors import InvalidInput, InvalidOption, NotDefined
from wherefrom.metric.correlation import spearman
from wherefrom.result.answer import Readout
from wherefrom.typecheck import above, check_fields, checked, least

if TYPE_CHECKING:
    from wherefrom.model import Model, Sentence, Trace

Array = NDArray[np.float64]
TIMESTEPS = (0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)  # shares of the labels sent
Property = Literal["label", "group", "target"]  # of an example
PROPERTIES: tuple[Property, ...] = get_args(Property)
ProbeKind = Literal["mlp", "mlp-code", "linear"]
Penalty = Annotated[float, above(0)]
LINEAR_PENALTY = 1.0


@dataclass(frozen=True)
class Probe:
    """Which property of the examples is read off the layers, and how."""

    of: Property = "label"
    probe: ProbeKind = "mlp"
    penalty: Penalty | None = None  # of the linear probe
    seed: Annotated[int, least(0)] = 0

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Code:
    """The online code of one set of labels."""

    bits: float  # MDL; by `mlp-code` as the authors' code adds it up
    count: int
    classes: int
    blocks: tuple[float, ...]  # bits of each block, the even one first
    accuracy: float  # of the last probe on the last block

    @property
    def compression(self) -> float:
        return self.count * float(np.log2(self.classes)) / self.bits


def online_code(
    vectors: ArrayLike,
    labels: ArrayLike,
    *,
    timesteps: Sequence[float] = TIMESTEPS,
    probe: ProbeKind = "mlp",
    penalty: float | None = None,
    seed: int = 0,
) -> Code:
    """Send `labels` [N] to someone who holds `vectors` [N, d]. The examples go in an order drawn by `seed`.

    penalty: λ of the linear probe, 1 by default.
    """
    x, y, classes = _checked(vectors, labels)
    if not timesteps or sorted(set(timesteps)) != list(timesteps) or timesteps[0] <= 0 or timesteps[-1] != 1:
        raise InvalidOption("timesteps must be increasing shares that end with 1, such as (0.1, 0.5, 1)")
    checked("probe", probe, ProbeKind)
    checked("penalty", penalty, Penalty | None)
    if penalty is not None and probe != "linear":
        raise InvalidOption(
            f"penalty= applies to the linear probe; '{probe}' has none: leave it out, or probe='linear'"
        )
    order = np.random.default_rng(seed).permutation(len(y))
    x, y = (_standardized(x) if probe == "linear" else x)[order], y[order]
    sent = sorted({max(1, round(share * len(y))) for share in timesteps})
    blocks, accuracy = [sent[0] * float(np.log2(classes))], 1 / classes
    for start, end in pairwise(sent):
        if probe == "linear":
            length, accuracy = _linear_code(x, y, start, end, classes, LINEAR_PENALTY if penalty is None else penalty)
        else:
            from wherefrom.metric.mlp_probe import block_code

            length, accuracy = block_code(x, y, start, end, classes, seed=seed, as_code=probe == "mlp-code")
        blocks.append(length)
    return Code(sum(blocks), len(y), classes, tuple(blocks), accuracy)


def layer_codes(vectors: ArrayLike, labels: ArrayLike, **options: Any) -> list[Code]:
    """The code of the same labels by every layer's vectors [L, N, d]; `options` as in `online_code`."""
    layers = np.asarray(vectors)
    if layers.ndim != 3:
        raise InvalidInput(f"vectors have shape {layers.shape}; expected [layers, examples, dimensions]")
    return [online_code(layer, labels, **options) for layer in layers]


def compression_against_alignment(compressions: ArrayLike, alignment: ArrayLike) -> float:
    """Spearman's ρ over layers between compression and cue alignment (Value Zeroing, table 2).

    Where compression starts with the embeddings, which mix nothing and have no alignment, that entry is left out.
    """
    found, aligned = np.asarray(compressions, dtype=np.float64), np.asarray(alignment, dtype=np.float64)
    return spearman(found[1:] if len(found) == len(aligned) + 1 else found, aligned)


def representations(
    inputs: Any,
    model: Any,
    tokenizer: Any | None = None,
    *,
    position: int | str | None = None,
    batch_size: int = 16,
    truncate: bool = False,
) -> NDArray[np.float32]:
    """The vector of the readout token in every layer: [L + 1, N, d], the embeddings (input of block 0) first.

    position: as in `explain`; by default the token that the head reads, or the mask. "mean" takes the mean over all.
    """
    from wherefrom.model import answer, open_model

    opened = open_model(model, tokenizer)
    sentences, _ = opened.reader(truncate=truncate).read(inputs)
    found: NDArray[np.float32] | None = None
    for members in opened.batches(sentences, batch_size):
        states, trace = layer_states(opened, [sentences[i] for i in members])
        if found is None:
            found = np.empty((len(states), len(sentences), states[0].shape[-1]), dtype=np.float32)
        for row, i in enumerate(members):
            readout = answer(opened, sentences[i], trace.output, row, position=position).readout
            found[:, i] = readout_vectors(states, row, len(sentences[i]), readout)
    assert found is not None
    return found


def layer_states(opened: Model, sentences: list[Sentence]) -> tuple[list[NDArray[np.float32]], Trace]:
    """The states of one batch before block 0 and after every block, L + 1 times [B, n, d]; and the pass itself."""
    from wherefrom.model import LayerTrace, collate, stream

    states: list[NDArray[np.float32]] = []

    def keep(layer: LayerTrace) -> None:
        if not states:
            states.append(layer.x.float().cpu().numpy())
        states.append(layer.output.float().cpu().numpy())

    return states, stream(opened, collate(sentences, opened.pad_id), keep)


def readout_vectors(states: list[NDArray[np.float32]], row: int, n: int, readout: Readout) -> NDArray[np.float32]:
    """The readout token's vector in every layer, of one sentence of the batch, n tokens long: [L + 1, d]."""
    return np.stack([readout.row(state[row, :n]) for state in states])


def _linear_code(
    x: Array, y: NDArray[np.intp], start: int, end: int, classes: int, penalty: float
) -> tuple[float, float]:
    """Bits of the labels from `start` to `end` by a linear probe trained on those before, and its accuracy on them."""
    log_p = log_softmax(x[start:end] @ fit(x[:start], y[:start], classes, penalty), axis=1)
    bits = -log_p[np.arange(end - start), y[start:end]].sum() / np.log(2)
    return float(bits), float((log_p.argmax(1) == y[start:end]).mean())


def fit(x: Array, y: NDArray[np.intp], classes: int, penalty: float) -> Array:
    """W [d, K] of the linear probe: multinomial logistic regression, every weight penalised alike."""
    n, d = x.shape
    wanted = np.eye(classes)[y]

    def loss(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(d, classes)
        log_p = log_softmax(x @ weights, axis=1)
        value = -(wanted * log_p).sum() + penalty / 2 * (weights**2).sum()
        gradient = x.T @ (np.exp(log_p) - wanted) + penalty * weights
        return float(value / n), gradient.ravel() / n

    found = minimize(loss, np.zeros(d * classes), jac=True, method="L-BFGS-B", options={"maxiter": 2000, "gtol": 1e-7})
    weights: Array = found.x.reshape(d, classes)
    return weights


def _standardized(x: Array) -> Array:
    """Mean 0 and variance 1 in every dimension that varies, and a constant 1 for the bias."""
    deviation = x.std(0)
    return np.column_stack([(x - x.mean(0)) / np.where(deviation > 0, deviation, 1), np.ones(len(x))])


def _checked(vectors: ArrayLike, labels: ArrayLike) -> tuple[Array, NDArray[np.intp], int]:
    x, given = np.asarray(vectors, dtype=np.float64), np.asarray(labels)
    if x.ndim != 2 or given.shape != x.shape[:1]:
        raise InvalidInput(
            f"vectors have shape {x.shape} and labels {given.shape}; expected [examples, dimensions] and one label each"
        )
    if not np.isfinite(x).all():
        raise InvalidInput("the vectors contain NaN or infinite values")
    names, y = np.unique(given, return_inverse=True)
    if len(names) < 2:
        raise NotDefined(f"there are {len(names)} different labels; a code needs two or more")
    return x, y, len(names)
