"""Attention flow by its definition: Edmonds and Karp's algorithm on the attention graph, one pair at a time."""

from __future__ import annotations

import networkx
import numpy as np
from networkx.algorithms.flow import edmonds_karp


def graph(maps: np.ndarray, below: np.ndarray | None = None) -> networkx.DiGraph:
    """Node (l, k) is token k of layer l, layer 0 the input; edges lead from each layer to the one beneath.

    With `below`, the topmost edges are those of `maps` and all others those of `below` (Abnar & Zuidema, A.1).
    """
    below = maps if below is None else below
    depth, n = maps.shape[:2]
    found = networkx.DiGraph()
    found.add_nodes_from((layer, k) for layer in range(depth + 1) for k in range(n))
    for layer in range(depth):
        capacities = maps[layer] if layer == depth - 1 else below[layer]
        for i in range(n):
            for k in range(n):
                if capacities[i, k] > 0:
                    found.add_edge((layer + 1, i), (layer, k), capacity=float(capacities[i, k]))
    return found


def flow_value(maps: np.ndarray, i: int, j: int, below: np.ndarray | None = None) -> float:
    """The maximum flow from token i of the last layer to input j."""
    source = (len(maps), i)
    return float(networkx.maximum_flow_value(graph(maps, below), source, (0, j), flow_func=edmonds_karp))


def flow_values(maps: np.ndarray, below: np.ndarray | None = None) -> np.ndarray:
    """[L, n, n]: all of them."""
    result = np.empty_like(maps)
    for layer, i, j in np.ndindex(*maps.shape):
        under = None if below is None else below[: layer + 1]
        result[layer, i, j] = flow_value(maps[: layer + 1], i, j, under)
    return result
