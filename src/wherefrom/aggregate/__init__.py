"""From layer maps to maps that reach the input.

An aggregation takes maps [L, n, n] and, when they belong to one head, the maps of all heads for the layers
below; entry l of its answer reaches from layer l down to the input of the first map it was given. That is for the maps
of a result: arrays in, arrays out. The arithmetic is a step in torch, from one layer to the next, which a whole batch
takes on the device that its maps are on (wherefrom/pipeline/joint_maps.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from wherefrom.aggregate.flow import flow, flow_cost
from wherefrom.aggregate.layers import averaged, last, last_cost, mean, mean_cost, plus, total, total_cost
from wherefrom.aggregate.receptive import Mask, corrected
from wherefrom.aggregate.rollout import rollout, rollout_cost, times
from wherefrom.aggregate.types import Maps, Step
from wherefrom.errors import InvalidOption
from wherefrom.registry import Registry, fold
from wherefrom.work import Work


class Joining(Protocol):
    def __call__(self, maps: Maps, below: Maps | None = None) -> Maps: ...


@dataclass(frozen=True)
class Aggregation:
    """A way to join layer maps, and its cost: for n tokens, a number of layers, bytes per number and rows computed."""

    run: Joining
    cost: Callable[[int, int, int, int], Work]
    step: Step | None = None  # from layer to layer; None where all must be there
    paths: bool = False  # follows paths through the layers, which the receptive field bends
    by_row: bool = False  # a row of the answer needs the same row of the maps and no other


AGGREGATIONS: Registry[Aggregation] = Registry("aggregation", also="none")
AGGREGATIONS.add("rollout", Aggregation(rollout, rollout_cost, times, paths=True))
AGGREGATIONS.add("flow", Aggregation(flow, flow_cost, paths=True))
AGGREGATIONS.add("sum", Aggregation(total, total_cost, plus, by_row=True))
AGGREGATIONS.add("mean", Aggregation(mean, mean_cost, averaged, by_row=True))
AGGREGATIONS.add("last", Aggregation(last, last_cost, by_row=True))

__all__ = ["AGGREGATIONS", "Maps", "aggregate", "aggregate_row", "check_aggregation", "flow", "rollout"]


def check_aggregation(name: str | None, receptive_field: bool = False) -> str | None:
    """The name as it is registered; "none" and None leave the layer maps alone."""
    name = None if name is None or fold(name) == "none" else AGGREGATIONS.named(name)
    if receptive_field and (name is None or not AGGREGATIONS[name].paths):
        bent = [other for other, each in AGGREGATIONS.items() if each.paths]
        raise InvalidOption(
            f"receptive_field=True corrects {' and '.join(bent)}, not {name or 'none'}; "
            f"leave it out or choose one of these aggregations"
        )
    return name


def aggregate(
    name: str, maps: Maps, below: Maps | None = None, *, receptive_field: bool = False, visible: Mask | None = None
) -> Maps:
    """[L, n, n] -> [L, n, n] by the aggregation of that name, on request corrected for the receptive field."""
    way = AGGREGATIONS[name].run
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
