"""hybrid_batch_matmul: products of float matrices with int8 matrices (dynamic range).

Layouts, attributes and broadcasting are those of batch_matmul. Each row of the left matrix is
quantized at run time (with `asymmetric` asymmetrically), multiplied in integers and scaled back by
its scale and the right matrix's.
Semantics: TFLite's hybrid BatchMatMul.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, OpDef, TensorType
from firmwright.ops.batch_matmul import index_by_batch, is_transposed, matrix_shape, output_shape
from firmwright.ops.dynamic_range import FloatRow, check_hybrid, quantize_array, quantize_row
from firmwright.ops.elementwise import broadcast_loops
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.requantize import per_tensor_quant

_MOST_TERMS = INT32.max // (255 * 128)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    check_hybrid(call, None)
    if matrix_shape(call, 0)[1] > _MOST_TERMS:
        raise NotSupportedError(f"sums of {matrix_shape(call, 0)[1]} products")
    if any(sum(n > 1 for n in call.input(index).shape[:-2]) > 1 for index in (0, 1)):
        raise NotSupportedError(
            "matrices with several batch dimensions: LiteRT scales a row by the factor of another; "
            "reshape them to one batch dimension"
        )
    return (TensorType(output_shape(call), FLOAT32),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, y = (
        np.swapaxes(a, -1, -2) if is_transposed(call, index) else a
        for index, a in enumerate(arrays[:2])
    )
    steps, scales = np.zeros(x.shape, np.int64), np.zeros((*x.shape[:-1], 1), np.float32)
    for place in np.ndindex(*x.shape[:-1]):
        asymmetric = bool(call.attrs["asymmetric"])
        quantized, scale, offset = quantize_array(x[place], asymmetric=asymmetric)
        steps[place], scales[place] = quantized.astype(np.int64) - offset, scale
    sums = (steps @ y.astype(np.int64)).astype(np.float32)
    return (sums * (scales * np.float32(per_tensor_quant(call.input(1)).scale)),)


def lower(call: OpCall, b: Kernel) -> None:
    (rows, depth), (columns,) = matrix_shape(call, 0), call.output.shape[-1:]
    loops = broadcast_loops([call.input(k).shape[:-2] for k in (0, 1)], call.output.shape[:-2])
    with Nest() as enter:
        x, y, z = (index_by_batch(b, loops, index) for index in (0, 1, 2))
        at = [enter(b.for_(f"n{k}", n)) for k, (n, _) in enumerate(loops)]
        own = [[i for i, (_, moving) in zip(at, loops, strict=True) if k in moving] for k in (0, 1)]
        i = enter(b.for_("row", rows))
        values = b.allocate("values", FLOAT32, (depth,))
        quantized = b.allocate("quantized", INT8, (depth,))
        with b.for_("k", depth) as k:
            place = [*own[0], *([k, i] if is_transposed(call, 0) else [i, k])]
            b.store(values, [k], b.load(x, place))
        row = quantize_row(
            b, FloatRow(values, 0, depth), quantized,
            weight_scale=per_tensor_quant(call.input(1)).scale,
            asymmetric=bool(call.attrs["asymmetric"]),
        )  # fmt: skip
        j = enter(b.for_("column", columns))
        acc = b.register("acc", INT32, 0)
        with b.for_("k", depth) as k:
            place = [*own[1], *([j, k] if is_transposed(call, 1) else [k, j])]
            acc.add(row.load(b, quantized, [k]) * b.load_i32(y, place))
        b.store(z, [*at, i, j], acc.value.cast(FLOAT32) * row.scale.value)


OPDEF = OpDef("hybrid_batch_matmul", infer, reference, lower)
