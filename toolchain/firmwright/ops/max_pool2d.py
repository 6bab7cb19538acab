"""max_pool2d: the greatest x in the window, exact in every type; attributes as in pooling.py.

Semantics: TFLite's reference pooling.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.ir.graph.opdef import OpCall, OpDef, RowWindow, both_profiles
from firmwright.ir.tir.builder import maximum
from firmwright.ops.conv_window import im2col
from firmwright.ops.kernel import Kernel
from firmwright.ops.pooling import (
    DTYPES,
    clip_to_activation,
    infer,
    lower_pool,
    pool_importer,
    pool_window,
)
from firmwright.ops.row_windows import sliding_row_window


def _lowest(call: OpCall) -> float:
    dtype = call.input(0).dtype
    return float(np.finfo(np.float32).min) if dtype == FLOAT32 else dtype.min


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    window = pool_window(call)
    x = arrays[0].astype(np.float64)
    patches = im2col(x, window, outside=_lowest(call))
    taps = patches.reshape(*patches.shape[:3], -1, x.shape[3])
    return (clip_to_activation(call, taps.max(axis=-2)),)


def lower(call: OpCall, b: Kernel) -> None:
    lower_pool(call, b, _lowest(call), maximum, lambda at, acc: acc)


def rows(call: OpCall) -> RowWindow | None:
    return sliding_row_window(call, pool_window(call), _lowest(call))


OPDEF = OpDef(
    name="max_pool2d",
    infer=infer,
    reference=reference,
    lower=lower,
    row_access=rows,
    imports={"tflite:MAX_POOL_2D": pool_importer("max_pool2d")},
    dtypes=DTYPES,
    numerics=both_profiles(None, "int8", "reference MaxPool"),
)
