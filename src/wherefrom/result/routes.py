"""The routes by which information flows to one token: what is left of the graph of all parts above a threshold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wherefrom.display import view
from wherefrom.errors import NotDefined
from wherefrom.extras import need
from wherefrom.result.explanation import Array, Explanation

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class Edge(NamedTuple):
    """What one part brings to a token in one layer."""

    layer: int
    part: Literal["attention", "residual", "ffn", "ffn-residual"]  # the last two: after attention, of the whole block
    to: int  # the token that is built
    source: int  # the token it comes from
    head: int | None  # of attention
    weight: float  # its share among the parts of that sum


@dataclass(frozen=True, eq=False)
class Routes:
    """The graph of information flow above a threshold, and of it what leads to the token that is read."""

    flow: Explanation  # by information-flow: maps with heads and residual connections together
    attention: Array  # [L, H, n, n]: the share of each head and source in the stream after attention
    residual: Array  # [L, n]: that of the residual connection beside attention
    ffn: Array  # [L, n]: the FFN's share in the stream after the block
    ffn_residual: Array  # [L, n]: that of the residual connection beside it
    threshold: float

    @property
    def reached(self) -> NDArray[np.bool_]:
        """Which tokens the routes pass, [L + 1, n]: the input first, and last the token that is read."""
        start = self.flow.position
        if start is None:
            raise NotDefined("routes lead to one token, and here the mean of several is read; say which with position=")
        maps = self.flow.maps
        assert maps is not None
        found = np.zeros((len(maps) + 1, len(self.flow)), dtype=bool)
        found[-1, start] = True
        for layer in range(len(maps) - 1, -1, -1):
            found[layer] = (maps[layer][found[layer + 1]] > 0).any(0)
        return found

    @property
    def edges(self) -> list[Edge]:
        """All edges on the routes, from the token that is read down to the input."""
        reached = self.reached
        return [
            edge
            for layer in range(len(self.ffn) - 1, -1, -1)
            for token in np.flatnonzero(reached[layer + 1]).tolist()
            for edge in self._into(layer, token)
        ]

    def _into(self, layer: int, token: int) -> list[Edge]:
        heads = self.attention[layer, :, token]
        found = [
            Edge(layer, "ffn", token, token, None, float(self.ffn[layer, token])),
            Edge(layer, "ffn-residual", token, token, None, float(self.ffn_residual[layer, token])),
            Edge(layer, "residual", token, token, None, float(self.residual[layer, token])),
            *(
                Edge(layer, "attention", token, source, head, float(heads[head, source]))
                for head, source in np.argwhere(heads > 0).tolist()
            ),
        ]
        return [edge for edge in found if edge.weight > 0]

    def to_dict(self) -> dict[str, Any]:
        """The tokens and the edges as plain lists, numbers and strings, ready for JSON."""
        return {
            "tokens": self.flow.tokens,
            "position": self.flow.position,
            "threshold": self.threshold,
            "edges": [edge._asdict() for edge in self.edges],
            "readout": asdict(self.flow.readout),
        }

    def to_dataframe(self) -> DataFrame:
        """A pandas DataFrame (the extra `pandas`) with a row for each edge."""
        found: DataFrame = need("pandas", "pandas").DataFrame(self.edges, columns=Edge._fields)
        return found

    def plot(self, **options: object) -> Figure:
        """The routes as a graph (the extra `plot`): edges between tokens, a square where the FFN brings its share."""
        picture: Figure = view("picture-routes")(self, **options)
        return picture

    def __repr__(self) -> str:
        reached = self.reached
        inputs = ", ".join(self.flow.pieces[i].strip() for i in np.flatnonzero(reached[0]))
        return f"<Routes above {self.threshold:g}: {len(self.edges)} edges, from {inputs}>"
