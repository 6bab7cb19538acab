"""What operators with one input and a result of its shape share: a meaning for each element type.

A `UnaryImplementation` is the numpy reference and the value in TIR. An int8 function of one value
has 256 results at most, so its lowering is a table made from its reference, whatever that computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, DType
from firmwright.ir.core import Attrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    CaseTensor,
    ConformanceCase,
    ImportContext,
    ImportedCall,
    NotSupportedError,
    NumericsProfile,
    NumericsSpec,
    OpCall,
    OpDef,
)
from firmwright.ir.tir.builder import INDEX, ArithExpr
from firmwright.ops.elementwise import loop_over_elements
from firmwright.ops.importing import require_tensors
from firmwright.ops.interpolated_lut import (
    build_lut,
    lookup,
    lookup_array,
    quantized_range,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import tensor_quant
from firmwright.ops.row_windows import elementwise_row_window

BOTH_PROFILES: tuple[NumericsProfile, ...] = ("litert", "tflm")


def both_profiles(cell: NumericsSpec) -> Mapping[str, NumericsSpec]:
    """The same in both profiles."""
    return dict.fromkeys(BOTH_PROFILES, cell)


@dataclass(frozen=True, slots=True)
class UnaryImplementation:
    """One element type's: `reference` of the whole input, `lower` with its loops, `check`."""

    reference: Callable[[OpCall, Array], Array]
    lower: Callable[[OpCall, Kernel], None]
    check: Callable[[OpCall], None] = lambda call: None


def compute_elements(
    reference: Callable[[OpCall, Array], Array],
    value: Callable[[OpCall, Kernel, ArithExpr], ArithExpr],
    check: Callable[[OpCall], None] = lambda call: None,
) -> UnaryImplementation:
    """Each element is computed: `value` gives it in the output's dtype."""

    def lower(call: OpCall, b: Kernel) -> None:
        with loop_over_elements(call, b) as (values, store):
            store(value(call, b, values[0]))

    return UnaryImplementation(reference, lower, check)


def lookup_int8(
    reference: Callable[[OpCall, Array], Array], check: Callable[[OpCall], None] | None = None
) -> UnaryImplementation:
    """int8: the reference of every value, looked up."""

    def lower(call: OpCall, b: Kernel) -> None:
        values = np.arange(INT8.min, INT8.max + 1).astype(np.int8)
        table = b.constant("table", reference(call, values), call.output.dtype)
        with loop_over_elements(call, b) as (loaded, store):
            store(b.load(table, [loaded[0].cast(INDEX) - INT8.min]))

    def both_per_tensor(call: OpCall) -> None:
        tensor_quant(call.input(0))
        tensor_quant(call.output)
        if check is not None:
            check(call)

    return UnaryImplementation(reference, lower, both_per_tensor)


def compute_float32(
    exact: Callable[[Array], Array], value: Callable[[ArithExpr], ArithExpr]
) -> UnaryImplementation:
    """float32: `exact` in double, `value` in TIR."""

    def reference(call: OpCall, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(exact(x.astype(np.float64))).astype(np.float32)

    return compute_elements(reference, lambda call, b, x: value(x))


def check_symmetric_int16(call: OpCall) -> None:
    """What int16 asks for: one scale, zero points of 0."""
    if tensor_quant(call.input(0)).zero_point or tensor_quant(call.output).zero_point:
        raise NotSupportedError("int16 with a zero point other than 0")


def interpolate_int16(
    function: Callable[[OpCall, Array], Array], kind: type[np.floating] = np.float64
) -> UnaryImplementation:
    """int16 by a table of 513 entries, as interpolation.py reads it."""

    def table(call: OpCall) -> Array:
        x, y = (
            quantized_range(tensor_quant(kind).scale, 0) for kind in (call.input(0), call.output)
        )
        return build_lut(lambda real: function(call, real), x, y, kind)

    def reference(call: OpCall, x: Array) -> Array:
        return lookup_array(table(call), x.astype(np.int64)).astype(np.int16)

    def lower(call: OpCall, b: Kernel) -> None:
        entries = b.constant("table", table(call), INT16)
        with (
            loop_over_elements(call, b) as (values, store),
            b.let("value", values[0].cast(INT32)) as value,
            lookup(b, entries, value) as y,
        ):
            store(y.cast(INT16))

    return UnaryImplementation(reference, lower, check_symmetric_int16)


def evaluate_int8_lut(call: OpCall, x: Array, function: Callable[[Array], Array]) -> Array:
    """How LiteRT makes its tables of int8 functions, in float32: `function` takes and gives it."""
    kind, quant = call.output.dtype, tensor_quant(call.output)
    inverse = np.float32(1) / np.float32(quant.scale)
    steps = (x.astype(np.int64) - tensor_quant(call.input(0)).zero_point).astype(np.float32)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        scaled = function(np.float32(tensor_quant(call.input(0)).scale) * steps) * inverse
    whole = np.copysign(np.floor(np.abs(scaled.astype(np.float64)) + 0.5), scaled)
    shifted = (whole.astype(np.float32) + np.float32(quant.zero_point)).astype(np.float64)
    return np.clip(shifted, kind.min, kind.max).astype(kind.np)


def round_to_float32(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """`function`, which computes in double, as the best float32 function of float32 values."""

    def run(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(x.astype(np.float64))).astype(np.float32)

    return run


def unary_op(
    name: str,
    meanings: Mapping[DType, UnaryImplementation],
    cases: Callable[[], Iterator[ConformanceCase]],
    numerics: Mapping[str, NumericsSpec],
    attributes: Callable[[Attrs], Attrs] = lambda options: {},
) -> OpDef:
    """The operator whose dtypes are the keys of `meanings`, the same of input and output.

    `attributes` makes ours of TFLite's options.
    """

    def infer(call: OpCall) -> tuple[TensorType, ...]:
        x, y = call.input(0), call.output
        if x.dtype not in meanings or y.dtype != x.dtype:
            raise NotSupportedError(f"{x.dtype.name} input with {y.dtype.name} output")
        meanings[x.dtype].check(call)
        return (TensorType(x.shape, x.dtype, y.quantization),)

    def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (meanings[call.input(0).dtype].reference(call, arrays[0]),)

    def lower(call: OpCall, b: Kernel) -> None:
        meanings[call.input(0).dtype].lower(call, b)

    def imported(context: ImportContext) -> ImportedCall:
        require_tensors(context, 1)
        return ImportedCall(name, attributes(context.node.options), (0,))

    return OpDef(
        name=name,
        infer=infer,
        reference=reference,
        lower=lower,
        row_access=elementwise_row_window,
        imports={f"tflite:{name.upper()}": imported},
        cases=cases,
        dtypes=tuple(kind.name for kind in meanings),
        numerics=numerics,
    )


def float_case(
    builtin: str,
    oracles: tuple[NumericsProfile, ...] = BOTH_PROFILES,
    options: Mapping[str, object] = MappingProxyType({}),
    tail: str = "",
    dtype: str = "float32",
) -> ConformanceCase:
    """A case of float32, or of another type without quantisation."""
    x = CaseTensor((2, 3, 7), dtype)
    return ConformanceCase(f"{dtype}{tail}", builtin, (x,), (x,), options, oracles)


def quantized_case(
    builtin: str,
    name: str,
    dtype: str,
    x_quant: tuple[float, int],
    y_quant: tuple[float, int],
    oracles: tuple[NumericsProfile, ...] = BOTH_PROFILES,
    options: Mapping[str, object] = MappingProxyType({}),
) -> ConformanceCase:
    """A case of integers with (scale, zero point) of input and output."""
    x, y = (
        CaseTensor((3, 1, 29), dtype, (float(np.float32(scale)),), (zero_point,))
        for scale, zero_point in (x_quant, y_quant)
    )
    return ConformanceCase(f"{name}_{dtype}", builtin, (x,), (y,), options, oracles)
