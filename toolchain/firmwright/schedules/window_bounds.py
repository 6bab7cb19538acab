"""Partition of outputs by the window taps that fall inside the input.

Kernels emit one loop per run of outputs with equal valid taps and need no bounds
checks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.conv_window import ConvWindow, window_of


@dataclass(frozen=True, slots=True)
class ValidTapRun:
    """Adjacent outputs along an axis with the same valid taps."""

    outputs: range
    taps: range


def split_by_valid_taps(
    window: ConvWindow, axis: int, outputs: int
) -> list[ValidTapRun]:
    """Split `outputs` positions along an axis into runs of equal valid taps."""

    def valid(output: int) -> range:
        start = output * window.stride[axis] - window.padding[2 * axis]
        inside = [
            tap
            for tap in range(window.size[axis])
            if 0 <= start + tap * window.dilation[axis] < window.input_size[axis]
        ]
        return range(inside[0], inside[-1] + 1) if inside else range(0)

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


def split_by_valid_rows_and_columns(
    op: OpCall,
) -> list[tuple[ValidTapRun, ValidTapRun]]:
    """Return a depthwise layer's (rows, columns) runs; none if an output has no tap."""
    window = window_of(op, op.input(1).shape[1:3])
    _, height, width, _ = op.output.shape
    rows = split_by_valid_taps(window, 0, height)
    columns = split_by_valid_taps(window, 1, width)
    if not all(run.taps for run in (*rows, *columns)):
        return []
    return list(product(rows, columns))


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """A window axis without dilation: sizes, padding `before`, steps in elements."""

    taps: int
    stride: int
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
        return range(max(0, -first), min(self.taps, self.inputs - first))

    def runs(self) -> list[ValidTapRun]:
        return group_outputs(self.outputs, self.valid)


def window_axes(op: OpCall) -> tuple[WindowAxis, WindowAxis]:
    return _window_axis(op, 0), _window_axis(op, 1)


def _window_axis(op: OpCall, axis: int) -> WindowAxis:
    window = window_of(op, op.input(1).shape[1:3])
    x, y = op.input(0).shape, op.output.shape
    return WindowAxis(
        taps=window.size[axis],
        stride=window.stride[axis],
        before=window.padding[2 * axis],
        inputs=x[1 + axis],
        outputs=range(y[1 + axis]),
        input_step=math.prod(x[2 + axis :]),
        output_step=math.prod(y[2 + axis :]),
    )
