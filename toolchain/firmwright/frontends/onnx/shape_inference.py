"""Shape inference of the package onnx, without the nodes that end its process.

Source: the inference functions of versions up to 1.23, some of which read the type of
their first input without a check whether it is known.
"""

from collections.abc import Iterator

from firmwright.frontends.onnx.protobuf import Message, onnx_package

_NEEDS_KNOWN_TYPE = frozenset(
    {"DictVectorizer", "EyeLike", "LabelEncoder", "RegexFullMatch", "TreeEnsemble"}
)


def infer_shapes(model: Message, *, is_strict: bool = False) -> Message:
    """Return the model with the types and shapes that the package infers.

    With `is_strict`, nodes that break rules of types or shapes are errors, too. Raises
    InferenceError of the package, RuntimeError or ValueError.
    """
    inference = onnx_package().shape_inference
    safe = _without_unsafe_nodes(model)
    return inference.infer_shapes(safe, check_type=is_strict, strict_mode=is_strict)


def _without_unsafe_nodes(model: Message) -> Message:
    """Return the model without the nodes that crash if a type is unknown.

    The types of inputs and constants of the main graph are known.
    """
    graph = model.graph
    known = {item.name for item in graph.initializer}
    known |= {item.name for item in graph.input if item.HasField("type")}
    if not any(_is_unsafe(node, known) for node in _all_nodes(model)):
        return model
    reduced = type(model)()
    reduced.CopyFrom(model)
    for nodes in _node_lists(reduced):
        kept = [node for node in nodes if not _is_unsafe(node, known)]
        del nodes[:]
        nodes.extend(kept)
    return reduced


def _is_unsafe(node: Message, known: set[str]) -> bool:
    first = node.input[0] if node.input else ""
    return node.op_type in _NEEDS_KNOWN_TYPE and first not in known


def _all_nodes(model: Message) -> Iterator[Message]:
    for nodes in _node_lists(model):
        yield from nodes


def _node_lists(model: Message) -> Iterator[Message]:
    """Yield the lists of nodes of the graph, of functions and of all their bodies."""
    waiting = [model.graph.node, *(function.node for function in model.functions)]
    while waiting:
        nodes = waiting.pop()
        yield nodes
        for node in nodes:
            for item in node.attribute:
                waiting += [body.node for body in bodies(item)]


def bodies(item: Message) -> list[Message]:
    """Return the graphs in an attribute."""
    return [item.g, *item.graphs] if item.HasField("g") else list(item.graphs)
