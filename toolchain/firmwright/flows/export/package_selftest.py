"""A model's known-answer test in C: pseudo-random inputs, and the references' CRC or values."""

import textwrap
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from firmwright.artifacts import SourceTree
from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.templates import render_template
from firmwright.codegen.c_expr import float_literal
from firmwright.codegen.emit_options import DEFAULT_LICENSE
from firmwright.flows.samples.reference_outputs import run_interpreter, run_numpy_reference
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IoTensor
from firmwright.oracle.compare import WHOLE_MODEL
from firmwright.package.export_formats import model_values
from firmwright.pipeline import Compilation

SAMPLES, CANDIDATES = 2, 6
FLOATS_MAX = 32
"""The values of a float output that are compared for each sample."""


def selftest_sources(compiled: Compilation, devices: Mapping[str, str]) -> SourceTree:
    """Return NAME_selftest.c and NAME_selftest.h."""
    values: dict[str, Any] = {
        "model": model_values(compiled.summary, devices),
        "answers": _answers(compiled),
        "license": compiled.options.license or DEFAULT_LICENSE,
        "tool_version": compiled.summary.tool_version,
    }
    name = values["model"]["name"]
    paths = {f"model/{name}_selftest.{end}": f"selftest/NAME_selftest.{end}.j2" for end in "ch"}
    return SourceTree(
        {path: render_template("firmwright.package", t, **values) for path, t in paths.items()}
    )


def _answers(compiled: Compilation) -> dict[str, Any]:
    """Return seeds and answers of the samples with the most distinct output values."""
    io, module = compiled.module.io, compiled.imported
    seeds = range(1, 1 + (SAMPLES if io.state else CANDIDATES))
    samples = [pseudo_random_sample(io.inputs, seed) for seed in seeds]
    if isinstance(module.entry, Function):
        outputs = run_numpy_reference(module, samples).outputs
    else:
        outputs = run_interpreter(compiled.module, samples).outputs
    distinct = [sum(np.unique(values).size for values in row.values()) for row in outputs]
    chosen = sorted(sorted(range(len(seeds)), key=lambda index: -distinct[index])[:SAMPLES])
    rows = [list(zip(io.outputs, outputs[index].values(), strict=True)) for index in chosen]
    integers = [[v.tobytes() for t, v in row if not t.type.dtype.is_float] for row in rows]
    floats = zip(*[[(t, v) for t, v in row if t.type.dtype.is_float] for row in rows], strict=True)
    return {
        "seeds": [seeds[index] for index in chosen],
        "crcs": [f"0x{zlib.crc32(b''.join(row)):08x}u" for row in integers if row],
        "floats": [
            _float_answers(pairs[0][0], [values for _, values in pairs]) for pairs in floats
        ],
    }


def pseudo_random_sample(inputs: Sequence[IoTensor], seed: int) -> Tensors:
    """Return the inputs that the C generates from `seed`."""
    state, sample = seed, {}
    for tensor in inputs:
        kind, dtype = tensor.type, tensor.type.dtype
        is_narrow = dtype.is_int and dtype.size_bytes <= 2
        drawn = bytearray()
        for _ in range(kind.size_bytes if is_narrow else kind.elements):
            state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
            drawn.append(state >> 24)
        values: Array = np.frombuffer(bytes(drawn), np.uint8)
        if is_narrow:
            values = values.view(dtype.np)
        elif dtype.is_float:
            values = (values.astype(np.float32) - 128) / 128
        else:
            values = values >> 7
        sample[tensor.name] = values.astype(dtype.np).reshape(kind.shape)
    return sample


def _float_answers(tensor: IoTensor, values: Sequence[Array]) -> dict[str, Any]:
    step = -(-tensor.type.elements // FLOATS_MAX)
    strided = np.stack([array.reshape(-1)[::step] for array in values])
    tolerance = WHOLE_MODEL.relative * float(np.abs(values).max()) + WHOLE_MODEL.absolute
    literals = [float_literal(float(value), FLOAT32).text for value in strided.reshape(-1)]
    return {
        "field": tensor.buffer,
        "count": strided.shape[1],
        "step": step,
        "tolerance": float_literal(tolerance, FLOAT32).text,
        "rows": textwrap.wrap(", ".join(literals) + ",", 92),
    }
