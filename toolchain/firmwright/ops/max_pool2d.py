"""max_pool2d: y is the greatest x under the window. See pools.py for attributes.

Invariant: exact in every dtype; nothing is rounded.
Source of the semantics: TFLite's reference pooling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.opdef import Array, Case, NumericsCell, OpCall, OpDef, RowMap
from firmwright.ir.tir.builder import maximum
from firmwright.ops.conv_shapes import columns
from firmwright.ops.kernel import Kernel
from firmwright.ops.pools import (
    DTYPES,
    clipped,
    from_tflite,
    infer,
    lower_pool,
    pool_cases,
    pool_window,
)
from firmwright.ops.rows import window_rows


def _lowest(call: OpCall) -> float:
    dtype = call.input(0).dtype
    return float(np.finfo(np.float32).min) if dtype == FLOAT32 else dtype.min


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    window = pool_window(call)
    x = arrays[0].astype(np.float64)
    patches = columns(x, window, outside=_lowest(call))
    taps = patches.reshape(*patches.shape[:3], -1, x.shape[3])
    return (clipped(call, taps.max(axis=-2)),)


def lower(call: OpCall, b: Kernel) -> None:
    lower_pool(call, b, _lowest(call), maximum, lambda at, acc: acc)


def rows(call: OpCall) -> RowMap | None:
    """Rows under the window; the padding never is the greatest."""
    return window_rows(call, pool_window(call), _lowest(call))


def cases() -> Iterator[Case]:
    yield from pool_cases("MAX_POOL_2D")


OPDEF = OpDef(
    name="max_pool2d",
    infer=infer,
    reference=reference,
    lower=lower,
    rows=rows,
    imports={"tflite:MAX_POOL_2D": from_tflite("max_pool2d")},
    cases=cases,
    dtypes=DTYPES,
    numerics={
        "litert": NumericsCell(None, "int8", "reference MaxPool"),
        "tflm": NumericsCell(None, "int8", "reference MaxPool"),
    },
)
