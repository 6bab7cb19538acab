"""The first operator whose result differs from the reference's.

In: a compilation, samples, and a reference that knows the values in between. Out: the first
operator, in the order of execution, that differs in any sample, with how many values and by how
much. On the device each operator's first output is known by its CRC-32 (the probes of a profile
image gather it), so integer results are compared without moving them over the link; the one that
differs is then fetched, in a run that pauses behind it. Results in floating point are all fetched.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from firmwright.artifacts import Variant
from firmwright.base.c_identifiers import to_c_identifier
from firmwright.device import Session
from firmwright.flows.model_session import ModelSession
from firmwright.flows.reference_outputs import ReferenceOutputs
from firmwright.flows.sample_batches import Array, Tensors
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import prim_calls, walk
from firmwright.oracle.compare import Comparison, compare_tensor
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)
Row = dict[str, Any]
PROFILE: Variant = "profile"
PERMUTED_SUFFIX = "_moved"
"""Ends the name of a tensor whose channels the pass `layout` has made the last axis."""


@dataclass(frozen=True, slots=True)
class FirstDivergence:
    """An operator by its name, kind and place in the model, and the first sample it differs in.

    `values` are those of its output in that sample, `mismatches` those that are wrong, by at most
    `max_abs_error`; `values` is 0 where they could not be fetched, as of an input that comes row
    by row. `judged` is the board that computed them.
    """

    index: int
    name: str
    kind: str
    where: str
    sample: int
    judged: str
    values: int
    mismatches: int
    max_abs_error: int | float


def locate_first_divergence(
    compiled: Compilation,
    samples: Sequence[Tensors],
    reference: ReferenceOutputs,
    open_with: Callable[..., ModelSession],
) -> tuple[FirstDivergence | None, int]:
    """The first operator that differs, and the number of operators that could be compared."""
    if not reference.layers:
        return None, 0
    judged = _comparable_operators(compiled, reference.layers[0])
    by_values = bool(compiled.module.io.state) or any(one.is_float for one in judged)
    find = _by_values if by_values else _by_checksums
    found: list[FirstDivergence] = []
    with open_with(compiled, variant=PROFILE) as session:
        log.info("comparing %d operators on %s", len(judged), compiled.board.name)
        for number, (sample, layers) in enumerate(zip(samples, reference.layers, strict=True)):
            difference = find(session.device, judged, number, sample, layers)
            if difference is not None:
                found.append(replace(difference, judged=compiled.board.name))
    return min(found, key=lambda item: item.index, default=None), len(judged)


@dataclass(frozen=True, slots=True)
class _ComparableOperator:
    """An operator whose first output the reference knows, under the name `layer`.

    `is_moved`: on the device its channels are the last axis, in the reference the second.
    """

    row: Row
    layer: str
    is_moved: bool
    is_float: bool

    @property
    def index(self) -> int:
        return int(self.row["index"])

    def expected(self, layers: Tensors) -> Array:
        """As it must lie in the device's memory."""
        values = layers[self.layer]
        return np.ascontiguousarray(np.moveaxis(values, 1, -1) if self.is_moved else values)


def _comparable_operators(compiled: Compilation, layers: Tensors) -> list[_ComparableOperator]:
    """The operators that can be compared, in the order of the main."""
    shapes, known = _shapes(compiled.module), _by_buffer(layers)
    parts = _parts(compiled.module)
    found = []
    for row in sorted(compiled.metadata["operators"], key=lambda row: int(row["index"])):
        name, tensor = str(row["name"]), str(row["tensor"])
        if name in parts:
            continue  # what several cores make together is no tensor of the model
        is_own = tensor in layers and bool(re.fullmatch(rf"{to_c_identifier(tensor)}(_\d+)?", name))
        layer = tensor if is_own else known.get(name.removesuffix(PERMUTED_SUFFIX), "")
        is_moved = not is_own and name.endswith(PERMUTED_SUFFIX) and name not in known
        if is_own or (layer and _is_alike(layers[layer], shapes.get(name), is_moved=is_moved)):
            found.append(_ComparableOperator(row, layer, is_moved, layers[layer].dtype.kind == "f"))
    return found


def _parts(module: IRModule) -> set[str]:
    """The buffers of a main for several cores that lie in others."""
    main = module.entry
    if not isinstance(main, tir.PrimFunc) or not any(call.device for call in prim_calls(main.body)):
        return set()
    return {
        node.buffer.name
        for node in walk(main.body)
        if isinstance(node, tir.DeclBuffer) and node.source.buffer.scope != "pool"
    }


def _is_alike(expected: Array, shape: tuple[int, ...] | None, *, is_moved: bool) -> bool:
    """Whether a buffer of that shape, or some rows of it, holds the layer's values in order."""
    wanted = np.moveaxis(expected, 1, -1).shape if is_moved else expected.shape
    return shape is not None and len(shape) == len(wanted) and shape[-1:] == wanted[-1:]


def _by_buffer(layers: Tensors) -> dict[str, str]:
    """The layers by the names that buffers have for them, where only one may be meant."""
    names = [to_c_identifier(layer) for layer in layers]
    return {
        to_c_identifier(layer): layer
        for layer in layers
        if names.count(to_c_identifier(layer)) == 1
    }


def _shapes(module: IRModule) -> dict[str, tuple[int, ...]]:
    """Of every tensor of the main, as it lies in memory."""
    main = module.entry
    if not isinstance(main, tir.PrimFunc):
        return {}
    shapes = {t.buffer: t.type.shape for t in (*module.io.inputs, *module.io.outputs)}
    for node in walk(main.body):
        if isinstance(node, tir.DeclBuffer):
            shapes[node.buffer.name] = node.buffer.shape
    return shapes


def _by_checksums(
    device: Session,
    judged: Sequence[_ComparableOperator],
    number: int,
    sample: Tensors,
    layers: Tensors,
) -> FirstDivergence | None:
    """The first whose CRC-32 is another; its values are then fetched, in one more run."""
    device.write_inputs(sample)
    device.execute(checksums=True)
    records = device.profile()
    for one in judged:
        expected = one.expected(layers)
        if records[one.index].checksum != zlib.crc32(expected.tobytes()):
            device.write_inputs(sample)
            data = b"".join(data for _, data in device.taps(one.index))
            return _difference(one, number, _compared(number, one, expected, data))
    return None


def _by_values(
    device: Session,
    judged: Sequence[_ComparableOperator],
    number: int,
    sample: Tensors,
    layers: Tensors,
) -> FirstDivergence | None:
    """All values of one run: what is a float, and what a second run would not compute again."""
    device.write_inputs(sample)
    outputs: dict[int, bytes] = {}
    for index, data in device.taps():
        outputs[index] = outputs.get(index, b"") + data  # row by row it comes in pieces
    for one in judged:
        found = _compared(number, one, one.expected(layers), outputs.get(one.index, b""))
        if found is not None and found.mismatches:
            return _difference(one, number, found)
    return None


def _compared(
    number: int, one: _ComparableOperator, expected: Array, data: bytes
) -> Comparison | None:
    """None where what came is not a tensor like the expected one."""
    if len(data) != expected.nbytes:
        return None
    actual = np.frombuffer(data, expected.dtype).reshape(expected.shape)
    return compare_tensor(number, one.layer, expected, actual)


def _difference(one: _ComparableOperator, sample: int, found: Comparison | None) -> FirstDivergence:
    row = one.row
    return FirstDivergence(
        index=one.index,
        name=row["name"],
        kind=row["kind"],
        where=row["span"] or row["tensor"],
        sample=sample,
        judged="",
        values=found.values if found else 0,
        mismatches=found.mismatches if found else 0,
        max_abs_error=found.max_abs_error if found else 0,
    )
