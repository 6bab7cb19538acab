"""Completion of a .tflite file, for compiler and reference runtimes to read alike.

Sizes that the exporter left open become 1, given input shapes replace those of the
file, and a quantized dimension that its tensor lacks, which TFLM ignores and LiteRT
refuses, becomes 0. All changes are in place: the file keeps its length.
"""

import logging
import struct
from collections.abc import Iterator, Mapping, Sequence

from firmwright import tflite_schema as schema
from firmwright.base.errors import UsageError
from firmwright.frontends.tflite.flatbuffer import Flatbuffer, FlatbufferTable

log = logging.getLogger(__name__)
Shape = tuple[int, ...]


def preprocess_tflite(data: bytes, file: str, shapes: Mapping[str, Shape]) -> bytes:
    """Return the bytes of the complete model, unchanged if complete already.

    `shapes` are shapes of inputs by name. Raises ModelError and UsageError.
    """
    if data[4:8] != schema.FILE_IDENTIFIER:
        return data  # the reader names the reason
    graphs = Flatbuffer(data, file).root("Model").tables("subgraphs")
    tensors: list[FlatbufferTable] = []
    for graph in graphs:
        tensors += graph.tables("tensors")
    changes: list[tuple[int, int]] = []
    for tensor in tensors:
        changes += _completion(tensor)
    if graphs:
        _warn_of_open_axes(graphs[0], shapes)
    if shapes:
        changes += _given_shapes(graphs[0], shapes, file)
    if not changes:
        return data
    complete = bytearray(data)
    for place, value in changes:
        struct.pack_into("<i", complete, place, value)
    return bytes(complete)


def open_inputs(data: bytes, file: str) -> dict[str, tuple[int | None, ...]]:
    """Return the shapes of the first graph's inputs with an open size, which is None.

    Raise ModelError for a damaged file.
    """
    if data[4:8] != schema.FILE_IDENTIFIER:
        return {}
    shapes: dict[str, tuple[int | None, ...]] = {}
    for graph in Flatbuffer(data, file).root("Model").tables("subgraphs")[:1]:
        for name, tensor in _inputs(graph).items():
            sizes = _open_shape(tensor)
            if -1 in sizes:
                shapes[name] = tuple(None if n == -1 else n for n in sizes)
    return shapes


def _completion(tensor: FlatbufferTable) -> Iterator[tuple[int, int]]:
    shape = tensor.integers("shape")
    quantization = tensor.table("quantization")
    if -1 in shape:
        first = tensor.vector_place("shape")
        for axis, size in enumerate(shape):
            if size == -1:
                yield first + 4 * axis, 1
    if quantization is None:
        return
    place = quantization.scalar_place("quantized_dimension")
    if place is None:
        return
    dimension = quantization.integer("quantized_dimension")
    if not 0 <= dimension < len(shape):
        yield place, 0


def _inputs(graph: FlatbufferTable) -> dict[str, FlatbufferTable]:
    tensors = graph.tables("tensors")
    inputs: dict[str, FlatbufferTable] = {}
    for index in graph.integers("inputs"):
        if 0 <= index < len(tensors):
            name = tensors[index].text("name") or f"tensor_{index}"
            inputs[name] = tensors[index]
    return inputs


def _open_shape(tensor: FlatbufferTable) -> Sequence[int]:
    declared = tensor.integers("shape")
    marks = tensor.integers("shape_signature")
    return marks if len(marks) == len(declared) else declared


def _format_shape(sizes: Sequence[int]) -> str:
    return ",".join("?" if size == -1 else str(size) for size in sizes)


def _warn_of_open_axes(graph: FlatbufferTable, shapes: Mapping[str, Shape]) -> None:
    """Print the shapes of inputs with open sizes, except the batch size."""
    for name, tensor in _inputs(graph).items():
        sizes = _open_shape(tensor)
        if name not in shapes and -1 in sizes[1:]:
            taken = [abs(size) for size in tensor.integers("shape")]
            message = (
                "input %s: the open shape %s is taken as %s; --input-shape sets "
                "another."
            )
            log.warning(message, name, _format_shape(sizes), _format_shape(taken))


def _given_shapes(
    graph: FlatbufferTable, shapes: Mapping[str, Shape], file: str
) -> Iterator[tuple[int, int]]:
    inputs = _inputs(graph)
    for name, shape in shapes.items():
        if name not in inputs:
            hint = f"its inputs are {', '.join(sorted(inputs)) or 'none'}."
            raise UsageError(f"the model has no input {name!r}.", where=file, hint=hint)
        sizes = _open_shape(inputs[name])
        pairs = zip(sizes, shape, strict=False)
        fits = all(mark in (-1, size) for mark, size in pairs)
        if len(sizes) != len(shape) or not fits:
            raise UsageError(
                f"--input-shape {name}={_format_shape(shape)} contradicts the model, "
                f"where it is {_format_shape(sizes)}.",
                where=file,
            )
        first = inputs[name].vector_place("shape")
        for axis, size in enumerate(shape):
            yield first + 4 * axis, size
