"""A model's known-answer test in C: pseudo-random inputs, expected CRCs or values."""

import textwrap
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from firmwright.artifacts import SourceTree
from firmwright.base.dtypes import BOOL, FLOAT32, INT32, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.base.templates import render_template
from firmwright.codegen.c_expr import float_literal
from firmwright.codegen.emit_options import DEFAULT_LICENSE
from firmwright.flows.samples.reference_outputs import (
    float_tolerance,
    run_interpreter,
    run_numpy_reference,
)
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IoTensor
from firmwright.ops.storage_types import STORAGE_INTRINSICS, intrinsic_from
from firmwright.oracle.compare import WHOLE_MODEL, Tolerance
from firmwright.package.template_values import byte_mask, model_values
from firmwright.pipeline import Compilation

SAMPLES = 2
"""The number of samples of a test."""
CANDIDATES = 6
"""The number of samples of which those are chosen.

Runs of a model with state follow each other.
"""
FLOATS_MAX = 32
"""The values of a float output that are compared for each sample."""


def selftest_sources(compiled: Compilation, devices: Mapping[str, str]) -> SourceTree:
    """Return NAME_selftest.c and NAME_selftest.h."""
    model = model_values(compiled.summary, devices)
    values: dict[str, object] = {
        "model": model,
        "answers": _answers(compiled),
        "license": compiled.options.license or DEFAULT_LICENSE,
        "tool_version": compiled.summary.tool_version,
    }
    content: dict[str, str | bytes] = {}
    for suffix in ("c", "h"):
        template = f"selftest/NAME_selftest.{suffix}.j2"
        text = render_template("firmwright.package", template, **values)
        content[f"model/{model.name}_selftest.{suffix}"] = text
    return SourceTree(content)


def _answers(compiled: Compilation) -> dict[str, object]:
    """Return seeds and answers of the samples with the most distinct output values.

    The integers of all outputs of a sample are compared by a CRC-32, floats by their
    values, which `readers` compute from stored ones.
    """
    io = compiled.module.io
    module = compiled.imported
    seeds = range(1, 1 + (SAMPLES if io.state else CANDIDATES))
    samples = [pseudo_random_sample(io.inputs, seed) for seed in seeds]
    axis = module.settings.axis
    if axis is not None:
        size = np.array(axis.most, INT32.np)
        samples = [{**sample, axis.name: size} for sample in samples]
    if isinstance(module.entry, Function):
        outputs = run_numpy_reference(module, samples).outputs
    else:
        outputs = run_interpreter(compiled.module, samples).outputs
    chosen = _most_distinct(outputs)
    crcs: list[str] = []
    floats: dict[int, list[Array]] = {}
    for index in chosen:
        integers: list[bytes] = []
        rows = zip(io.outputs, outputs[index].values(), strict=True)
        for position, (tensor, values) in enumerate(rows):
            dtype = tensor.type.dtype
            if dtype.has_fractions:
                number = values.astype(dtype.computed.np)
                floats.setdefault(position, []).append(number)
            else:
                integers.append(values.astype(dtype.stored.np).tobytes())
        if integers:
            crcs.append(f"0x{zlib.crc32(b''.join(integers)):08x}u")
    float_answers: list[dict[str, object]] = []
    readers: dict[str, str] = {}
    tolerance = float_tolerance(module)
    for at, arrays in floats.items():
        dtype = io.outputs[at].type.dtype
        if dtype.computed_as:
            readers[intrinsic_from(dtype)] = _reader(dtype)
        float_answers.append(_float_answers(io.outputs[at], arrays, tolerance))
    return {
        "seeds": [seeds[index] for index in chosen],
        "crcs": crcs,
        "floats": float_answers,
        "readers": list(readers.values()),
    }


def _reader(dtype: DType) -> str:
    """Return the C function that reads a stored float."""
    name = intrinsic_from(dtype)
    body = textwrap.indent(STORAGE_INTRINSICS[name].portable.strip(), " " * 4)
    return f"static float {name}({dtype.c_type} x)\n{{\n{body}\n}}"


def _most_distinct(outputs: Sequence[Tensors]) -> list[int]:
    """Return the indices, in order, of the samples with the most distinct outputs."""
    distinct: list[int] = []
    for row in outputs:
        distinct.append(sum(np.unique(values).size for values in row.values()))
    best = sorted(range(len(outputs)), key=lambda index: -distinct[index])
    return sorted(best[:SAMPLES])


def pseudo_random_sample(inputs: Sequence[IoTensor], seed: int) -> Tensors:
    """Return the inputs that the C generates from `seed`, by linear congruence."""
    state = seed
    sample: dict[str, Array] = {}
    for tensor in inputs:
        kind = tensor.type
        dtype = kind.dtype
        is_whole = dtype.stored.is_int or dtype == BOOL
        is_narrow = is_whole and dtype.size_bytes <= 2
        drawn = bytearray()
        for _ in range(kind.size_bytes if is_narrow else kind.elements):
            state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
            drawn.append(state >> 24)
        values: Array = np.frombuffer(bytes(drawn), np.uint8)
        if is_narrow:
            values = (values & byte_mask(dtype)).view(dtype.np)
        elif dtype.is_float:
            values = (values.astype(np.float32) - 128) / 128
        else:
            values = values >> 7
        sample[tensor.name] = values.astype(dtype.np).reshape(kind.shape)
    return sample


def _float_answers(
    tensor: IoTensor, values: Sequence[Array], bound: Tolerance
) -> dict[str, object]:
    """Return evenly spaced values of a float output, per sample, with a tolerance."""
    dtype = tensor.type.dtype
    reader = intrinsic_from(dtype) if dtype.computed_as else "(float)"
    step = divide_up(tensor.type.elements, FLOATS_MAX)
    strided = np.stack([array.reshape(-1)[::step] for array in values])
    largest = float(np.abs(values).max())
    relative = max(bound.relative, WHOLE_MODEL.relative)
    tolerance = relative * largest + max(bound.absolute, WHOLE_MODEL.absolute)
    literals: list[str] = []
    for value in strided.reshape(-1):
        literals.append(float_literal(float(value), FLOAT32).text)
    return {
        "field": tensor.buffer,
        "cast": "" if dtype == FLOAT32 else reader,
        "is_stored": bool(dtype.computed_as),
        "count": strided.shape[1],
        "step": step,
        "tolerance": float_literal(tolerance, FLOAT32).text,
        "rows": textwrap.wrap(", ".join(literals) + ",", 92),
    }
