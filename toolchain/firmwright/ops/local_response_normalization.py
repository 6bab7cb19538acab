"""local_response_normalization along the last axis.

    y = x (bias + alpha * sum of squares of x at c - radius .. c + radius - 1)^-beta

Semantics: TFLite's reference kernel; its window excludes c + radius.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_import import ImportContext, ImportedCall
from firmwright.ir.graph.opdef import NumericsSpec, OpCall, OpDef
from firmwright.ir.tir.builder import INDEX, ArithExpr, immediate, maximum, minimum
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops.import_checks import require_tensors
from firmwright.ops.kernel import Kernel

BUILTIN = "LOCAL_RESPONSE_NORMALIZATION"
_PARAMETERS = ("bias", "alpha", "beta")


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x = call.input(0)
    if x.dtype != FLOAT32 or call.output.dtype != FLOAT32 or not x.shape:
        raise NotSupportedError(f"a local response normalization of {x.dtype.name}")
    return (TensorType(x.shape, FLOAT32),)


def _parameters(call: OpCall) -> list[float]:
    return [float(call.attrs[name]) for name in _PARAMETERS]  # type: ignore[arg-type]  # ensured on import


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, radius = arrays[0].astype(np.float64), call.int_attr("radius")
    bias, alpha, beta = _parameters(call)
    depth = x.shape[-1]
    sums = np.stack(
        [
            (x[..., max(c - radius, 0) : min(c + radius, depth)] ** 2).sum(axis=-1)
            for c in range(depth)
        ],
        axis=-1,
    )
    with np.errstate(all="ignore"):
        return ((x * (bias + alpha * sums) ** -beta).astype(np.float32),)


def lower(call: OpCall, b: Kernel) -> None:
    depth, radius = call.input(0).shape[-1], call.int_attr("radius")
    rows = call.input(0).elements // depth
    bias, alpha, beta = _parameters(call)
    with ExitStack() as stack:
        x = stack.enter_context(b.view("rows", b.input(0), 0, (rows, depth)))
        y = stack.enter_context(b.view("out", b.y, 0, (rows, depth), access="w"))
        row = stack.enter_context(b.for_("row", rows))
        c = stack.enter_context(b.for_("c", depth))
        squares = b.reg("squares", FLOAT32)
        b.store(squares, [0], 0.0)
        with (
            b.for_("k", min(2 * radius, depth + radius)) as k,
            b.let("at", c + k - radius) as channel,
            b.if_(channel >= 0),
            b.if_(channel < depth),
            b.let("place", minimum(maximum(channel, 0), depth - 1).cast(INDEX)) as clamped,
            b.let("item", b.load(x, [row, clamped])) as item,
        ):
            b.store(squares, [0], b.load(squares, [0]) + item * item)
        total = b.load(squares, [0]) * alpha + bias
        scale = intrinsic("pow_f32", [total, ArithExpr(immediate(-beta, FLOAT32))], FLOAT32)
        b.store(y, [row, c], b.load(x, [row, c]) * scale)


def import_tflite(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    options = context.node.options
    radius = options["radius"]
    if not isinstance(radius, int) or radius < 0:
        raise NotSupportedError(f"a radius of {radius}")
    numbers = {name: float(options[name]) for name in _PARAMETERS}  # type: ignore[arg-type]  # ensured by the schema
    return ImportedCall("local_response_normalization", {"radius": radius, **numbers}, (0,))


OPDEF = OpDef(
    name="local_response_normalization",
    infer=infer,
    reference=reference,
    lower=lower,
    imports={f"tflite:{BUILTIN}": import_tflite},
    dtypes=("float32",),
    numerics={"litert": NumericsSpec(None, "float32", "reference_ops LocalResponseNormalization")},
)
