"""What the papers measure of a model itself, rather than of one answer.

mixing_ratios   how much of each token's representation comes from the others   Kobayashi 2021; GlobEnc, eq. 8, 14
anisotropy      mean cosine similarity of outputs and of transformed vectors    ALTI, figure 3
norm_outliers   the few large weights of the two LayerNorms, set against each other   GlobEnc, figure 5
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.defaults import DEFAULT_MODEL
from wherefrom.method import norms
from wherefrom.method.contributions import after_attention, kept, lengths, own
from wherefrom.model import Inputs, LayerTrace, Model, ModelLike, Sentence, TokenizerLike, collate, open_model, stream
from wherefrom.options import Keywords, LoadOptions, ModelOptions
from wherefrom.typecheck import checks_arguments

T = TypeVar("T")
Array = NDArray[np.floating[Any]]
Pairs = Literal["sentence", "all"]  # two vectors of one sentence, or any two
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

    outputs: Array  # [L]: attention block outputs y_i
    transformed: Array  # [L]: transformed vectors T_i(x_j), the parts of y_i
    pairs: Pairs
    outputs_by_input: Array | None = None  # [inputs, L], with pairs="sentence"
    transformed_by_input: Array | None = None


@checks_arguments
def anisotropy(
    inputs: Inputs,
    model: ModelLike = DEFAULT_MODEL,
    tokenizer: TokenizerLike = None,
    *,
    pairs: Pairs = "sentence",
    batch_size: int = 16,
    truncate: bool = False,
    **opening: Unpack[ModelOptions],
) -> Anisotropy:
    """Mean cosine similarity of attention block outputs, and of transformed vectors, per layer (ALTI, figure 3).

    pairs: "sentence" pairs two outputs of one sentence, and two parts of one output (T_i(x_j) with T_i(x_k)), as
        ALTI's code does; sentences count equally in `outputs`, rows i in `transformed`. "all" pairs any two vectors
        of all inputs.

    Exact over all pairs of n different vectors: n (n − 1) mean cos = ‖Σ of the n unit vectors‖² − n. A part that is
    zero (attention doesn't reach j) has no direction and is left out. The other arguments are those of
    `mixing_ratios`.

    >>> wherefrom.anisotropy(["a deep film .", "a dull film ."]).outputs.shape  # a number for each layer
    (10,)
    """
    opened, sentences, _ = _open(inputs, model, tokenizer, truncate, **opening)
    batches: dict[int, list[_BatchCosines]] = {layer: [] for layer in range(opened.depth)}
    order: list[int] = []
    for members in opened.batches(sentences, batch_size):
        order.extend(members)
        _collect(opened, [sentences[i] for i in members], lambda layer: batches[layer.index].append(_cosines(layer)))
    if pairs == "all":
        outputs = [_pool([batch.outputs for batch in layer]) for layer in batches.values()]
        transformed = [_pool([batch.parts for batch in layer]) for layer in batches.values()]
        return Anisotropy(np.array(outputs), np.array(transformed), pairs)
    place = np.argsort(order)
    by_input = np.stack(
        [np.concatenate([batch.by_sentence for batch in layer])[place] for layer in batches.values()], 1
    )
    rows = [[row for batch in layer for row in batch.by_row] for layer in batches.values()]
    rows_by_input = np.array([[_mean_defined(layer[at]) for layer in rows] for at in place])
    return Anisotropy(
        np.array([_mean_defined(layer) for layer in by_input.T]),
        np.array([_mean_defined(np.concatenate(layer)) for layer in rows]),
        pairs,
        by_input,
        rows_by_input,
    )


class _BatchCosines(NamedTuple):
    """One layer of one batch: sums of unit vectors with their counts, and mean cosines within a sentence."""

    outputs: tuple[Array, int]  # Σ y_i/‖y_i‖ and the number of y_i
    parts: tuple[Array, int]  # Σ T_ij/‖T_ij‖ and the number of T_ij
    by_sentence: Array  # [batch]: of two y_i of a sentence
    by_row: Array  # [batch, tokens]: of T_ij and T_ik; NaN for padding and for rows with one part


def _cosines(layer: LayerTrace) -> _BatchCosines:
    norm, mask = layer.block.first_norm, layer.mask.unsqueeze(-1)
    y = torch.nn.functional.normalize(layer.u if norm is None else norm(layer.u), dim=-1)
    outputs, n_outputs = _double((y * mask).sum(1)), _double(layer.mask.sum(1))
    view = after_attention(layer)
    norms_of_parts = lengths(layer, view.name)  # ‖L Σ_h α f‖; the scale doesn't change a direction
    off_diagonal = ~torch.eye(norms_of_parts.shape[-1], dtype=torch.bool, device=norms_of_parts.device)
    counted = (norms_of_parts > 0) & mask & off_diagonal
    inverse = torch.where(counted, 1 / norms_of_parts.where(counted, torch.ones_like(norms_of_parts)), 0.0)
    merged = torch.einsum("bhij,bij,bhjk->bihk", layer.attention, inverse, layer.value)
    others = torch.einsum("bihk,hkd->bid", merged, layer.block.w_o)  # linear in f: no T_ij is built
    length = torch.where(layer.mask, kept(layer, view), 1.0).unsqueeze(-1)
    parts = _double(view.linear(others + (own(layer) + layer.x) / length) * mask)
    n_parts = _double(counted.sum(-1) + layer.mask.long())
    return _BatchCosines(
        (outputs.sum(0), int(n_outputs.sum())),
        (parts.sum((0, 1)), int(n_parts.sum())),
        _cosine(outputs, n_outputs),
        _cosine(parts, n_parts),
    )


def _pool(batches: list[tuple[Array, int]]) -> float:
    """Mean cosine over all pairs of vectors of all batches."""
    return float(_cosine(np.sum([sums for sums, _ in batches], 0), sum(count for _, count in batches)))


def _double(values: Tensor) -> Array:
    return values.double().cpu().numpy()


def _cosine(sums: Array, n: Array | int) -> Array:
    """Mean cosine over all pairs of n unit vectors with these sums; NaN below two vectors."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(n) > 1, (np.square(sums).sum(-1) - n) / (np.multiply(n, np.subtract(n, 1))), np.nan)


def _mean_defined(values: Array) -> float:
    """Mean of the numbers that are not NaN; NaN where there is none."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


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
