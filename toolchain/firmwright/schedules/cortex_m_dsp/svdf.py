"""svdf of int8 on the DSP extension: the features by the int8 GEMM."""

from collections.abc import Callable

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.schedule import Config
from firmwright.ops.kernel import Kernel
from firmwright.ops.svdf import emit_units, folded_feature_biases, requantize_state, weights_at
from firmwright.schedules.cortex_m_dsp.vector_product import ROWS, VectorProduct
from firmwright.schedules.schedule_factories import dsp_schedule, for_inputs_of


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    weights, bias = weights_at(op, 1), folded_feature_biases(op)
    rows = (0, -len(weights) % ROWS)
    kernel, biases = np.pad(weights, (rows, (0, 0))), np.pad(bias, rows)
    sums = b.allocate("sums", INT32, (len(kernel),))
    product = VectorProduct(b, kernel, biases, lambda acc, index, place: acc)

    def start(n: ArithExpr) -> Callable[[ArithExpr], ArithExpr]:
        product.emit(b, b.input(0), [n], sums)
        return lambda f: requantize_state(op, b.load(sums, [f]))

    emit_units(op, b, start)


SCHEDULES = (dsp_schedule("dsp.svdf.features", "svdf", configs=for_inputs_of(INT8), build=_build),)
