"""Finds the first operator with a result that differs from the reference.

A profile image computes the CRC-32 of each operator's first output. The host compares
them and fetches the differing tensor in a second run, paused after the operator. If the
model has float results or state, all outputs are fetched in one run.
"""

import logging
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.artifacts import Variant
from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.dtypes import INT8, Array, DType
from firmwright.base.errors import DeviceError
from firmwright.base.grouping import group_pairs
from firmwright.compilation_summary import OperatorSummary
from firmwright.device.session import Session
from firmwright.flows.board.model_session import SessionOpener
from firmwright.flows.predict.run_schedule import operator_devices
from firmwright.flows.samples.reference_outputs import ReferenceOutputs
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.flows.verify.spectrum_bounds import has_spectra, spectrum_intervals
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import prim_calls, walk
from firmwright.oracle.compare import Comparison, Intervals, compare_tensor
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)
_UNSIGNED_OFFSET = np.uint8(128)
PROFILE: Variant = "profile"
PERMUTED_SUFFIX = "_moved"
"""The suffix of tensors whose channels `sink-transposes` moved to the last axis."""


@dataclass(frozen=True, slots=True)
class FirstDivergence:
    """The first diverging operator, its location, and a sample for which it diverges.

    Of the `values` elements of the output, `mismatches` are wrong, by at most
    `max_abs_error`. `values` is 0 if the elements could not be fetched, for instance
    with a streamed input. `judged` is the board that computed them.
    """

    index: int
    name: str
    kind: str
    device: str
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
    open_with: SessionOpener,
) -> tuple[FirstDivergence | None, int]:
    """Return the first diverging operator of all samples, and the number compared."""
    if not reference.layers:
        return None, 0
    operators = _comparable_operators(compiled, reference.layers[0])
    find = _by_checksums
    has_floats = any(operator.is_float for operator in operators)
    if has_floats or compiled.module.io.state:
        find = _by_values
    intervals: tuple[Intervals, ...] = ({},) * len(samples)
    if has_spectra(compiled.imported):
        intervals = spectrum_intervals(compiled.imported, samples)
    differences: list[FirstDivergence] = []
    devices = operator_devices(compiled.module)
    with open_with(compiled, variant=PROFILE) as session:
        log.info("comparing %d operators on %s", len(operators), compiled.board.name)
        rows = zip(samples, reference.layers, intervals, strict=True)
        for number, (sample, layers, proved) in enumerate(rows):
            # Runs of a pipelined model compute two samples; earlier runs of this one
            # fill it.
            for _ in range(compiled.module.results.pipelined_runs):
                session.device.run(sample)
            difference = find(session.device, operators, sample, layers, proved)
            if difference is not None:
                device = devices[difference.index]
                judged = compiled.board.name
                found = replace(difference, sample=number, judged=judged, device=device)
                differences.append(found)
    return min(differences, key=lambda item: item.index, default=None), len(operators)


@dataclass(frozen=True, slots=True)
class _ComparableOperator:
    """An operator for which the reference has the first output, under the name `layer`.

    `is_moved` means that the channels are the last axis on the device but the second in
    the reference. `is_signed` marks int8 values; those of a uint8 reference are 128
    higher. `live` are the indices of the last axis that the device computes, or () for
    all.
    """

    summary: OperatorSummary
    layer: str
    is_moved: bool
    is_float: bool
    is_signed: bool
    live: tuple[int, ...]

    @property
    def index(self) -> int:
        return self.summary.index

    def expected(self, layers: Tensors) -> Array:
        """Return the reference's values as the device stores them."""
        values = layers[self.layer]
        if self.is_signed and values.dtype == np.uint8:
            values = (values ^ _UNSIGNED_OFFSET).view(np.int8)
        if self.is_moved:
            values = np.moveaxis(values, 1, -1)
        if self.live:
            values = values[..., self.live]
        return np.ascontiguousarray(values)


def _comparable_operators(
    compiled: Compilation, layers: Tensors
) -> list[_ComparableOperator]:
    """Return the operators whose results are layers of the reference.

    The layer is that of the file's tensor if the buffer has its name, else the one with
    the buffer's name, if its shape suits.
    """
    types = _buffer_types(compiled.module)
    layers_by_buffer = _layers_by_buffer(layers)
    parts = _partial_buffers(compiled.module)
    live = dict(compiled.module.results.live_channels)
    operators: list[_ComparableOperator] = []
    for summary in compiled.summary.operators:
        name = summary.name
        tensor = summary.tensor
        if name in parts:
            continue  # A partial result of one core is not a tensor of the model.
        is_own = False
        if tensor in layers:
            pattern = rf"{to_c_identifier(tensor)}(_\d+)?"
            is_own = bool(re.fullmatch(pattern, name))
        stem = name.removesuffix(PERMUTED_SUFFIX)
        layer = tensor if is_own else layers_by_buffer.get(stem, "")
        is_permuted = name.endswith(PERMUTED_SUFFIX) and name not in layers_by_buffer
        is_moved = is_permuted and not is_own
        shape, dtype = types.get(name, (None, None))
        if not layer:
            continue
        values = layers[layer]
        if not is_own and not _has_layout_of(values, shape, is_moved=is_moved):
            continue
        is_float = values.dtype.kind == "f"
        channels = live.get(tensor, ())
        operator = _ComparableOperator(
            summary, layer, is_moved, is_float, dtype == INT8, channels
        )
        operators.append(operator)
    return operators


def _partial_buffers(module: IRModule) -> set[str]:
    """Return the buffers of a multi-core main that are views of other buffers."""
    main = module.aot_main
    if not any(call.device for call in prim_calls(main.body)):
        return set()
    names: set[str] = set()
    for node in walk(main.body):
        if isinstance(node, tir.DeclBuffer) and node.source.buffer.scope != "pool":
            names.add(node.buffer.name)
    return names


def _has_layout_of(
    expected: Array, shape: tuple[int, ...] | None, *, is_moved: bool
) -> bool:
    """Return whether a buffer, also of some rows, has a layer's rank and last axis."""
    layer_shape = np.moveaxis(expected, 1, -1).shape if is_moved else expected.shape
    if shape is None or len(shape) != len(layer_shape):
        return False
    return shape[-1:] == layer_shape[-1:]


def _layers_by_buffer(layers: Tensors) -> dict[str, str]:
    """Map buffer names to layers if only one layer has the name."""
    layers_by_name = group_pairs((to_c_identifier(layer), layer) for layer in layers)
    unique: dict[str, str] = {}
    for name, group in layers_by_name.items():
        if len(group) == 1:
            unique[name] = group[0]
    return unique


def _buffer_types(module: IRModule) -> dict[str, tuple[tuple[int, ...], DType]]:
    """Return the shape and element type of each buffer of the main."""
    types: dict[str, tuple[tuple[int, ...], DType]] = {}
    for tensor in (*module.io.inputs, *module.io.outputs):
        types[tensor.buffer] = (tensor.type.shape, tensor.type.dtype)
    for node in walk(module.aot_main.body):
        if isinstance(node, tir.DeclBuffer):
            types[node.buffer.name] = (node.buffer.shape, node.buffer.dtype)
    return types


def _by_checksums(
    device: Session,
    operators: Sequence[_ComparableOperator],
    sample: Tensors,
    layers: Tensors,
    intervals: Intervals,
) -> FirstDivergence | None:
    """Return the first operator with another CRC-32; another run fetches its values."""
    device.write_inputs(sample)
    device.execute(checksums=True)
    records = device.profile()
    for operator in operators:
        expected = operator.expected(layers)
        if operator.index >= len(records):
            what = f"the firmware has {len(records)} operators; the model has more."
            hint = "build the firmware again."
            raise DeviceError(what, where=device.info.board, hint=hint)
        if records[operator.index].checksum != zlib.crc32(expected.tobytes()):
            device.write_inputs(sample)
            data = bytearray()
            for _, piece in device.taps(operator.index):
                if len(data) <= expected.nbytes:
                    data += piece
            compared = _compared(operator, expected, bytes(data), intervals)
            return _difference(operator, compared)
    return None


def _by_values(
    device: Session,
    operators: Sequence[_ComparableOperator],
    sample: Tensors,
    layers: Tensors,
    intervals: Intervals,
) -> FirstDivergence | None:
    """Return the first operator with different values (floats, state), in one run."""
    device.write_inputs(sample)
    outputs: dict[int, bytes] = {}
    limits: dict[int, int] = {}
    for operator in operators:
        limits[operator.index] = operator.expected(layers).nbytes
    for index, data in device.taps():
        # Row streaming delivers an output in pieces. One beyond the limit has another
        # size anyway.
        known = outputs.get(index, b"")
        if len(known) <= limits.get(index, -1):
            outputs[index] = known + data
    for operator in operators:
        data = outputs.get(operator.index, b"")
        expected = operator.expected(layers)
        comparison = _compared(operator, expected, data, intervals)
        if comparison is not None and comparison.mismatches:
            return _difference(operator, comparison)
    return None


def _compared(
    operator: _ComparableOperator, expected: Array, data: bytes, intervals: Intervals
) -> Comparison | None:
    """Compare an output; return None if the data does not have the expected size."""
    if len(data) != expected.nbytes:
        return None
    actual = np.frombuffer(data, expected.dtype).reshape(expected.shape)
    interval = intervals.get(operator.layer)
    return compare_tensor(0, operator.layer, expected, actual, interval=interval)


def _difference(
    operator: _ComparableOperator, comparison: Comparison | None
) -> FirstDivergence:
    """Return the divergence; the caller sets the sample, the device and the board."""
    summary = operator.summary
    total = comparison or Comparison(0, 0, 0, None)
    return FirstDivergence(
        index=operator.index,
        name=summary.name,
        kind=summary.kind,
        device="",
        where=summary.span or summary.tensor,
        sample=0,
        judged="",
        values=total.values,
        mismatches=total.mismatches,
        max_abs_error=total.max_abs_error,
    )
