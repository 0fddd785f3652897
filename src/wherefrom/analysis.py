"""What the papers measure of a model itself, rather than of one answer.

mixing_ratios   how much of each token's representation comes from the others   Kobayashi 2021; GlobEnc, eq. 8, 14
anisotropy      how much vectors point the same way, before and after mixing    ALTI, figure 3
norm_outliers   the few large weights of the two LayerNorms, set against each other   GlobEnc, figure 5
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.defaults import DEFAULT_MODEL
from wherefrom.method import norms
from wherefrom.method.contributions import after_attention, kept, lengths, own
from wherefrom.model import Inputs, LayerTrace, Model, ModelLike, Sentence, TokenizerLike, collate, open_model, stream
from wherefrom.options import Keywords, LoadOptions, ModelOptions

T = TypeVar("T")
Array = NDArray[np.floating[Any]]
DEVIATIONS = 3.0  # from the mean: where a weight becomes an outlier (Kovaleva et al. 2021)


def mixing_ratios(
    inputs: Inputs,
    model: ModelLike = DEFAULT_MODEL,
    tokenizer: TokenizerLike = None,
    *,
    batch_size: int = 16,
    truncate: bool = False,
    **opening: Unpack[ModelOptions],
) -> dict[str, Array] | list[dict[str, Array]]:
    """`r_i` of every layer and token, [L, n] for each of N, N_Res, N_ResLN and N_Enc; several inputs give a list.

    0: a token is made of itself alone; 1: of the others alone. Arguments as in `explain` (`opening`: task, device,
    dtype, prove, model_kwargs, tokenizer_kwargs).

    >>> ratios = wherefrom.mixing_ratios("a deep and meaningful film .")
    >>> {name: ratio.shape for name, ratio in ratios.items()}
    {'N': (10, 9), 'N_Res': (10, 9), 'N_ResLN': (10, 9), 'N_Enc': (10, 9)}
    """
    opened, sentences, single = _open(inputs, model, tokenizer, truncate, **opening)
    found: dict[int, dict[str, Array]] = {}
    for members in opened.batches(sentences, batch_size):
        layers = _collect(opened, [sentences[i] for i in members], _ratios)
        for row, member in enumerate(members):
            n = len(sentences[member])
            found[member] = {name: np.stack([r[name][row, :n].numpy() for r in layers]) for name in layers[0]}
    return found[0] if single else [found[i] for i in range(len(sentences))]


def _ratios(layer: LayerTrace) -> dict[str, Tensor]:
    return {symbol: ratio.cpu() for symbol, ratio in norms.mixing_ratios(layer).items()}


@dataclass(frozen=True)
class Anisotropy:
    """Mean cosine similarity of two different vectors, per layer: 0 is isotropic, 1 is a single line."""

    outputs: Array  # [L]: of what attention and its norm make of a token, y_i
    transformed: Array  # [L]: of the parts they are made of, T_ij


def anisotropy(
    inputs: Inputs,
    model: ModelLike = DEFAULT_MODEL,
    tokenizer: TokenizerLike = None,
    *,
    batch_size: int = 16,
    truncate: bool = False,
    **opening: Unpack[ModelOptions],
) -> Anisotropy:
    """How anisotropic a model's vectors are over all the inputs together, per layer (ALTI, figure 3).

    Exact over all pairs of different vectors: N (N − 1) mean cos = ‖Σ of the N unit vectors‖² − N. A part T_ij that
    is zero (what j gives to i where attention does not reach) has no direction and is left out. Arguments as in
    `mixing_ratios`.

    >>> wherefrom.anisotropy(["a deep film .", "a dull film ."]).outputs.shape  # a number for each layer
    (10,)
    """
    opened, sentences, _ = _open(inputs, model, tokenizer, truncate, **opening)
    sums: dict[tuple[int, str], Tensor] = {}
    counts: dict[tuple[int, str], int] = {}

    def add(layer: LayerTrace) -> None:
        for name, (total, count) in (("outputs", _outputs(layer)), ("transformed", _transformed(layer))):
            key = layer.index, name
            sums[key] = sums.get(key, 0) + total.double().cpu()
            counts[key] = counts.get(key, 0) + count

    for members in opened.batches(sentences, batch_size):
        _collect(opened, [sentences[i] for i in members], add)

    def mean(name: str) -> Array:
        pairs = [(float(sums[layer, name].square().sum()), counts[layer, name]) for layer in range(opened.depth)]
        return np.array([(square - n) / (n * (n - 1)) if n > 1 else np.nan for square, n in pairs])

    return Anisotropy(mean("outputs"), mean("transformed"))


def _outputs(layer: LayerTrace) -> tuple[Tensor, int]:
    """The sum of the unit vectors y_i/‖y_i‖, and how many there are."""
    norm = layer.block.first_norm
    y = (layer.u if norm is None else norm(layer.u))[layer.mask]
    return torch.nn.functional.normalize(y, dim=-1).sum(0), len(y)


def _transformed(layer: LayerTrace) -> tuple[Tensor, int]:
    """The same of T_ij. Linear in f, so that the sum over i comes first and no T_ij is built."""
    view = after_attention(layer)
    given = lengths(layer, view.name)  # ‖L Σ_h α f‖; the scale has no part in a direction
    off_diagonal = ~torch.eye(given.shape[-1], dtype=torch.bool, device=given.device)
    counted = (given > 0) & layer.mask.unsqueeze(-1) & off_diagonal
    inverse = torch.where(counted, 1 / torch.where(counted, given, torch.ones_like(given)), 0.0)
    weights = torch.einsum("bhij,bij->bhj", layer.attention, inverse)
    total = torch.einsum("bhj,bhjk,hkd->d", weights, layer.value, layer.block.w_o)
    self = (own(layer) + layer.x)[layer.mask] / kept(layer, view)[layer.mask].unsqueeze(-1)
    return view.linear(total + self.sum(0)), int(counted.sum()) + len(self)


@dataclass(frozen=True)
class NormOutliers:
    """The outliers of one block: dimensions where a weight of either LayerNorm lies 3σ or more from its mean."""

    layer: int
    dimensions: list[int]
    first: Array  # γ of the norm that belongs to attention, in these dimensions
    second: Array  # γ of the norm that belongs to the FFN
    correlation: float  # Pearson's, between the two; NaN below three dimensions, since two points lie on a line


def norm_outliers(
    model: ModelLike = DEFAULT_MODEL, *, deviations: float = DEVIATIONS, **opening: Unpack[LoadOptions]
) -> list[NormOutliers]:
    """The outlying weights of both LayerNorms in every block and their correlation (GlobEnc, figure 5).

    A negative correlation says that the second norm takes back what the first one magnifies. `opening`: task,
    device, dtype, model_kwargs. Blocks that layers share (ALBERT) stand once.

    >>> wherefrom.norm_outliers("wherefrom/sentiment")[0].dimensions
    [25, 59, 115, 129, 214]
    """
    return [
        _norm_outliers(layer, block.norm1.gamma, block.norm2.gamma, deviations)
        for layer, block in enumerate(open_model(model, **opening).blocks)
    ]


def _norm_outliers(layer: int, first: Tensor, second: Tensor, deviations: float) -> NormOutliers:
    gammas = torch.stack([first, second]).double().cpu()
    distance = (gammas - gammas.mean(1, keepdim=True)).abs()
    outlying = (distance >= deviations * gammas.std(1, unbiased=False, keepdim=True)) & (distance > 0)
    dimensions = outlying.any(0).nonzero().flatten().tolist()
    one, other = gammas[:, dimensions].numpy()
    varies = len(dimensions) > 2 and one.std() > 0 and other.std() > 0
    return NormOutliers(layer, dimensions, one, other, float(np.corrcoef(one, other)[0, 1]) if varies else float("nan"))


def _open(
    inputs: Inputs,
    model: ModelLike,
    tokenizer: TokenizerLike,
    truncate: bool,
    tokenizer_kwargs: Keywords = None,
    **opening: Unpack[LoadOptions],
) -> tuple[Model, list[Sentence], bool]:
    opened = open_model(model, tokenizer, **opening)
    opened.need_blocks("this analysis")
    sentences, single = opened.reader(truncate=truncate, tokenizer_kwargs=tokenizer_kwargs).read(inputs)
    return opened, sentences, single


def _collect(opened: Model, sentences: list[Any], of: Callable[[LayerTrace], T]) -> list[T]:
    """One pass over a batch of sentences: what a function says of each layer."""
    found: list[T] = []
    stream(opened, collate(sentences, opened.pad_id), lambda layer: found.append(of(layer)))
    return found
