"""Layered drawing of directed acyclic graphs, after Sugiyama, Tagawa and Toda (1981).

Nodes are on layers, so that every edge leads downwards; an edge over several layers has
a bend on each layer between. Orders within layers are improved by the median of
neighbors. Then coordinates are improved layer by layer: given the places that the
neighbors ask for, isotonic regression gives the best ones without overlaps. The result
depends on the graph alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median

ORDER_SWEEPS = 12
PLACE_SWEEPS = 16
BEND_WEIGHT = 6.0
"""How much more than other items two bends are drawn together: edges are straight.

A bend beside a node is not: both move as far, so that a chain with edges around parts
of it stays where it is.
"""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class LayoutStyle:
    """Sizes of the drawing in pixels: nodes, the gaps between them, and of bends."""

    node_width: float = 176.0
    node_height: float = 46.0
    gap: float = 28.0
    layer_gap: float = 46.0
    bend_width: float = 34.0
    margin: float = 18.0


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """The centers of the nodes, and each edge's points from source to target."""

    centers: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def lay_out_graph(
    node_count: int,
    edges: Sequence[tuple[int, int]],
    style: LayoutStyle = LayoutStyle(),
) -> GraphLayout:
    """Lay out nodes 0 to `node_count` - 1; edges lead from lower to higher numbers."""
    if not node_count:
        return GraphLayout((), (), 2 * style.margin, 2 * style.margin)
    layers = _assign_layers(node_count, edges)
    graph = _LayeredGraph.build(layers, edges)
    graph.order()
    xs = graph.place(node_count, style)
    step = style.node_height + style.layer_gap
    top = style.margin + style.node_height / 2
    centers = [
        (x, top + step * layer) for x, layer in zip(xs, graph.layers, strict=True)
    ]
    routes: list[tuple[Point, ...]] = []
    for chain in graph.chains:
        routes.append(tuple(centers[item] for item in chain))
    return GraphLayout(
        tuple(centers[:node_count]),
        tuple(routes),
        _width(graph, xs, node_count, style),
        2 * style.margin + style.node_height + step * max(layers),
    )


def _assign_layers(node_count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the longest path to each node; sources are just above their consumers."""
    layers = [0] * node_count
    first_consumer: dict[int, int] = {}
    with_producer: set[int] = set()
    for source, target in sorted(edges):
        layers[target] = max(layers[target], layers[source] + 1)
        with_producer.add(target)
    for source, target in edges:
        consumer = first_consumer.get(source, layers[target])
        first_consumer[source] = min(consumer, layers[target])
    for node, consumer in first_consumer.items():
        if node not in with_producer:
            layers[node] = consumer - 1
    return layers


@dataclass(slots=True)
class _LayeredGraph:
    """Nodes and, after them, bends; `rows` has the items of each layer in order."""

    layers: list[int]
    chains: list[list[int]] = field(default_factory=list)
    above: dict[int, list[int]] = field(default_factory=dict)
    below: dict[int, list[int]] = field(default_factory=dict)
    rows: list[list[int]] = field(default_factory=list)

    @classmethod
    def build(
        cls, layers: Sequence[int], edges: Sequence[tuple[int, int]]
    ) -> "_LayeredGraph":
        graph = cls(list(layers))
        for source, target in edges:
            chain = [source]
            for layer in range(layers[source] + 1, layers[target]):
                chain.append(len(graph.layers))
                graph.layers.append(layer)
            chain.append(target)
            graph.chains.append(chain)
            for upper, lower in pairwise(chain):
                graph.below.setdefault(upper, []).append(lower)
                graph.above.setdefault(lower, []).append(upper)
        graph.rows = [[] for _ in range(max(graph.layers) + 1)]
        for item in graph._depth_first(len(layers)):
            graph.rows[graph.layers[item]].append(item)
        return graph

    def _depth_first(self, node_count: int) -> list[int]:
        """Return all items in depth-first order, which has few crossings already."""
        seen: dict[int, None] = {}
        for start in range(node_count):
            stack = [start]
            while stack:
                item = stack.pop()
                if item not in seen:
                    seen[item] = None
                    stack += reversed(self.below.get(item, []))
        return list(seen)

    # ---- the order within layers -----------------------------------------------------

    def order(self) -> None:
        """Sort layers by the medians of their neighbors, and keep the best order."""
        best, fewest = self._copy_of_rows(), self.crossings()
        for sweep in range(ORDER_SWEEPS):
            if not fewest:
                break
            is_down = sweep % 2 == 0
            neighbors = self.above if is_down else self.below
            rows = self.rows if is_down else self.rows[::-1]
            for fixed, row in pairwise(rows):
                _sort_by_medians(row, fixed, neighbors)
            crossings = self.crossings()
            if crossings < fewest:
                best, fewest = self._copy_of_rows(), crossings
        self.rows = best

    def _copy_of_rows(self) -> list[list[int]]:
        return [list(row) for row in self.rows]

    def crossings(self) -> int:
        total = 0
        for upper, lower in pairwise(self.rows):
            place = {item: index for index, item in enumerate(lower)}
            ends: list[int] = []
            for item in upper:
                ends += sorted(place[target] for target in self.below.get(item, ()))
            total += _count_inversions(ends)
        return total

    # ---- coordinates -----------------------------------------------------------------

    def place(self, node_count: int, style: LayoutStyle) -> list[float]:
        """Return the x coordinate of each item's center."""
        xs = [0.0] * len(self.layers)
        separations: list[list[float]] = []
        for row in self.rows:
            offsets = _offsets(row, node_count, style)
            separations.append(offsets)
            for item, offset in zip(row, offsets, strict=True):
                xs[item] = offset - offsets[-1] / 2
        for sweep in range(PLACE_SWEEPS):
            numbers = range(len(self.rows))
            is_last = sweep == PLACE_SWEEPS - 1
            for number in numbers if sweep % 2 == 0 else reversed(numbers):
                sides = [self.above, self.below]
                if not is_last:
                    sides = sides[:1] if sweep % 2 == 0 else sides[1:]
                self._place_row(number, xs, separations[number], sides, node_count)
        left = min(
            x - _item_width(item, node_count, style) / 2 for item, x in enumerate(xs)
        )
        return [round(x - left + style.margin, 1) for x in xs]

    def _place_row(
        self,
        number: int,
        xs: list[float],
        offsets: Sequence[float],
        sides: Sequence[Mapping[int, Sequence[int]]],
        node_count: int,
    ) -> None:
        row = self.rows[number]
        wished: list[float] = []
        weights: list[float] = []
        for item, offset in zip(row, offsets, strict=True):
            neighbors: list[int] = []
            for side in sides:
                neighbors += side.get(item, ())
            is_inner = item >= node_count <= max(neighbors, default=0)
            wish = fmean(xs[other] for other in neighbors) if neighbors else xs[item]
            wished.append(wish - offset)
            weight = BEND_WEIGHT if is_inner else 1.0
            weights.append(weight if neighbors else weight / BEND_WEIGHT)
        fitted = _fit_increasing(wished, weights)
        for item, offset, value in zip(row, offsets, fitted, strict=True):
            xs[item] = value + offset


def _sort_by_medians(
    row: list[int], fixed: Sequence[int], neighbors: Mapping[int, Sequence[int]]
) -> None:
    """Sort a layer; items without neighbors keep their places."""
    place = {item: index for index, item in enumerate(fixed)}
    keys: dict[int, float] = {}
    for index, item in enumerate(row):
        others = [place[other] for other in neighbors.get(item, ())]
        keys[item] = float(median(others)) if others else float(index)
    row.sort(key=lambda item: keys[item])


def _count_inversions(values: Sequence[int]) -> int:
    """Return the number of pairs in descending order, by a binary indexed tree."""
    size = max(values, default=0) + 1
    tree = [0] * (size + 1)
    inversions = 0
    for count, value in enumerate(values):
        position, not_larger = value + 1, 0
        while position:
            not_larger += tree[position]
            position -= position & -position
        inversions += count - not_larger
        position = value + 1
        while position <= size:
            tree[position] += 1
            position += position & -position
    return inversions


def _fit_increasing(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the nondecreasing sequence with the least weighted squared distance."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            upper_mean, upper_weight, upper_count = blocks.pop()
            mean, own_weight, count = blocks.pop()
            total = own_weight + upper_weight
            mean = (mean * own_weight + upper_mean * upper_weight) / total
            blocks.append((mean, total, count + upper_count))
    fitted: list[float] = []
    for mean, _, count in blocks:
        fitted += [mean] * count
    return fitted


def _item_width(item: int, node_count: int, style: LayoutStyle) -> float:
    return style.node_width if item < node_count else style.bend_width


def _offsets(row: Sequence[int], node_count: int, style: LayoutStyle) -> list[float]:
    """Return the least distances of the centers from the first item's."""
    offsets = [0.0]
    for left, right in pairwise(row):
        widths = _item_width(left, node_count, style)
        widths += _item_width(right, node_count, style)
        both_bends = left >= node_count and right >= node_count
        offsets.append(offsets[-1] + widths / 2 + (0 if both_bends else style.gap))
    return offsets[: len(row)]


def _width(
    graph: _LayeredGraph, xs: Sequence[float], node_count: int, style: LayoutStyle
) -> float:
    right = 0.0
    for item in range(len(graph.layers)):
        right = max(right, xs[item] + _item_width(item, node_count, style) / 2)
    return right + style.margin
