"""Samples for a model: generated from a seed, or arrays by tensor name or position.

The keys of arrays are either all tensor names or all `input_K`, counted from 1; names
take precedence. Either every array has its tensor's shape, or every one has samples
along an additional leading axis or a first axis of size 1 in the model. Real values are
quantized (input_values.py).
"""

import io
import wave
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from firmwright.base.array_files import read_npz
from firmwright.base.dtypes import INT16, Array
from firmwright.base.errors import UsageError
from firmwright.base.input_files import check_regular_file
from firmwright.base.resource_limits import RAISED_BY, scaled_limit
from firmwright.flows.model.model import write_file
from firmwright.flows.samples.bounded_shapes import inputs_at, with_size
from firmwright.flows.samples.input_values import (
    HalfRounding,
    convert_values,
    describe_float_inputs,
    describe_quantizing,
    describe_use,
    half_rounding,
)
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ops.registry import op_table
from firmwright.oracle.random_samples import SampleInput, make_samples
from firmwright.pipeline import Compilation

_SAMPLES_BYTES_MAX = 1 << 32
"""Generated samples; some thousand of them find what there is to be found."""
_ARRAY_BYTES = 200
"""What a small array needs besides its data."""
Tensors = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Samples by tensor name.

    They are `stacked` by a leading axis, which may be the model's (`on_batch_axis`).
    `notes` tell which values were quantized, `warnings` how they use the ranges of
    quantized inputs.
    """

    samples: tuple[Tensors, ...]
    stacked: bool = True
    on_batch_axis: bool = False
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def generate_samples(
    inputs: Sequence[IoTensor],
    count: int,
    seed: int = 0,
    ranges: Mapping[str, tuple[int, int]] = MappingProxyType({}),
) -> SampleBatch:
    """Return `count` samples of `seed`, in the declared `ranges`.

    They are defined by oracle/random_samples.py.
    """
    if count < 1:
        raise UsageError(
            f"{count} is not a valid number of samples.",
            hint="use --samples 1 or more.",
        )
    _check_memory(inputs, count)
    specs: list[SampleInput] = []
    for tensor in inputs:
        kind = tensor.type
        zero_point = kind.quantization.zero_points[0] if kind.quantization else 0
        limits = ranges.get(tensor.name)
        dtype = kind.dtype.np
        specs.append(SampleInput(tensor.name, kind.shape, dtype, zero_point, limits))
    return SampleBatch(tuple(make_samples(specs, count, seed)))


def generate_sizes(
    compiled: Compilation,
    count: int,
    seed: int,
    ranges: Mapping[int, Mapping[str, tuple[int, int]]],
) -> SampleBatch:
    """Return samples of all sizes in turn: `count`, but at least one of each size.

    `ranges` are those of inputs at each size.
    """
    axis = compiled.module.settings.axis
    assert axis is not None
    total = max(count, len(axis.sizes))
    samples: list[Tensors] = []
    for index, size in enumerate(axis.sizes):
        own = len(range(index, total, len(axis.sizes)))
        limits = {**ranges.get(size, {}), axis.name: (size, size)}
        inputs = inputs_at(compiled, size)
        # A first sample of zeros tells nothing of the elements in use.
        samples += generate_samples(inputs, own + 1, seed + size, limits).samples[1:]
    return SampleBatch(tuple(samples), stacked=False)


def generate_largest(module: IRModule, count: int, seed: int = 0) -> SampleBatch:
    """Return samples of a model, of the largest size if it has a bounded axis."""
    axis = module.settings.axis
    ranges = {} if axis is None else {axis.name: (axis.most, axis.most)}
    return generate_samples(module.io.inputs, count, seed, ranges)


def _check_memory(inputs: Sequence[IoTensor], count: int) -> None:
    """Raise UsageError if the samples, which are kept in memory, exceed a limit."""
    needed = count * sum(tensor.type.size_bytes + _ARRAY_BYTES for tensor in inputs)
    if needed > scaled_limit(_SAMPLES_BYTES_MAX):
        what = f"{count:,} samples need {needed:,} bytes of memory."
        hint = f"use fewer --samples, or --seed for others; {RAISED_BY}."
        raise UsageError(what, hint=hint)


def measured_sample(module: IRModule) -> Tensors:
    """Return the sample of measurements: 0, or 3 for floats.

    Routines for floats end early at zeros.
    """
    has_floats = any(tensor.type.dtype.is_float for tensor in module.io.inputs)
    return generate_largest(module, 4).samples[3 if has_floats else 0]


def make_batch(
    arrays: Tensors,
    tensors: Sequence[IoTensor],
    where: str,
    rounding: HalfRounding = HalfRounding.AWAY_FROM_ZERO,
) -> SampleBatch:
    """Split `arrays` into samples for the inputs `tensors`, and quantize real values.

    Raises:
        UsageError: names, shapes or counts are wrong, or values do not fit
        (input_values.py).
    """
    found = arrays_by_name(arrays, tensors, where)
    for tensor in tensors:
        _sample_count(found[tensor.name], tensor, where)
    warnings: list[str] = []
    notes: list[str] = []
    converted = {}
    for tensor in tensors:
        notes += describe_quantizing(found[tensor.name], tensor)
        values, use = convert_values(found[tensor.name], tensor, rounding, where)
        converted[tensor.name] = values
        warnings += describe_use(tensor, [use])
    batch = _split(converted, tensors, where)
    return replace(batch, warnings=tuple(warnings), notes=tuple(notes))


def with_float_warnings(batch: SampleBatch, compiled: Compilation) -> SampleBatch:
    """Add the warnings about float inputs that the model quantizes."""
    found = describe_float_inputs(compiled.imported, batch.samples)
    return replace(batch, warnings=(*batch.warnings, *found))


def make_expected_batch(
    arrays: Tensors, tensors: Sequence[IoTensor], where: str
) -> SampleBatch:
    """Split recorded outputs into samples; raise UsageError also for other types."""
    found = arrays_by_name(arrays, tensors, where, "output")
    for tensor in tensors:
        dtype = tensor.type.dtype.np
        if found[tensor.name].dtype != dtype:
            what = (
                f"{tensor.name} is {found[tensor.name].dtype}; the model returns "
                f"{dtype}."
            )
            raise UsageError(what, where=where, hint=f"record the outputs as {dtype}.")
    return _split(found, tensors, where)


def _split(by_name: Tensors, tensors: Sequence[IoTensor], where: str) -> SampleBatch:
    counts: dict[int | None, str] = {}
    for tensor in tensors:
        count = _sample_count(by_name[tensor.name], tensor, where)
        counts.setdefault(count, tensor.name)
    if len(counts) > 1:
        listed = [f"{name} {number or 'no'}" for number, name in counts.items()]
        what = "the arrays hold different numbers of samples"
        raise UsageError(f"{what}: {', '.join(listed)}.", where=where)
    (count,) = counts
    if count is None:
        return SampleBatch((by_name,), stacked=False)
    if count == 0:
        raise UsageError("the arrays hold no samples.", where=where)
    shapes = {tensor.name: tensor.type.shape for tensor in tensors}
    samples: list[Tensors] = []
    for index in range(count):
        sample: dict[str, Array] = {}
        for name, array in by_name.items():
            sample[name] = array[index].reshape(shapes[name])
        samples.append(sample)
    on_batch_axis = False
    for name, array in by_name.items():
        if array.ndim == len(shapes[name]):
            on_batch_axis = True
    return SampleBatch(tuple(samples), on_batch_axis=on_batch_axis)


def arrays_by_name(
    arrays: Tensors, tensors: Sequence[IoTensor], where: str, kind: str = "input"
) -> dict[str, Array]:
    """Return `arrays` by tensor name; UsageError unless all are named, or numbered."""
    names = [tensor.name for tensor in tensors]
    positions = [f"{kind}_{number}" for number in range(1, len(tensors) + 1)]
    if sorted(arrays) == sorted(names):
        return {name: np.asarray(arrays[name]) for name in names}
    if sorted(arrays) == sorted(positions):
        by_name: dict[str, Array] = {}
        for name, position in zip(names, positions, strict=True):
            by_name[name] = np.asarray(arrays[position])
        return by_name
    keys = ", ".join(sorted(arrays)) or "none"
    all_names = ", ".join(names) or "none"
    all_positions = ", ".join(positions) or "none"
    hint = f"use all tensor names ({all_names}) or all positions ({all_positions})."
    raise UsageError(f"the keys are {keys}.", where=where, hint=hint)


def _sample_count(array: Array, tensor: IoTensor, where: str) -> int | None:
    """Return the length of the leading sample axis, or None for a single sample."""
    shape = tensor.type.shape
    if array.shape == shape:
        return None
    of_one = [shape]
    if shape[:1] == (1,):
        of_one.append(shape[1:])
    if array.ndim > 0 and array.shape[1:] in of_one:
        return int(array.shape[0])
    several: list[str] = []
    for sizes in of_one:
        several.append(f"[{', '.join(['N', *map(str, sizes)])}]")
    raise UsageError(
        f"{tensor.name} is {array.dtype} {list(array.shape)}; the model needs "
        f"{tensor.type.dtype.np} {list(shape)}, or {' or '.join(several)} for N "
        "samples.",
        where=where,
    )


def until_late_outputs(samples: Iterable[Tensors], late: int) -> tuple[Tensors, ...]:
    """Return the samples with `late` repetitions of the last one."""
    batch = tuple(samples)
    return batch + batch[-1:] * late


def stack_outputs(outputs: Sequence[Tensors], batch: SampleBatch) -> dict[str, Array]:
    """Return the outputs by tensor name, with samples on the axis of the inputs."""
    if not batch.stacked:
        return dict(outputs[0])
    stacked: dict[str, Array] = {}
    for name in outputs[0]:
        stacked[name] = np.stack([sample[name] for sample in outputs])
    if not batch.on_batch_axis:
        return stacked
    for name, array in stacked.items():
        if array.shape[1:2] == (1,):
            stacked[name] = array[:, 0]
    return stacked


def write_npz(path: str | Path, arrays: Tensors) -> None:
    """Write arrays to an .npz file; equal arrays give equal bytes."""
    write_file(path, npz_bytes(arrays))


def npz_bytes(arrays: Tensors) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            data = io.BytesIO()
            plain = np.asarray(array, order="C")
            np.lib.format.write_array(data, plain, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), data.getvalue())
    return buffer.getvalue()


def read_inputs(path: str, compiled: Compilation) -> SampleBatch:
    """Read the arrays of an .npz file, or a .wav file as consecutive inputs."""
    inputs = compiled.module.io.inputs
    if Path(path).suffix.lower() != ".wav":
        rounding = half_rounding(compiled.module)
        arrays: Tensors = read_npz(path)
        if compiled.resized:
            arrays, size = with_size(arrays, compiled)
            inputs = inputs_at(compiled, size)
        batch = make_batch(arrays, inputs, path, rounding)
        return with_float_warnings(batch, compiled)
    types = [tensor.type.dtype for tensor in inputs]
    if types != [INT16] or not _has_front_end(compiled):
        kinds: list[str] = []
        for item in inputs:
            kind = item.type
            kinds.append(f"{item.name} {kind.dtype.name} {list(kind.shape)}")
        what = f"the model has no audio front end: it takes {', '.join(kinds)}."
        raise UsageError(what, where=path, hint="an .npz file of such arrays.")
    (tensor,) = inputs
    size = tensor.type.elements
    sound = _read_sound(path, size)
    count = len(sound) // size
    values = sound[: count * size].reshape(count, *tensor.type.shape)
    return make_batch({tensor.name: values}, inputs, path)


def _has_front_end(compiled: Compilation) -> bool:
    front_end = {op.name for op in op_table().values() if op.is_audio_front_end}
    for function in compiled.imported.functions.values():
        calls = function.body if isinstance(function, Function) else ()
        if any(call.op in front_end for call in calls):
            return True
    return False


def _read_sound(path: str, size: int) -> Array:
    """Return the samples of a .wav file; UsageError without the `size` for one run."""
    try:
        check_regular_file(path)
        with wave.open(path, "rb") as file:
            channels, bits = file.getnchannels(), 8 * file.getsampwidth()
            sound = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise UsageError(f"the sound cannot be read: {error}.", where=path) from error
    if (channels, bits) != (1, 16) or len(sound) < 2 * size:
        size_bytes = f"{len(sound):,} bytes"
        what = f"the file has {channels} channels of {bits} bits and {size_bytes}."
        hint = f"one channel of 16 bits, with {size} samples for each run."
        raise UsageError(what, where=path, hint=hint)
    return np.frombuffer(sound, "<i2").astype(np.int16)
