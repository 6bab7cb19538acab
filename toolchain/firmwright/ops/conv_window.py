"""Sliding windows: what convolutions and pools share (shapes, padding, tap loops, cases).

A `ConvWindow` is a kernel size with strides, dilations and explicit paddings. SAME and VALID of the
source formats become paddings on import, by TFLite's rule: the total padding's smaller half goes
before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from firmwright.ir.core import Attr
from firmwright.ir.graph.opdef import (
    Array,
    CaseTensor,
    ConformanceCase,
    ImportContext,
    NotSupportedError,
    OpCall,
)
from firmwright.ir.tir.builder import ArithExpr, Builder, logical_and
from firmwright.ops.conformance_tensors import with_int4_weights


@dataclass(frozen=True, slots=True)
class OutputPosition:
    """The loop variables of one output position."""

    n: ArithExpr
    oy: ArithExpr
    ox: ArithExpr


@dataclass(frozen=True, slots=True)
class ConvWindow:
    """Size, stride and dilation as (vertical, horizontal); padding (top, bottom, left, right)."""

    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]
    input_size: tuple[int, int]

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the output for an input of `height` x `width`."""
        top, bottom, left, right = self.padding
        return (
            self._positions(height + top + bottom, 0),
            self._positions(width + left + right, 1),
        )

    def _positions(self, length: int, axis: int) -> int:
        reach = (self.size[axis] - 1) * self.dilation[axis] + 1
        return (length - reach) // self.stride[axis] + 1

    @property
    def is_padded(self) -> bool:
        return any(self.padding)

    @property
    def pointwise(self) -> bool:
        """Whether output pixel i sees input pixel i and nothing else."""
        return self.size == (1, 1) and self.stride == (1, 1) and not self.is_padded

    def guarded(self, axis: int) -> bool:
        """Whether some tap of some output falls outside of the input along `axis`."""
        first = self.padding[2 * axis]
        positions = self.output_size(*self.input_size)[axis]
        reach = (self.size[axis] - 1) * self.dilation[axis]
        last = (positions - 1) * self.stride[axis] - first + reach
        return first > 0 or last >= self.input_size[axis]

    @contextmanager
    def outputs(
        self, b: Builder, x_shape: Sequence[int], y_shape: Sequence[int]
    ) -> Iterator[OutputPosition]:
        """Loops over batch, output rows and output columns."""
        with (
            b.for_("n", y_shape[0]) as n,
            b.for_("oy", y_shape[1]) as oy,
            b.for_("ox", y_shape[2]) as ox,
        ):
            yield OutputPosition(n, oy, ox)

    @contextmanager
    def taps(
        self, b: Builder, at: OutputPosition
    ) -> Iterator[tuple[ArithExpr, ArithExpr, ArithExpr, ArithExpr]]:
        """Loops over taps that fall inside of the input: (ky, kx, iy, ix)."""
        with ExitStack() as stack:
            ky, iy = self._tap(b, stack, 0, at.oy)
            kx, ix = self._tap(b, stack, 1, at.ox)
            yield ky, kx, iy, ix

    def _tap(
        self, b: Builder, stack: ExitStack, axis: int, out: ArithExpr
    ) -> tuple[ArithExpr, ArithExpr]:
        k_name, i_name = ("ky", "iy") if axis == 0 else ("kx", "ix")
        k = stack.enter_context(b.for_(k_name, self.size[axis]))
        position = out * self.stride[axis] + k * self.dilation[axis] - self.padding[2 * axis]
        i = stack.enter_context(b.let(i_name, position))
        if self.guarded(axis):
            stack.enter_context(b.if_(logical_and(i >= 0, i < self.input_size[axis])))
        return k, i


def window_of(call: OpCall, size: Sequence[int]) -> ConvWindow:
    """The window of a call whose kernel is `size` (rows, columns)."""
    height, width = call.input(0).shape[1:3]
    stride, dilation = call.ints_attr("stride"), call.ints_attr("dilation")
    padding = call.ints_attr("padding")
    return ConvWindow(
        (size[0], size[1]),
        (stride[0], stride[1]),
        (dilation[0], dilation[1]),
        (padding[0], padding[1], padding[2], padding[3]),
        (height, width),
    )


def check_window(window: ConvWindow) -> None:
    """Strides and sizes must leave at least one output position."""
    if min(*window.stride, *window.dilation, *window.size) < 1 or min(window.padding) < 0:
        raise NotSupportedError("a stride, dilation or kernel size below 1, or negative padding")
    if min(window.output_size(*window.input_size)) < 1:
        raise NotSupportedError("a kernel larger than the padded input")


def same_padding(length: int, size: int, stride: int, dilation: int) -> tuple[int, int]:
    """Padding (before, after) that gives ceil(length / stride) outputs."""
    outputs = -(-length // stride)
    total = max((outputs - 1) * stride + (size - 1) * dilation + 1 - length, 0)
    return total // 2, total - total // 2


def checked_int_option(option: Attr) -> int:
    """An option that the reader decoded as an integer."""
    assert isinstance(option, int)
    return option


def import_window(context: ImportContext, size: Sequence[int]) -> dict[str, Attr]:
    """Attributes stride, dilation and padding from TFLite options."""
    options, x = context.node.options, context.inputs[0]
    if x is None or len(x.shape) != 4:
        raise NotSupportedError("an input of other than four dimensions")
    stride = (checked_int_option(options["stride_h"]), checked_int_option(options["stride_w"]))
    dilation = (
        checked_int_option(options.get("dilation_h_factor", 1)),
        checked_int_option(options.get("dilation_w_factor", 1)),
    )
    padding: tuple[int, ...] = (0, 0, 0, 0)
    if min(*stride, *dilation) > 0 and options["padding"] == "SAME":
        rows = same_padding(x.shape[1], size[0], stride[0], dilation[0])
        padding = (*rows, *same_padding(x.shape[2], size[1], stride[1], dilation[1]))
    return {"stride": stride, "dilation": dilation, "padding": padding}


def im2col(x: Array, window: ConvWindow, outside: float = 0) -> Array:
    """im2col: [n, oy, ox, ky * kx * c] of the input (in its own dtype), `outside` around it."""
    top, bottom, left, right = window.padding
    margins = ((0, 0), (top, bottom), (left, right), (0, 0))
    padded = np.pad(x, margins, constant_values=outside)
    rows, cols = window.output_size(x.shape[1], x.shape[2])
    taps = [
        padded[
            :,
            ky * window.dilation[0] :: window.stride[0],
            kx * window.dilation[1] :: window.stride[1],
        ][:, :rows, :cols]
        for ky in range(window.size[0])
        for kx in range(window.size[1])
    ]
    stacked: Array = np.concatenate(taps, axis=-1)
    return stacked


# ---- conformance cases -------------------------------------------------------------------------

_CONV_GRID = (
    # name, (h, w), in and out channels, (kh, kw), stride, dilation, padding, activation
    ("1x1", (5, 4), 8, 6, (1, 1), (1, 1), (1, 1), "VALID", "NONE"),
    ("1x1_odd_channels", (3, 5), 5, 3, (1, 1), (1, 1), (1, 1), "VALID", "RELU"),
    ("3x3_same", (6, 5), 4, 4, (3, 3), (1, 1), (1, 1), "SAME", "RELU6"),
    ("3x3_stride2", (7, 6), 3, 5, (3, 3), (2, 2), (1, 1), "SAME", "RELU"),
    ("3x3_dilated", (8, 7), 2, 3, (3, 3), (1, 1), (2, 2), "SAME", "NONE"),
    ("4x3_strides_1_2", (9, 8), 1, 7, (4, 3), (1, 2), (1, 1), "SAME", "RELU_N1_TO_1"),
    ("3x1_valid", (6, 1), 4, 4, (3, 1), (1, 1), (1, 1), "VALID", "RELU"),
    ("5x5_one_pixel", (5, 5), 3, 2, (5, 5), (1, 1), (1, 1), "VALID", "NONE"),
)


def conv_cases(builtin: str) -> Iterator[ConformanceCase]:
    """The grid for int8 (per channel), float32 and partly int16, seeded by the case's place."""
    for index, row in enumerate(_CONV_GRID):
        yield _conv_case(builtin, row, index, "int8")
        if index == 0:
            yield with_int4_weights(_conv_case(builtin, row, index, "int8"))
        yield _conv_case(builtin, row, index, "float32")
        if index % 2:
            yield _conv_case(builtin, row, index, "int16")


def _conv_case(builtin: str, row: tuple, index: int, dtype: str) -> ConformanceCase:  # type: ignore[type-arg]  # a table row
    name, (height, width), channels, count, size, stride, dilation, padding, activation = row
    rng = np.random.Generator(np.random.PCG64([index, len(builtin)]))
    depthwise = builtin == "DEPTHWISE_CONV_2D"
    outputs = channels * (1 + count % 2) if depthwise else count
    w_shape = (1, *size, outputs) if depthwise else (outputs, *size, channels)
    rows, cols = (
        -(-height // stride[0]) if padding == "SAME" else (height - size[0]) // stride[0] + 1,
        -(-width // stride[1]) if padding == "SAME" else (width - size[1]) // stride[1] + 1,
    )
    options = {
        "padding": padding,
        "stride_h": stride[0],
        "stride_w": stride[1],
        "dilation_h_factor": dilation[0],
        "dilation_w_factor": dilation[1],
        "fused_activation_function": activation,
    }
    if depthwise:
        options["depth_multiplier"] = outputs // channels
    x_shape, y_shape = (1, height, width, channels), (1, rows, cols, outputs)
    if dtype == "float32":
        w = rng.normal(size=w_shape).astype(np.float32)
        bias = rng.normal(size=outputs).astype(np.float32)
        tensors = (
            CaseTensor(x_shape, dtype),
            CaseTensor(w_shape, dtype, data=w),
            CaseTensor((outputs,), dtype, data=bias),
        )
        return ConformanceCase(
            f"{name}_{dtype}", builtin, tensors, (CaseTensor(y_shape, dtype),), options
        )
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.002, 0.02, outputs))
    wide = dtype == "int16"
    x_scale, y_scale = (0.0003, 0.0005) if wide else (0.05, 0.08)
    x_scale, y_scale = float(np.float32(x_scale)), float(np.float32(y_scale))
    bias_dtype, bias_reach = ("int64", 1 << 22) if wide else ("int32", 2000)
    x_zero = 0 if wide else int(rng.integers(-128, 127))
    tensors = (
        CaseTensor(x_shape, dtype, (x_scale,), (x_zero,)),
        CaseTensor(
            w_shape, "int8", scales, (0,) * outputs, 3 if depthwise else 0,
            rng.integers(-127, 128, w_shape).astype(np.int8),
        ),
        CaseTensor(
            (outputs,), bias_dtype, tuple(s * x_scale for s in scales), (0,) * outputs, 0,
            rng.integers(-bias_reach, bias_reach, outputs).astype(bias_dtype),
        ),
    )  # fmt: skip
    y_zero = 0 if wide else int(rng.integers(-128, 127))
    y = CaseTensor(y_shape, dtype, (y_scale,), (y_zero,))
    return ConformanceCase(f"{name}_{dtype}", builtin, tensors, (y,), options)
