"""Tests of valid containers with malformed operators.

Every conformance case of every operator, with tensors dropped, absent, constant or not,
or of another rank, size, type or quantization, must be rejected or compiled.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

from firmwright.base.errors import ModelError, UnsupportedError
from firmwright.base.quant import Quantization
from firmwright.conformance.case_tables import ConformanceCase, conformance_cases
from firmwright.frontends.tflite import read_tflite
from firmwright.frontends.tflite.decoded_model import (
    RawModel,
    RawNode,
    RawSubgraph,
    RawTensor,
)
from firmwright.frontends.tflite.importer import import_model
from firmwright.ops.registry import op_table
from firmwright.pipeline import Options, compile_model
from tests.ops.tflite_writer import write_cases

Damage = Callable[[RawSubgraph, random.Random], RawSubgraph]
DTYPES = ("int8", "int16", "int32", "float32", "uint8", "bool", "int64", "float16")
PER_CASE = 1


def _node(graph: RawSubgraph, node: RawNode) -> RawSubgraph:
    return replace(graph, nodes=(node,))


def _tensor(graph: RawSubgraph, index: int, **changes: object) -> RawSubgraph:
    tensors = list(graph.tensors)
    tensors[index] = replace(tensors[index], **changes)  # type: ignore[arg-type]
    return replace(graph, tensors=tuple(tensors))


def _any(graph: RawSubgraph, rng: random.Random) -> RawTensor:
    return rng.choice(graph.tensors)


def drop_input(graph: RawSubgraph, rng: random.Random) -> RawSubgraph:
    node = graph.nodes[0]
    return _node(
        graph, replace(node, inputs=node.inputs[: rng.randrange(len(node.inputs))])
    )


def absent_input(graph: RawSubgraph, rng: random.Random) -> RawSubgraph:
    node = graph.nodes[0]
    inputs = list(node.inputs)
    inputs[rng.randrange(len(inputs))] = -1
    return _node(graph, replace(node, inputs=tuple(inputs)))


def more_inputs(graph: RawSubgraph, rng: random.Random) -> RawSubgraph:
    node = graph.nodes[0]
    return _node(
        graph, replace(node, inputs=(*node.inputs, *rng.choices(node.inputs, k=2)))
    )


def swap_inputs(graph: RawSubgraph, rng: random.Random) -> RawSubgraph:
    node = graph.nodes[0]
    return _node(
        graph, replace(node, inputs=tuple(rng.sample(node.inputs, len(node.inputs))))
    )


def no_output(graph: RawSubgraph, rng: random.Random) -> RawSubgraph:
    return _node(graph, replace(graph.nodes[0], outputs=()))


def no_quantisation(graph: RawSubgraph, rng: random.Random) -> RawSubgraph:
    return _tensor(graph, _any(graph, rng).index, quantization=None)


def other_quantisation(graph: RawSubgraph, rng: random.Random) -> RawSubgraph:
    tensor = _any(graph, rng)
    axes = [a for a, size in enumerate(tensor.shape) if size > 0]
    if not axes or rng.random() < 0.5:
        scale = rng.choice((1e-40, 1e-30, 3.0e38, 0.5, 1.0))
        return _tensor(
            graph,
            tensor.index,
            quantization=Quantization((scale,), (rng.choice((0, 5)),)),
        )
    axis = rng.choice(axes)
    count = tensor.shape[axis]
    quantization = Quantization((0.5,) * count, (0,) * count, axis)
    return _tensor(graph, tensor.index, quantization=quantization)


def other_shape(graph: RawSubgraph, rng: random.Random) -> RawSubgraph:
    tensor = _any(graph, rng)
    shape = list(tensor.shape) or [1]
    match rng.randrange(4):
        case 0:
            shape.pop(rng.randrange(len(shape)))
        case 1:
            shape.insert(rng.randrange(len(shape) + 1), rng.choice((1, 2)))
        case 2:
            shape[rng.randrange(len(shape))] = 0
        case _:
            shape[rng.randrange(len(shape))] += 1
    return _reshaped(graph, tensor, tuple(shape))


def _reshaped(
    graph: RawSubgraph, tensor: RawTensor, shape: tuple[int, ...]
) -> RawSubgraph:
    """Keep the guarantees of the reader: buffer and scales fit the shape."""
    changes: dict[str, object] = {"shape": shape, "shape_signature": ()}
    if tensor.buffer is not None:
        before = max(1, math.prod(tensor.shape))
        each = len(tensor.buffer) // before
        changes["buffer"] = (tensor.buffer + bytes(each * math.prod(shape)))[
            : each * math.prod(shape)
        ]
    quantization = tensor.quantization
    if quantization is not None and quantization.axis is not None:
        changes["quantization"] = None
    return _tensor(graph, tensor.index, **changes)


def other_dtype(graph: RawSubgraph, rng: random.Random) -> RawSubgraph:
    tensor = _any(graph, rng)
    sizes = {"int8": 1, "uint8": 1, "bool": 1, "int16": 2, "float16": 2, "int64": 8}
    dtype = rng.choice(DTYPES)
    changes: dict[str, object] = {"dtype": dtype}
    if tensor.buffer is not None:
        changes["buffer"] = bytes(math.prod(tensor.shape) * sizes.get(dtype, 4))
    return _tensor(graph, tensor.index, **changes)


def not_constant(graph: RawSubgraph, rng: random.Random) -> RawSubgraph:
    """Turn a constant into an input, since readers reject uses of undefined tensors."""
    tensor = _any(graph, rng)
    if tensor.buffer is None:
        return graph
    inputs = (*graph.inputs, tensor.index)
    return replace(_tensor(graph, tensor.index, buffer=None), inputs=inputs)


def other_option(graph: RawSubgraph, rng: random.Random) -> RawSubgraph:
    node = graph.nodes[0]
    options = dict(node.options)
    numbers = [k for k, v in options.items() if isinstance(v, int | float)]
    if not numbers:
        return graph
    options[rng.choice(numbers)] = rng.choice((0, -1, 1, 7, 1 << 30))
    return _node(graph, replace(node, options=options))


DAMAGES: tuple[Damage, ...] = (
    drop_input,
    absent_input,
    more_inputs,
    swap_inputs,
    no_output,
    no_quantisation,
    other_quantisation,
    other_shape,
    other_shape,
    other_dtype,
    not_constant,
    other_option,
)


SOME = 8
"""Without --deep, every n-th case is tested."""


def all_cases() -> list[tuple[str, ConformanceCase]]:
    return [(name, case) for name in op_table() for case in conformance_cases(name)]


def test_malformed_nodes_are_rejected_or_compiled(deep: bool) -> None:
    ends = {"refused": 0, "compiled": 0}
    for number, (name, case) in enumerate(all_cases()):
        if number % SOME and not deep:
            continue
        raw = read_tflite(write_cases([case]), "case.tflite")
        for index in range(PER_CASE * (40 if deep else 1)):
            rng = random.Random(f"{number}/{index}")
            damage = rng.choice(DAMAGES)
            graph = damage(raw.subgraphs[0], rng)
            label = f"{name} {case.name}, {index} ({damage.__name__})"
            ends[end_of(replace(raw, subgraphs=(graph,)), label)] += 1
    assert all(ends.values()), ends


def end_of(raw: RawModel, label: str) -> str:
    try:
        module = import_model(raw, "damaged", b"", op_table())
        compile_model(module, Options())
    except (ModelError, UnsupportedError):
        return "refused"
    except BaseException as error:
        error.add_note(label)
        raise
    return "compiled"
