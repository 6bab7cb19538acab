"""Draws a network: nodes by layer from top to bottom, edges as wide as their bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from firmwright.report.layered_layout import LayoutStyle, Point, lay_out_graph
from firmwright.report.model import BuildReport, OperatorReport
from firmwright.report.network import Network, NetworkNode, NodeRole
from firmwright.report.text_shortening import shorten

STYLE = LayoutStyle()
LABEL_LETTERS = 23
"""Longer labels of nodes end with an ellipsis."""
EDGE_WIDTHS = (1.5, 7.0)
"""The widths in pixels of the edges with the fewest and the most bytes."""


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node with its top left corner.

    `heat` is its part of the slowest operator's count, in percent, and `share` that of
    the run. `before` and `after` are the positions of its neighbors.
    """

    node: NetworkNode
    x: float
    y: float
    title: str
    subtitle: str
    description: str
    share: float | None
    heat: float
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An edge as an SVG path; `label` is "" if another edge shows the same value."""

    path: str
    width: float
    label: str
    label_at: Point


@dataclass(frozen=True, slots=True)
class NetworkDrawing:
    """A network to draw; `hottest` is the largest share of a run, in percent."""

    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]
    width: float
    height: float
    hottest: float
    style: LayoutStyle


def draw_network(network: Network, report: BuildReport) -> NetworkDrawing:
    pairs = sorted({(edge.source, edge.target) for edge in network.edges})
    layout = lay_out_graph(len(network.nodes), pairs, STYLE)
    operators = {operator.index: operator for operator in report.operators}
    slowest = max((operator.count for operator in report.operators), default=0) or 1
    total = max(report.total, 1)
    nodes: list[DrawnNode] = []
    for position, node in enumerate(network.nodes):
        operator = None if node.index is None else operators.get(node.index)
        x, y = layout.centers[position]
        share = None if operator is None else 100 * operator.count / total
        before, after = network.neighbors(position)
        drawn = DrawnNode(
            node=node,
            x=x - STYLE.node_width / 2,
            y=y - STYLE.node_height / 2,
            title=shorten(node.label, LABEL_LETTERS),
            subtitle=_subtitle(node, share),
            description=_description(node, operator, share, report.unit),
            share=share,
            heat=0.0 if operator is None else 100 * operator.count / slowest,
            before=tuple(before),
            after=tuple(after),
        )
        nodes.append(drawn)
    routes = dict(zip(pairs, layout.routes, strict=True))
    return NetworkDrawing(
        nodes=tuple(nodes),
        edges=_draw_edges(network, routes),
        width=layout.width,
        height=layout.height,
        hottest=100 * slowest / total,
        style=STYLE,
    )


def _subtitle(node: NetworkNode, share: float | None) -> str:
    tensors = node.outputs or node.inputs
    parts = [tensors[0].shape_label] if tensors else []
    if node.role is not NodeRole.OPERATOR and tensors:
        parts.append(tensors[0].dtype)
    if share is not None:
        parts.append(f"{share:.1f} %")
    return " · ".join(parts)


def _description(
    node: NetworkNode, operator: OperatorReport | None, share: float | None, unit: str
) -> str:
    parts = [node.label if node.index is not None else f"{node.role} {node.label}"]
    if operator is not None and share is not None:
        parts.append(f"{operator.count:,} {unit}, {share:.1f} % of the run")
    for tensor in node.outputs or node.inputs:
        parts.append(
            f"{tensor.dtype} {tensor.shape_label}, {tensor.size_bytes:,} bytes"
        )
    return ", ".join(parts)


def _draw_edges(
    network: Network, routes: Mapping[tuple[int, int], tuple[Point, ...]]
) -> tuple[DrawnEdge, ...]:
    largest = max((edge.tensor.size_bytes for edge in network.edges), default=0) or 1
    made: dict[int, set[str]] = {}
    for edge in network.edges:
        made.setdefault(edge.source, set()).add(edge.tensor.name)
    labeled: set[tuple[int, str]] = set()
    drawn: list[DrawnEdge] = []
    for edge in network.edges:
        route = routes[edge.source, edge.target]
        thin, thick = EDGE_WIDTHS
        width = thin + (thick - thin) * sqrt(edge.tensor.size_bytes / largest)
        key = (edge.source, edge.tensor.name)
        label = "" if key in labeled else f"{edge.tensor.size_bytes:,}"
        labeled.add(key)
        at = _label_place(route, is_only=len(made[edge.source]) == 1)
        drawn.append(DrawnEdge(_path(route), width, label, at))
    return tuple(drawn)


def _label_place(route: tuple[Point, ...], *, is_only: bool) -> Point:
    """Return the place below a source with one value, else above the target."""
    half = STYLE.node_height / 2
    x, y = route[0] if is_only else route[-1]
    return (x + 9, y + half + 15) if is_only else (x + 9, y - half - 7)


def _path(route: tuple[Point, ...]) -> str:
    """Return curves between the layers, and straight lines along bends."""
    half = STYLE.node_height / 2
    x, y = route[0]
    parts = [f"M{x:.1f} {y + half:.1f}"]
    for index, (next_x, next_y) in enumerate(route[1:], start=1):
        top, bottom = y + half, next_y - half
        middle = (top + bottom) / 2
        parts.append(
            f"C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} {next_x:.1f} {bottom:.1f}"
        )
        if index < len(route) - 1:
            parts.append(f"V{next_y + half:.1f}")
        x, y = next_x, next_y
    return "".join(parts)
