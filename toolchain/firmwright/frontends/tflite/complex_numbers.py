"""Spectra of real signals: complex tensors become pairs of floats.

A tensor complex64 [...] becomes float32 [..., 2] with the real and imaginary parts:

    RFFT2D       x [..., 1, n]  ->  SignalRfft if n is a power of two, otherwise
        FULLY_CONNECTED with the n / 2 + 1 cosines and sines
    RESHAPE      [..., 2]       ->  RESHAPE to [shape, 2]
    COMPLEX_ABS  [..., 2]       ->  sqrt of the SUM of SQUARE over the last axis
    REAL, IMAG   [..., 2]       ->  GATHER of element 0 or 1 of the last axis

The matrix has n * (n + 2) floats, rounded from double. Semantics: TFLite's reference
kernels; RFFT2D there is a fast transform in double, from which one of floats, or a sum
of n products, differs by its rounding. Transforms over two axes are not supported.
"""

from dataclasses import replace

import numpy as np

from firmwright.frontends.fourier_transform import (
    TRANSFORM_POINTS_MAX,
    FourierTransform,
)
from firmwright.frontends.tflite.decoded_model import (
    NO_TENSOR,
    RawNode,
    RawSubgraph,
    RawTensor,
)
from firmwright.frontends.tflite.graph_rewriter import GraphRewriter
from firmwright.frontends.tflite.spectrum_nodes import add_magnitudes, add_product
from firmwright.ir.core import Attrs

_COMPLEX = "complex64"
_OPERATORS = ("RFFT2D", "RESHAPE", "COMPLEX_ABS", "REAL", "IMAG")


def lower_complex_numbers(graph: RawSubgraph) -> RawSubgraph:
    """Return the graph without complex numbers.

    It is unchanged if other operators, inputs or outputs are complex.
    """
    complex_tensors = {t.index for t in graph.tensors if t.dtype == _COMPLEX}
    if not complex_tensors:
        return graph
    if not complex_tensors.isdisjoint((*graph.inputs, *graph.outputs)):
        return graph
    for node in graph.nodes:
        uses_complex = not complex_tensors.isdisjoint((*node.inputs, *node.outputs))
        if uses_complex and not _is_known(graph, node):
            return graph
    rewriter = GraphRewriter(graph)
    for index in complex_tensors:
        tensor = graph.tensors[index]
        pair = replace(
            tensor, dtype="float32", shape=(*tensor.shape, 2), shape_signature=()
        )
        rewriter.tensors[index] = pair
    for node in graph.nodes:
        if complex_tensors.isdisjoint((*node.inputs, *node.outputs)):
            rewriter.nodes.append(node)
        else:
            _lower(rewriter, node)
    return rewriter.subgraph()


def _is_known(graph: RawSubgraph, node: RawNode) -> bool:
    inputs = 2 if node.op in ("RFFT2D", "RESHAPE") else 1
    places = (*node.inputs, *node.outputs)
    if node.op not in _OPERATORS or len(places) != inputs + 1 or NO_TENSOR in places:
        return False
    tensors = [graph.tensors[place] for place in places]
    x, y = tensors[0], tensors[-1]
    if x.buffer is not None or -1 in x.shape_signature[1:]:
        return False
    kinds = (x.dtype, y.dtype)
    match node.op:
        case "RFFT2D":
            return kinds == ("float32", _COMPLEX) and _is_transform(tensors)
        case "RESHAPE":
            return kinds == (_COMPLEX, _COMPLEX)
    return kinds == (_COMPLEX, "float32")


def _is_transform(tensors: list[RawTensor]) -> bool:
    """Whether these are operands and result of a transform of the last axis."""
    x, length, y = tensors
    if length.buffer is None or length.dtype != "int32" or len(x.shape) < 2:
        return False
    sizes = np.frombuffer(length.buffer, np.int32).tolist()
    points = x.shape[-1]
    return (
        sizes == [1, points] == list(x.shape[-2:])
        and (2 <= points <= TRANSFORM_POINTS_MAX or _transform(points).operator != "")
        and y.shape == (*x.shape[:-1], points // 2 + 1)
    )


def _transform(points: int) -> FourierTransform:
    return FourierTransform(points, 1, points, is_one_sided=True)


def _lower(rewriter: GraphRewriter, node: RawNode) -> None:
    x = rewriter.tensors[node.inputs[0]]
    y = rewriter.tensors[node.outputs[0]]
    match node.op:
        case "RFFT2D":
            points = x.shape[-1]
            transform = _transform(points)
            flat = (*y.shape[:-2], 2 * y.shape[-2])
            product = rewriter.tensor("spectrum", "float32", flat)
            source = replace(node, outputs=(product,))
            if transform.operator:
                length: Attrs = {"T": 0, "fft_length": points}
                rewriter.emit(source, "custom:SignalRfft", (x.index,), **length)
            else:
                matrix = transform.rows()
                add_product(rewriter, source, x.index, "spectrum_matrix", matrix)
            _reshape(rewriter, node, product, y)
        case "RESHAPE":
            _reshape(rewriter, node, x.index, y)
        case "COMPLEX_ABS":
            add_magnitudes(rewriter, node, x.index, is_squared=False)
        case _:
            part = np.array(0 if node.op == "REAL" else 1, np.int32)
            place = rewriter.constant("part", part)
            options: Attrs = {"axis": len(x.shape) - 1, "batch_dims": 0}
            rewriter.emit(node, "GATHER", (x.index, place), **options)


def _reshape(rewriter: GraphRewriter, node: RawNode, x: int, y: RawTensor) -> None:
    shape = rewriter.constant("shape", np.array(y.shape, np.int32))
    rewriter.emit(node, "RESHAPE", (x, shape), new_shape=())
