r"""Layer by layer: where in the model does a method agree with a reference, or find the words that matter?

    row agreement    ρ(S^l, r) for every layer l, with S^l the readout row of layer l's map or of everything
                     aggregated up to l, and r one reference score vector         (Abnar, tables 1–3; GlobEnc, figure 3)
    map agreement    Pearson's correlation of all n² entries of two layer maps                   (GlobEnc, figure 4)
    alignment        a metric of S^l against cue words (dot product, average precision, …)
                                                                                   (Value Zeroing, figures 1, 2, A.2)

Abnar & Zuidema's SST-2 script reads the largest entry of each column in place of one row (row="max"). GlobEnc's code
gives Spearman's correlation of each row of the maps, averaged, where its figure says Pearson (protocol="globenc-code").

Abnar & Zuidema (2020), Quantifying Attention Flow in Transformers. ACL. Modarressi et al. (2022), GlobEnc. NAACL.
Mohebbi et al. (2023), Quantifying Context Mixing in Transformers. EACL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wherefrom.errors import InvalidInput, NotDefined
from wherefrom.metric.correlation import pearson, spearman
from wherefrom.result.explanation import Explanation
from wherefrom.typecheck import checked

Array = NDArray[np.float64]
Agreement = Callable[[Array, ArrayLike], float]
Protocol = Literal["text", "globenc-code"]


def layer_rows(explanation: Explanation, of: str = "aggregated", row: str = "readout") -> Array:
    """What every layer says of each token: [L, n].

    of: "aggregated" (up to each layer) or "maps" (each layer by itself). A method without maps (gradients, CAT) has
    one answer a layer and gives that.
    row: "readout", the readout row; "mean" or "max" over all rows.
    """
    checked("of", of, Literal["aggregated", "maps"])
    checked("row", row, Literal["readout", "mean", "max"])
    maps = explanation.aggregated if of == "aggregated" else explanation.maps
    alone = explanation.layer_scores if of == "aggregated" or explanation.aggregate is None else None
    if maps is None and row == "readout" and alone is not None:
        return np.asarray(alone, dtype=np.float64)
    if maps is None:
        raise NotDefined(
            f"this explanation by '{explanation.method}' holds no {of} over all rows; explain with an aggregation and "
            f"rows='all', or choose a method that has layers"
        )
    if row == "readout":
        return np.asarray(explanation.readout.row(maps), dtype=np.float64)
    return np.asarray(maps.max(1) if row == "max" else maps.mean(1), dtype=np.float64)


def row_agreement(rows: ArrayLike, reference: ArrayLike, metric: Agreement = spearman) -> Array:
    """`metric` of every layer's row with one reference: [L, n], [n] -> [L]. Per layer, NaN where it has no value.

    The same gives the alignment with cue words: `row_agreement(rows, cues, precision.dot_product)`.
    """
    layers = np.asarray(rows, dtype=np.float64)
    if layers.ndim != 2:
        raise InvalidInput(f"rows have shape {layers.shape}; expected one row of tokens per layer")
    return np.array([metric(layer, reference) for layer in layers], dtype=np.float64)


def map_agreement(maps: ArrayLike, reference: ArrayLike, protocol: str = "text") -> Array:
    """Correlation of two methods' maps in every layer: [L, n, n] twice -> [L]."""
    ours, theirs = (np.asarray(each, dtype=np.float64) for each in (maps, reference))
    if ours.ndim != 3 or ours.shape != theirs.shape:
        raise InvalidInput(f"maps have shapes {ours.shape} and {theirs.shape}; expected [layers, tokens, tokens] twice")
    checked("protocol", protocol, Protocol)
    if protocol == "text":
        return np.array([pearson(a, b) for a, b in zip(ours, theirs, strict=True)])
    return np.array(
        [np.mean([spearman(*rows) for rows in zip(a, b, strict=True)]) for a, b in zip(ours, theirs, strict=True)]
    )
