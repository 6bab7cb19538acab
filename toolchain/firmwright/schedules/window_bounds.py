"""Partition of outputs by the window taps that fall inside the input.

Kernels emit one loop per run of outputs with equal valid taps and need no bounds
checks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from firmwright.base.rounding import divide_up
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.conv_window import ConvWindow, window_of


@dataclass(frozen=True, slots=True)
class ValidTapRun:
    """Adjacent outputs along an axis with the same valid taps."""

    outputs: range
    taps: range


def _taps_inside(first: int, taps: int, dilation: int, inputs: int) -> range:
    """Return the taps of a window from `first` on that are in [0, inputs)."""
    start = max(0, divide_up(-first, dilation))
    stop = min(taps, divide_up(inputs - first, dilation))
    return range(start, stop) if start < stop else range(0)


def split_by_valid_taps(
    window: ConvWindow, axis: int, outputs: int
) -> list[ValidTapRun]:
    """Split `outputs` positions along an axis into runs of equal valid taps."""
    size, inputs = window.size[axis], window.input_size[axis]
    stride, dilation = window.stride[axis], window.dilation[axis]

    def valid(output: int) -> range:
        first = output * stride - window.padding[2 * axis]
        return _taps_inside(first, size, dilation, inputs)

    return group_outputs(range(outputs), valid)


def group_outputs(outputs: range, valid: Callable[[int], range]) -> list[ValidTapRun]:
    runs: list[ValidTapRun] = []
    for output in outputs:
        taps = valid(output)
        if runs and runs[-1].taps == taps:
            runs[-1] = ValidTapRun(range(runs[-1].outputs.start, output + 1), taps)
        else:
            runs.append(ValidTapRun(range(output, output + 1), taps))
    return runs


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """A window axis: sizes, padding `before`, steps in elements."""

    taps: int
    stride: int
    dilation: int
    before: int
    inputs: int
    outputs: range
    input_step: int
    output_step: int

    @property
    def has_taps(self) -> bool:
        """Whether each output has a valid tap."""
        return all(self.valid(output) for output in self.outputs)

    def valid(self, output: int) -> range:
        first = output * self.stride - self.before
        return _taps_inside(first, self.taps, self.dilation, self.inputs)

    def missing(self, valid: range) -> list[int]:
        """Return the taps that are not valid."""
        return [tap for tap in range(self.taps) if tap not in valid]

    def runs(self) -> list[ValidTapRun]:
        return group_outputs(self.outputs, self.valid)


def window_axes(op: OpCall) -> tuple[WindowAxis, WindowAxis]:
    """Return the vertical and the horizontal axis of a depthwise layer."""
    return _window_axis(op, 0), _window_axis(op, 1)


def _window_axis(op: OpCall, axis: int) -> WindowAxis:
    window = window_of(op, op.input(1).shape[1:3])
    x, y = op.input(0).shape, op.output.shape
    return WindowAxis(
        taps=window.size[axis],
        stride=window.stride[axis],
        dilation=window.dilation[axis],
        before=window.padding[2 * axis],
        inputs=x[1 + axis],
        outputs=range(y[1 + axis]),
        input_step=math.prod(x[2 + axis :]),
        output_step=math.prod(y[2 + axis :]),
    )


def line_axes(op: OpCall) -> tuple[WindowAxis, WindowAxis]:
    """Return the axis with more taps, and the other one."""
    vertical, horizontal = window_axes(op)
    if vertical.taps > horizontal.taps:
        return vertical, horizontal
    return horizontal, vertical
