"""Shapes, import and loops shared by average_pool2d, max_pool2d and l2_pool2d.

Attributes: `size`, `stride` (vertical, horizontal), `padding` (top, bottom, left, right),
`activation`. Input and output of a quantized pool share scale and zero point, so nothing is
requantized. Taps outside the input are ignored.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir.core import Attr
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_import import ImportContext, ImportedCall
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, ExprLike
from firmwright.ops.conv_window import (
    ConvWindow,
    OutputPosition,
    check_window,
    checked_int_option,
    import_window,
    window_of,
)
from firmwright.ops.import_checks import require_tensors
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import (
    apply_activation,
    clamp,
    float_activation_range,
    import_activation,
    quantized_activation_range,
    tensor_quant,
)

DTYPES = ("int8", "int16", "float32")


def pool_window(call: OpCall) -> ConvWindow:
    return window_of(call, call.ints_attr("size"))


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x = call.input(0)
    if len(x.shape) != 4:
        raise NotSupportedError(f"a pool over {len(x.shape)} dimensions")
    if x.dtype not in (INT8, INT16, FLOAT32):
        raise NotSupportedError(f"a pool of {x.dtype.name}")
    if x.dtype != FLOAT32:
        x_quant, y_quant = tensor_quant(x), tensor_quant(call.output)
        if (x_quant.scale, x_quant.zero_point) != (y_quant.scale, y_quant.zero_point):
            raise NotSupportedError("a pool with different quantization of input and output")
    window = pool_window(call)
    check_window(window)
    rows, cols = window.size
    top, bottom, left, right = window.padding
    if max(top, bottom) >= rows or max(left, right) >= cols:
        raise NotSupportedError("a pool with windows outside of the input")
    shape = (x.shape[0], *window.output_size(*x.shape[1:3]), x.shape[3])
    return (TensorType(shape, x.dtype, call.output.quantization),)


def clip_to_activation(call: OpCall, result: Array) -> Array:
    """Clip wide values to the fused activation and convert to the output type."""
    activation, y = call.str_attr("activation"), call.output
    if y.dtype == FLOAT32:
        low, high = float_activation_range(activation)
        return np.clip(result, low, high).astype(np.float32)
    return np.clip(result, *quantized_activation_range(activation, y)).astype(y.dtype.np)


def lower_pool(
    call: OpCall,
    b: Kernel,
    start: float,
    step: Callable[[ArithExpr, ArithExpr], ArithExpr],
    finish: Callable[[OutputPosition, ArithExpr], ArithExpr],
) -> None:
    """Emit for each output: acc = start; acc = step(acc, x) for each tap; y = finish(acc)."""
    dtype: DType = FLOAT32 if call.input(0).dtype == FLOAT32 else INT32
    first: ExprLike = start if dtype == FLOAT32 else int(start)
    window = pool_window(call)
    with (
        window.outputs(b, call.input(0).shape, call.output.shape) as at,
        b.for_("c", call.output.shape[3]) as c,
    ):
        acc = b.reg("acc", dtype)
        b.store(acc, [0], first)
        with window.taps(b, at) as (_ky, _kx, iy, ix):
            x = b.load(b.input(0), [at.n, iy, ix, c]).cast(dtype)
            b.store(acc, [0], step(b.load(acc, [0]), x))
        b.store(b.y, [at.n, at.oy, at.ox, c], narrow_to_output(call, finish(at, b.load(acc, [0]))))


def narrow_to_output(call: OpCall, value: ArithExpr) -> ArithExpr:
    """Emit the equivalent of `clip_to_activation`."""
    activation, y = call.str_attr("activation"), call.output
    if y.dtype == FLOAT32:
        return apply_activation(value, activation)
    return clamp(value, *quantized_activation_range(activation, y), y.dtype)


def pool_importer(name: str) -> Callable[[ImportContext], ImportedCall]:

    def imported(context: ImportContext) -> ImportedCall:
        require_tensors(context, 1)
        options = context.node.options
        size = (
            checked_int_option(options["filter_height"]),
            checked_int_option(options["filter_width"]),
        )
        attrs: dict[str, Attr] = {"size": size, **import_window(context, size)}
        attrs["activation"] = import_activation(options["fused_activation_function"])
        return ImportedCall(name, attrs, (0,))

    return imported
