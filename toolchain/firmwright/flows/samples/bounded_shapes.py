"""Shapes of the samples of a model with a bounded axis: each sample has its own size.

A sample has the arrays of its size, and the size under the axis's name. In memory an
array occupies the first elements of the largest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.counted_outputs import count_name
from firmwright.base.dtypes import INT32, Array
from firmwright.base.errors import UsageError
from firmwright.ir.bounded_axis import BoundedAxis
from firmwright.ir.graph.nodes import Value
from firmwright.ir.module import IoTensor
from firmwright.pipeline import Compilation

Tensors = Mapping[str, Array]


def axis_of(compiled: Compilation) -> BoundedAxis | None:
    """Return the bounded axis of a model of which all sizes are known, or None."""
    return compiled.module.settings.axis if compiled.resized else None


def compilation_at(compiled: Compilation, size: int) -> Compilation:
    """Return a compilation of which model file and imported graph have one size.

    The graph keeps the input of the axis. The compiled program is that of all sizes.
    """
    model, imported = compiled.resized[size], compiled.imported
    module = replace(model.module, settings=imported.settings)
    return replace(compiled, source=model.source, imported=module, resized={})


def inputs_at(compiled: Compilation, size: int) -> tuple[IoTensor, ...]:
    return _with_shapes(
        compiled.module.io.inputs, compiled.resized[size].module.entry_graph.params
    )


def outputs_at(compiled: Compilation, size: int) -> tuple[IoTensor, ...]:
    return _with_shapes(
        compiled.module.io.outputs, compiled.resized[size].module.entry_graph.results
    )


def _with_shapes(
    tensors: Sequence[IoTensor], values: Sequence[Value]
) -> tuple[IoTensor, ...]:
    shapes = {value.name: value.shape for value in values}
    found: list[IoTensor] = []
    for tensor in tensors:
        kind = replace(tensor.type, shape=shapes[tensor.name])
        found.append(replace(tensor, type=kind))
    return tuple(found)


def size_of(sample: Tensors, axis: BoundedAxis) -> int:
    """Return the size of a sample; raise UsageError if the axis does not have it."""
    size = int(sample[axis.name])
    if size not in axis.sizes:
        raise UsageError(
            f"{axis.name} is {size}, but the model is compiled for {axis}."
        )
    return size


def with_size(arrays: Tensors, compiled: Compilation) -> tuple[Tensors, int]:
    """Return named arrays with the size that their shapes have, and the size.

    Raises UsageError if they have the shapes of no size, alone or with samples along a
    leading axis.
    """
    axis = compiled.module.settings.axis
    assert axis is not None
    for size in axis.sizes:
        wanted = {t.name: t.type.shape for t in inputs_at(compiled, size)}
        if axis.name in arrays and (np.asarray(arrays[axis.name]) != size).any():
            continue
        given = {n: np.shape(a) for n, a in arrays.items() if n != axis.name}
        if all(
            given[n] in (s, given[n][:1] + s) for n, s in wanted.items() if n in given
        ):
            return {**arrays, axis.name: np.array(size, np.int32)}, size
    raise UsageError(
        f"the arrays have the shapes of no size of {axis}.",
        where=compiled.module.name,
        hint="arrays with one sample, of one size.",
    )


def to_memory(sample: Tensors, compiled: Compilation) -> dict[str, Array]:
    """Return the arrays with the shapes of the largest size, zeros at the end."""
    filled: dict[str, Array] = {}
    for tensor in compiled.module.io.inputs:
        array = np.asarray(sample[tensor.name])
        whole = np.zeros(tensor.type.elements, tensor.type.dtype.np)
        whole[: array.size] = array.reshape(-1)
        filled[tensor.name] = whole.reshape(tensor.type.shape)
    return filled


def used_bytes(compiled: Compilation, inputs: Tensors) -> dict[str, int]:
    """Return the bytes in use of buffers of the interface whose shapes vary."""
    axis = axis_of(compiled)
    if axis is None:
        return {}
    size = size_of(inputs, axis)
    tensors = (*inputs_at(compiled, size), *outputs_at(compiled, size))
    return {tensor.buffer: tensor.type.size_bytes for tensor in tensors}


def from_memory(outputs: Tensors, compiled: Compilation, size: int) -> dict[str, Array]:
    """Return the elements in use of outputs, in the shapes of the size."""
    found: dict[str, Array] = {}
    for tensor in outputs_at(compiled, size):
        used = outputs[tensor.name].reshape(-1)[: tensor.type.elements]
        found[tensor.name] = used.reshape(tensor.type.shape)
    return found


def lengths_of(outputs: Tensors, compiled: Compilation) -> dict[str, Array]:
    """Return the outputs that tell the lengths of these outputs of one size."""
    axis = compiled.module.settings.axis
    assert axis is not None
    least = {t.name: t.type.shape for t in outputs_at(compiled, axis.least)}
    lengths: dict[str, Array] = {}
    for tensor in compiled.module.io.outputs:
        if count_name(tensor.name) in least and tensor.name in outputs:
            pairs = zip(tensor.type.shape, least[tensor.name], strict=True)
            (place,) = [k for k, (most, few) in enumerate(pairs) if most != few]
            length = outputs[tensor.name].shape[place]
            lengths[count_name(tensor.name)] = np.array(length, INT32.np)
    return lengths
