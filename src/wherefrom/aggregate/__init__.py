"""From layer maps to maps that reach the input: arrays in, arrays out.

An aggregation takes maps [L, n, n] and, when they belong to one head, the maps of all heads for the layers
below; entry l of its answer reaches from layer l down to the input of the first map it was given.
"""

from __future__ import annotations

from typing import Protocol

from wherefrom.aggregate.flow import flow
from wherefrom.aggregate.layers import last, mean, total
from wherefrom.aggregate.receptive import Mask, corrected
from wherefrom.aggregate.rollout import rollout
from wherefrom.aggregate.types import Maps
from wherefrom.errors import InvalidOption
from wherefrom.registry import Registry, fold


class Aggregation(Protocol):
    def __call__(self, maps: Maps, below: Maps | None = None) -> Maps: ...


AGGREGATIONS: Registry[Aggregation] = Registry("aggregation", also="none")
AGGREGATIONS.add("rollout", rollout)
AGGREGATIONS.add("flow", flow)
AGGREGATIONS.add("sum", total)
AGGREGATIONS.add("mean", mean)
AGGREGATIONS.add("last", last)
CORRECTABLE = ("rollout", "flow")  # those whose paths the receptive field bends

__all__ = ["AGGREGATIONS", "Maps", "aggregate", "aggregate_row", "check_aggregation", "flow", "rollout"]


def check_aggregation(name: str | None, receptive_field: bool = False) -> str | None:
    """The name as it is registered; "none" and None leave the layer maps alone."""
    name = None if name is None or fold(name) == "none" else AGGREGATIONS.named(name)
    if receptive_field and name not in CORRECTABLE:
        raise InvalidOption(
            f"receptive_field corrects {' and '.join(CORRECTABLE)}, not {name or 'none'}; "
            f"leave it out or choose one of these aggregations"
        )
    return name


def aggregate(
    name: str, maps: Maps, below: Maps | None = None, *, receptive_field: bool = False, visible: Mask | None = None
) -> Maps:
    """[L, n, n] -> [L, n, n] by the aggregation of that name, on request corrected for the receptive field."""
    way = AGGREGATIONS[name]
    return corrected(way, maps, below, visible) if receptive_field else way(maps, below)


def aggregate_row(
    name: str,
    maps: Maps,
    row: int,
    below: Maps | None = None,
    *,
    receptive_field: bool = False,
    visible: Mask | None = None,
) -> Maps:
    """[L, n]: one token's row of `aggregate`, for flow without computing the others."""
    if name != "flow":
        return aggregate(name, maps, below, receptive_field=receptive_field, visible=visible)[:, row]
    if receptive_field:
        return corrected(flow, maps, below, visible, rows=[row])[:, 0]
    return flow(maps, below, [row])[:, 0]
