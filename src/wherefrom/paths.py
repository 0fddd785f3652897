"""`wherefrom.routes`: the information flow routes of Ferrando & Voita (2024), attention and FFN apart.

What each part brings is `information-flow`'s (method/information_flow.py); parts below the threshold are dropped, and
the routes are what is left of the graph when one goes from the token that is read down to the input.
"""

from __future__ import annotations

from typing import Annotated, Unpack

import numpy as np
from torch import Tensor

from wherefrom.api import explain
from wherefrom.defaults import DEFAULT_MODEL
from wherefrom.errors import InvalidInput, NotDefined
from wherefrom.method.information_flow import ffn_shares
from wherefrom.model import LayerTrace, ModelLike, OneInput, TokenizerLike, collate, open_model, stream
from wherefrom.options import LoadOptions
from wherefrom.result.routes import Routes
from wherefrom.typecheck import checks_arguments, least

Threshold = Annotated[float, least(0, 1)]


@checks_arguments
def routes(
    inputs: OneInput,
    model: ModelLike = DEFAULT_MODEL,
    tokenizer: TokenizerLike = None,
    *,
    threshold: Threshold = 0.04,
    position: int | str | None = None,
    **opening: Unpack[LoadOptions],
) -> Routes:
    """The routes by which information reaches the token that is read: `plot` draws them, `edges` lists them.

    threshold: parts of at most this share are dropped, and the others of that sum share out what they had (the
    authors' tool begins with 0.04). position, and how the model is opened: as in `explain`.

    >>> routes = wherefrom.routes("Paris is the capital of", model="wherefrom/lm", threshold=0.04)
    >>> all(edge.weight > 0.04 for edge in routes.edges)
    True
    """
    opened = open_model(model, tokenizer, **opening)
    if opened.two_streams:
        raise NotDefined(
            f"routes are those of one stream, and {opened.name} has two, an encoder's and a decoder's; explain with "
            f"method='information-flow' and target= has the shares of each"
        )
    sentences, single = opened.reader().read(inputs)
    if not single:
        raise InvalidInput(f"{len(sentences)} inputs were given; routes are those of one")
    method = f"information-flow(threshold={threshold})"
    flow = explain(sentences[0], opened, method=method, position=position, aggregate=None, head="all")
    fed: list[tuple[Tensor, Tensor]] = []

    def look(layer: LayerTrace) -> None:
        fed.append(ffn_shares(layer, threshold))

    stream(opened, collate(sentences, opened.pad_id), look)
    assert flow.maps is not None
    assert flow.head_maps is not None
    own = np.diagonal(flow.maps - flow.head_maps.sum(1), axis1=1, axis2=2).clip(min=0)
    own = np.where(own > threshold, own, 0)  # what a difference of sums leaves where there is none
    ffn, beside = (np.stack([each[which][0].cpu().numpy() for each in fed]) for which in (0, 1))
    return Routes(flow, flow.head_maps, own, ffn, beside, threshold)
