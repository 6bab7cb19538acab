"""Layers lead downwards, nodes never overlap, and edges cross only if they must."""

import random
from itertools import combinations, pairwise

import pytest

from firmwright.report.layered_layout import GraphLayout, LayoutStyle, lay_out_graph

STYLE = LayoutStyle()
Edges = list[tuple[int, int]]


def chain(count: int) -> Edges:
    return list(pairwise(range(count)))


def residual(blocks: int) -> Edges:
    """Return blocks of three nodes, each with an edge around two of them."""
    edges = chain(3 * blocks + 1)
    return [*edges, *((3 * block, 3 * block + 3) for block in range(blocks))]


def random_graph(seed: int, count: int) -> Edges:
    generator = random.Random(seed)
    edges = set()
    for target in range(1, count):
        for _ in range(generator.choice((1, 1, 1, 2, 3))):
            edges.add((generator.randrange(max(0, target - 12), target), target))
    return sorted(edges)


def overlapping(layout: GraphLayout) -> list[tuple[int, int]]:
    found = []
    for (a, first), (b, second) in combinations(enumerate(layout.centers), 2):
        dx, dy = abs(first[0] - second[0]), abs(first[1] - second[1])
        if dx < STYLE.node_width and dy < STYLE.node_height:
            found.append((a, b))
    return found


GRAPHS = {
    "chain": (13, chain(13)),
    "residual": (49, residual(16)),
    "skip over the whole network": (40, [*chain(40), (0, 39), (2, 37), (4, 35)]),
    "branches": (8, [(0, n) for n in range(1, 7)] + [(n, 7) for n in range(1, 7)]),
    "two inputs": (4, [(0, 2), (1, 3), (2, 3)]),
    "no edges": (3, []),
    **{f"random {seed}": (60, random_graph(seed, 60)) for seed in range(4)},
}


@pytest.mark.parametrize("name", GRAPHS)
def test_edges_lead_downwards_between_nodes_that_do_not_overlap(name: str):
    count, edges = GRAPHS[name]
    layout = lay_out_graph(count, edges)
    assert len(layout.centers) == count
    assert overlapping(layout) == []
    for (source, target), route in zip(edges, layout.routes, strict=True):
        assert (route[0], route[-1]) == (layout.centers[source], layout.centers[target])
        assert all(upper[1] < lower[1] for upper, lower in pairwise(route))
    for x, y in layout.centers:
        assert STYLE.node_width / 2 < x < layout.width - STYLE.node_width / 2
        assert STYLE.node_height / 2 < y < layout.height - STYLE.node_height / 2


@pytest.mark.parametrize("name", GRAPHS)
def test_bends_stay_clear_of_nodes(name: str):
    count, edges = GRAPHS[name]
    layout = lay_out_graph(count, edges)
    for route in layout.routes:
        for x, y in route[1:-1]:
            on_layer = [center for center in layout.centers if center[1] == y]
            assert all(abs(x - other) > STYLE.node_width / 2 for other, _ in on_layer)


def test_a_chain_is_straight_and_an_input_is_near_its_consumer():
    layout = lay_out_graph(13, chain(13))
    assert len({x for x, _ in layout.centers}) == 1
    late_input = lay_out_graph(6, [(0, 1), (1, 2), (2, 3), (3, 5), (4, 5)])
    assert late_input.centers[4][1] == late_input.centers[3][1]


def test_blocks_with_an_edge_around_have_no_crossings():
    """A ladder of skip edges is planar; the drawing shows it so."""
    layout = lay_out_graph(49, residual(16))
    rows: dict[float, list[tuple[float, float]]] = {}
    for route in layout.routes:
        for upper, lower in pairwise(route):
            rows.setdefault(upper[1], []).append((upper[0], lower[0]))
    for segments in rows.values():
        for (a, b), (c, d) in combinations(segments, 2):
            assert (a - c) * (b - d) >= 0


@pytest.mark.parametrize("blocks", [3, 60])
def test_long_networks_do_not_drift_sideways(blocks: int):
    layout = lay_out_graph(3 * blocks + 1, residual(blocks))
    assert layout.width < 3 * STYLE.node_width


def test_the_same_graph_has_the_same_layout():
    edges = random_graph(7, 80)
    assert lay_out_graph(80, edges) == lay_out_graph(80, edges)
    assert lay_out_graph(0, []).centers == ()
