r"""Attention flow: layer maps as pipes, and how much can get from an output to each input.

    F^l_ij = maximum flow from node (l, i) to input j,      rows of the answer divided by their sum

in the graph with an edge (l, i) -> (l-1, k) of capacity M^l_ik (Abnar & Zuidema 2020, section 3). Any
non-negative map gives capacities; maps are not normalised first (as in GlobEnc's code). For a single head k at
layer l the layers below stay averaged over their heads (appendix A.1).

Exact, but solved only where it must be. For the first two layers F has a closed form, M^0 and
Σ_k min(M^1_ik, M^0_kj). Above, no flow exceeds a cut, and a feasible flow as large as a cut is maximal:

    from above   the source's own edges Σ_k M^l_ik;  the sink's Σ_k M^0_kj;  Σ_k min(M^l_ik, F^{l-1}_kj)
    from below   flows may be mixed: Σ_k λ_k F^{l-1}_kj with λ_k F^{l-1}_kj ≤ M^l_ik, Σ_k λ_k ≤ 1;  and a flow
                 that spreads over the upper and lower layers in proportion to capacity and meets in the middle

What stays open goes to scipy's `maximum_flow` with capacities as 30-bit integers; the flow is then the capacity, in
float64, of the cut that it finds to be full. Flows of one token that differ by rounding alone are made equal, so that
tokens which draw on each other in the same way get the same rank.
Time O(L n³) for the bounds and about 0.1 to 5 ms for each flow that has to be solved; memory O(L n²).

Abnar & Zuidema (2020), Quantifying Attention Flow in Transformers. https://aclanthology.org/2020.acl-main.385
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from wherefrom.aggregate.types import Maps
from wherefrom.errors import NotDefined
from wherefrom.progress import still_wanted
from wherefrom.work import Work

Array = NDArray[np.float64]

CLOSE = 1e-8  # a feasible flow this close to a cut, relatively, is taken for maximal
TIED = 1e-11  # flows of one token that are this close, relative to the largest, are the same
INTEGERS = 2**30  # the largest flow, in units of scipy's 32-bit capacities
EDGES = 40_000  # of the graphs that are solved at a time: a cache holds them, and what it takes to begin is shared
TILE = 1 << 17  # numbers in one array of those that run over triples of tokens: a cache holds a few
MIDDLE = 3  # layers in which the halves of a spreading flow are matched, ...
ROUNDS = 5  # ... in at most so many rounds, ...
STUCK = 0.6  # ... unless one leaves more than this share of what was missing
SHARED = 16  # flows that it pays to make a graph for
PAYS = 0.3  # the share of flows that spreading must settle: it takes a third of the time of solving them


def flow(maps: Maps, below: Maps | None = None, rows: Sequence[int] | None = None) -> Maps:
    """[L, n, n] -> [L, n, n]: the share of each input in the maximum flows from each token of each layer.

    `below` are the maps of the layers under the one asked about, where they differ from `maps` (one head).
    With `rows`, only these tokens' flows are computed: [L, len(rows), n].
    """
    values = flow_values(maps, below, rows)
    total = values.sum(-1, keepdims=True)
    shares: Maps = _ratio(values, total).astype(maps.dtype)
    return shares


def flow_values(
    maps: Maps, below: Maps | None = None, rows: Sequence[int] | None = None, *, last: bool = False
) -> Array:
    """The flows themselves, as `flow` but not normalised and always float64; with `last`, the last layer's alone."""
    tops = _checked(maps)
    stack = tops if below is None else _checked(below)
    chosen = tops if rows is None else tops[:, list(rows)]
    result = np.empty(chosen.shape)
    lower = stack[0]  # of the layer beneath, all heads together: the flows, or with `rows` what none exceeds
    for layer in range(len(tops)):
        if not last or rows is None or layer == len(tops) - 1:
            result[layer] = _layer(chosen[layer], stack[:layer], lower, known=rows is None)
        if layer > 0 and rows is not None:
            lower = np.minimum(_min_sum(stack[layer], lower), stack[0].sum(0))
        elif rows is None:
            lower = result[layer] if below is None else _layer(stack[layer], stack[:layer], lower, known=True)
    result[1:] = _tied(result[1:])  # the first layer's are the capacities themselves
    return result[-1:] if last else result


def _tied(values: Array) -> Array:
    """Rows in which neighbours in size that differ by rounding alone have become equal."""
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, -1)
    step = np.diff(ordered, axis=-1, prepend=-np.inf) > TIED * ordered[..., -1:]
    first = np.maximum.accumulate(np.where(step, np.arange(values.shape[-1]), 0), axis=-1)  # of each run of equals
    result = np.empty_like(values)
    np.put_along_axis(result, order, np.take_along_axis(ordered, first, -1), -1)
    return result


def _checked(maps: Maps) -> Array:
    if not np.isfinite(maps).all() or (maps < 0).any():
        raise NotDefined(
            "flow needs capacities that are finite and not negative, and these maps have others; "
            "use a method without signs, or another aggregation (rollout, sum, mean, last)"
        )
    return np.asarray(maps, dtype=np.float64)


def _layer(top: Array, stack: Array, lower: Array, *, known: bool) -> Array:
    """Flows from sources with edges `top` [R, n] through the maps `stack` [t, n, n] beneath, to every input.

    `lower` are the flows from the stack's last layer if they are `known`, and otherwise a bound on them.
    """
    if len(stack) == 0:
        return top
    if len(stack) == 1:
        return _min_sum(top, stack[0])
    cut: Array = np.minimum(top.sum(1)[:, None], stack[0].sum(0))
    most: Array = np.minimum(cut, _min_sum(top, lower))
    least = _mixtures(top, lower) if known else np.zeros_like(most)
    still_open = least < most * (1 - CLOSE)
    spreadable = still_open & (most >= cut * (1 - CLOSE))
    at_once = max(1, TILE // stack[0].size)
    tried = closed = 0
    for row in np.flatnonzero(spreadable.any(1)):
        still_wanted()
        every = np.flatnonzero(spreadable[row])
        for sinks in np.split(every, range(at_once, len(every), at_once)):
            wanted = most[row, sinks]
            still_open[row, sinks] = _spread(top[row], stack, sinks, wanted) < wanted * (1 - CLOSE)
        tried, closed = tried + len(every), closed + int((~still_open[row, every]).sum())
        if closed < PAYS * tried:  # rows of a layer are much alike
            break
    if still_open.any():
        most[still_open] = np.minimum(most[still_open], _solve(top, stack, np.argwhere(still_open)))
    return most


def _min_sum(a: Array, b: Array) -> Array:
    """`Σ_k min(a_ik, b_kj)`, a tile of rows at a time."""
    tile = max(1, TILE // b.size)
    parts = [np.minimum(a[i : i + tile, :, None], b).sum(1) for i in range(0, len(a), tile)]
    return np.concatenate(parts)


def _mixtures(top: Array, lower: Array) -> Array:
    """The best mixture of known flows: largest first, each as far as the edge to its start allows."""
    order = np.argsort(-lower, axis=0)  # [k, j]
    values = np.take_along_axis(lower, order, 0)
    result = np.empty((len(top), lower.shape[1]))
    tile = max(1, TILE // lower.size)
    for i in range(0, len(top), tile):
        edges = top[i : i + tile][:, order]  # [i, k, j]
        wanted = np.divide(edges, values, out=np.zeros_like(edges), where=values > edges)
        wanted[(values <= edges) & (values > 0)] = 1.0
        used = wanted.cumsum(1) - wanted
        result[i : i + tile] = (np.clip(1 - used, 0, wanted) * values).sum(1)
    return result


def _spread(top: Array, stack: Array, sinks: NDArray[np.intp], wanted: Array) -> Array:
    """A feasible flow from one source to each of `sinks`, aimed at `wanted`: its value, at least.

    Down from the source and up from the sink, every node shares out what passes in proportion to its edges,
    which cannot overfill any of them as long as no more passes than they hold. The layers in the middle then
    have to carry given amounts to given places; a few greedy rounds see how much of that they can.
    """
    depth = len(stack)
    middle = min(MIDDLE, depth - 1)
    above = (depth - middle) // 2  # layers of the stack in the upper part
    under = depth - middle - above
    fits = np.ones(len(sinks), dtype=bool)
    supply = wanted[:, None] * (top / top.sum())
    for layer in reversed(range(depth - above, depth)):
        share = _ratio(supply, stack[layer].sum(1))
        fits &= share.max(1) <= 1
        supply = share @ stack[layer]
    ends = stack[0][:, sinks].T
    demand = wanted[:, None] * (ends / ends.sum(1, keepdims=True))
    for layer in range(1, under):
        share = _ratio(demand, stack[layer].sum(0))
        fits &= share.max(1) <= 1
        demand = share @ stack[layer].T
    carried = _carry(supply, demand, stack[under : depth - above], wanted)
    # Only a full middle fits the two parts around it: what is missing would have to be taken out of them.
    return np.where(fits, carried, 0.0)


def _carry(supply: Array, demand: Array, layers: Array, wanted: Array) -> Array:
    """How much of `supply` [J, n] greedy rounds bring through `layers` (lowest first) to meet `demand` [J, n]."""
    room = [np.repeat(layer[None], len(supply), 0) for layer in layers]  # [J, k, m]
    carried = np.zeros(len(supply))
    missing = wanted
    for _ in range(ROUNDS):
        needs = [demand]
        pushes: list[Array] = []
        for free in room:
            pushes.append(np.minimum(free, needs[-1][:, None, :]))
            needs.append(pushes[-1].sum(2))
        sent = np.minimum(supply, needs[-1])
        arrivals: list[Array] = []
        for level in reversed(range(len(room))):
            pushes[level] *= _ratio(sent, needs[level + 1])[:, :, None]
            arrivals.insert(0, pushes[level].sum(1))
            sent = np.minimum(arrivals[0], needs[level])
        demand = demand - sent
        for level, free in enumerate(room):  # what found no place further down was never sent
            pushes[level] *= _ratio(sent, arrivals[level])[:, None, :]
            free -= pushes[level]
            sent = pushes[level].sum(2)
        supply = supply - sent
        carried += sent.sum(1)
        before, missing = missing, wanted - carried
        unfinished = missing > wanted * CLOSE
        if not unfinished.any() or np.median(missing[unfinished] / before[unfinished]) > STUCK:
            break
    return carried


def _ratio(part: Array, whole: Array) -> Array:
    """`part / whole`, 0 where the whole is 0."""
    part, whole = np.broadcast_arrays(part, whole)
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _solve(top: Array, stack: Array, pairs: NDArray[np.intp]) -> Array:
    """Maximum flows of (row of `top`, input) pairs: the cuts that scipy finds on capacities rounded to integers.

    Inputs that much the same nodes lead to have a graph of these nodes, of which several copies are solved at a time:
    only the edges at the source and at the sink are a flow's own.
    """
    limit = min(top.sum(1).max(), stack[0].sum(0).max())
    starts, ends, *inner = (
        np.rint(np.minimum(level, limit) * (INTEGERS / limit)).astype(np.int32) for level in (top, *stack)
    )
    values = np.empty(len(pairs))
    for nodes, members in _alike(ends, inner, pairs[:, 1]):
        network = _network(nodes, inner, len(members))
        for first in range(0, len(members), network.copies):
            some = members[first : first + network.copies]
            still_wanted()
            row, sink = pairs[some].T
            for each, reached in zip(some, network.reached(starts[row], ends[:, sink].T), strict=False):
                values[each] = _across(top[pairs[each, 0]], stack, stack[0][:, pairs[each, 1]], reached)
    return values


def _alike(
    ends: NDArray[np.int32], inner: Sequence[NDArray[np.int32]], sinks: NDArray[np.intp]
) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.intp]]]:
    """Which of `sinks` share a graph, and the nodes [t, n] that lead to any of these."""
    every, column = np.unique(sinks, return_inverse=True)
    leads = [ends[:, every].T > 0]  # from the nodes of each height: [J, n]
    for level in inner:
        leads.append(leads[-1] @ (level.T > 0))
    different, group = np.unique(np.stack(leads, 1), axis=0, return_inverse=True)
    group = group.ravel()[column]
    together: list[int] = []
    for number in np.argsort(different.sum((1, 2))):  # neighbours, of whose nodes most are the same
        together.append(int(number))
        members = np.flatnonzero(np.isin(group, together))
        if len(members) >= SHARED:
            yield np.logical_or.reduce(different[together]), members
            together = []
    if together:
        yield np.logical_or.reduce(different[together]), np.flatnonzero(np.isin(group, together))


@dataclass(frozen=True)
class _Network:
    """A source, copies of some `nodes` [t, n] of each height, lowest first, and a sink: node 0."""

    nodes: NDArray[np.bool_]
    graph: csr_array
    starts: NDArray[np.intp]  # where the graph has the edges of the source, by copy: [C, ·]
    ends: NDArray[np.intp]  # and those to the sink

    @property
    def copies(self) -> int:
        return len(self.starts)

    def reached(self, starts: NDArray[np.int32], ends: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which nodes a maximum flow leaves on the source's side, by copy: [C, t, n].

        `starts` and `ends` [≤ C, n] are its edges. All that do not lead to the sink are on the source's side.
        """
        graph, source = self.graph, self.graph.shape[0] - 1
        graph.data[self.starts[len(starts) :]] = 0
        graph.data[self.starts[: len(starts)]] = starts[:, self.nodes[-1]]
        graph.data[self.ends[: len(ends)]] = ends[:, self.nodes[0]]
        used = maximum_flow(graph, source, 0).flow
        left = csr_array((graph.data - used.data, graph.indices, graph.indptr), shape=graph.shape, copy=True)
        left.eliminate_zeros()
        found = np.zeros(source + 1, dtype=bool)
        found[breadth_first_order(left, source, return_predecessors=False)] = True
        reached = np.ones((self.copies, *self.nodes.shape), dtype=bool)
        reached[:, self.nodes] = found[1:-1].reshape(self.copies, -1)
        return reached


def _network(nodes: NDArray[np.bool_], inner: Sequence[NDArray[np.int32]], wanted: int) -> _Network:
    """The nodes with an edge for every entry of the levels between them that is not rounded to nothing.

    As many copies as are wanted, and no more than a cache holds.
    """
    joined = zip(inner, nodes[1:], nodes, strict=False)
    levels = [level * (above[:, None] & under) for level, above, under in joined]
    places = [np.nonzero(level) for level in levels]
    count, names = int(nodes.sum()), np.cumsum(nodes).reshape(nodes.shape)
    highest, lowest = names[-1][nodes[-1]], names[0][nodes[0]]
    s, e = len(highest), len(lowest)
    tails = np.concatenate([np.zeros(s), lowest, *(names[h + 1][i] for h, (i, _) in enumerate(places))])
    heads = np.concatenate([highest, np.zeros(e), *(names[h][k] for h, (_, k) in enumerate(places))])
    copies = max(1, min(wanted, EDGES // len(tails)))
    more = count * np.arange(copies)[:, None]
    tails, heads = (np.where(each > 0, each + more, 0).astype(np.int32) for each in (tails, heads))  # [C, edges]
    tails[:, :s] = count * copies + 1
    # Each with its reverse of capacity 0, which scipy would add for every flow anew. At first edges have their numbers.
    number = np.arange(2 * tails.size, dtype=np.int32)
    ends = np.concatenate([tails.ravel(), heads.ravel()]), np.concatenate([heads.ravel(), tails.ravel()])
    graph = coo_array((number, ends), shape=(count * copies + 2,) * 2).tocsr()
    graph.sort_indices()
    where = np.argsort(graph.data)[: tails.size].reshape(tails.shape)
    graph.data = np.zeros_like(graph.data)
    graph.data[where[:, s + e :]] = np.concatenate([level[place] for level, place in zip(levels, places, strict=True)])
    return _Network(nodes, graph, where[:, :s], where[:, s : s + e])


def _across(starts: Array, stack: Array, ends: Array, reached: NDArray[np.bool_]) -> float:
    """The capacity of all edges that lead out of the nodes `reached`, and from the source to the others."""
    sides = reached.astype(np.float64)
    inner = sum(above @ level @ (1 - under) for above, level, under in zip(sides[1:], stack[1:], sides, strict=False))
    return float(starts @ (1 - sides[-1]) + sides[0] @ ends + inner)


def flow_cost(n: int, depth: int, bytes: int, rows: int) -> Work:
    """Maximum flows of `rows` tokens in every layer, n each."""
    # Closed forms serve the first two layers, and on usual attention bounds serve those from the sixth on.
    solved, bounded = range(2, min(depth, 5)), max(0, depth - 5)
    return Work(
        moved=8 * n**3 * (40 * depth * (rows == n) + 600 * bounded * (rows == 1)),
        calls=40 * depth,
        solves=sum(rows * n / max(1, min(rows * n, EDGES // ((layer - 1) * n * n))) for layer in solved),
        edges=3 * sum(rows * n * (layer - 1) * n * n for layer in solved),  # some are followed more than once
        held=8 * (3 * depth * n * n + 10 * min(n**3, TILE)) + bytes * depth * rows * n,
    )
