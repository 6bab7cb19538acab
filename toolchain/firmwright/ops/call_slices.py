"""Slicing of a row-wise call into several calls that compute parts of its output.

Cuts are at aligned rows, so slices of inputs and outputs are views. Results are
bit-identical.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.ir.core import Span
from firmwright.ir.graph.attributes.base import OpAttrs
from firmwright.ir.graph.attributes.layers import WindowAttrs
from firmwright.ir.graph.attributes.movement import AxisAttrs, StridedSliceAttrs
from firmwright.ir.graph.devices import with_device
from firmwright.ir.graph.nodes import Call, Value
from firmwright.ir.module import IRModule
from firmwright.ops.kernel import KERNEL_ALIGNMENT
from firmwright.ops.opdef import RowWindow

Shares = Sequence[tuple[str, int]]
"""Devices with the relative sizes of their parts."""


@dataclass(frozen=True, slots=True)
class CallSlice:
    """A part of an output along `axis`: `call` computes it from `slices` of inputs."""

    call: Call
    slices: tuple[Call, ...]
    axis: int = 1

    @property
    def output(self) -> Value:
        return self.call.outputs[0]


def slice_rows(
    call: Call, rows: RowWindow, shares: Shares, names: UniqueNamer, alignment: int
) -> tuple[CallSlice, ...] | None:
    """Return one slice of `call` per share, or None if it cannot be sliced."""
    y = call.outputs[0]
    sources = rows.row_inputs(call)
    is_plain = (rows.window_height, rows.stride, rows.pad_before) == (1, 1, 0)
    if not isinstance(call.attrs, WindowAttrs) and not is_plain:
        return None

    def is_good(place: int) -> bool:
        """Whether rows from `place` on, and their windows, begin at aligned bytes."""
        if place * _row_bytes(y) % alignment:
            return False
        first_row = max(0, rows.stride * place - rows.pad_before)
        return all(first_row * _row_bytes(x) % KERNEL_ALIGNMENT == 0 for x in sources)

    cuts = choose_cuts(y.type.shape[1], shares, is_good)
    if cuts is None:
        return None
    row_slices: list[CallSlice] = []
    for (device, _), first, end in zip(shares, cuts, cuts[1:], strict=False):
        windows: dict[str, Value] = {}
        slices: dict[str, Call] = {}
        for x in sources:
            window, extraction = _slice_input(x, rows, (first, end), call.span, names)
            windows[x.name] = window
            if extraction is not None:
                slices[x.name] = extraction
        inputs: list[Value | None] = []
        for value in call.inputs:
            if value is not None and value in sources:
                value = windows[value.name]
            inputs.append(value)
        part = make_part(y, 1, end - first, device, names)
        attrs = _padded(call, rows, first, end)
        own = replace(call, inputs=tuple(inputs), outputs=(part,), attrs=attrs)
        row_slices.append(CallSlice(own, tuple(slices.values())))
    return tuple(row_slices)


def choose_cuts(
    count: int, shares: Shares, is_good: Callable[[int], bool]
) -> tuple[int, ...] | None:
    """Return cuts 0, ..., count for parts as near to their shares as valid cuts allow.

    Ties go to the earlier cut.
    """
    weights = [share for _, share in shares]
    cuts = [0]
    for number in range(1, len(shares)):
        ideal = count * sum(weights[:number]) / sum(weights)
        best: int | None = None
        for place in range(cuts[-1] + 1, count):
            is_nearer = best is None or abs(place - ideal) < abs(best - ideal)
            if is_nearer and is_good(place):
                best = place
        if best is None:
            return None
        cuts.append(best)
    return (*cuts, count)


def cut_alignment(module: IRModule) -> int:
    """Return the alignment in bytes at which no two parts share a data cache line."""
    return max((KERNEL_ALIGNMENT, *(pool.cache_line for pool in module.pools)))


def make_part(
    y: Value, axis: int, count: int, device: str, names: UniqueNamer
) -> Value:
    """Return a new value on a device, with `count` entries along an axis of `y`."""
    shape = (*y.type.shape[:axis], count, *y.type.shape[axis + 1 :])
    name = names.unique(f"{y.name}_{device}")
    part = replace(y, name=name, type=replace(y.type, shape=shape))
    return with_device(part, device)


def concatenate_parts(call: Call, parts: Sequence[Value], axis: int = 1) -> Call:
    attrs = AxisAttrs(axis=axis)
    return Call("concatenation", tuple(parts), call.outputs, attrs, call.span)


def _slice_input(
    x: Value, rows: RowWindow, wanted: tuple[int, int], span: Span, names: UniqueNamer
) -> tuple[Value, Call | None]:
    """Return the rows of `x` for output rows `wanted`, and the call that extracts them.

    If these are all rows, it is `x` itself without a call.
    """
    first, end = wanted
    begin = max(0, rows.stride * first - rows.pad_before)
    last = min(x.type.shape[1], _window_end(rows, end))
    if (begin, last) == (0, x.type.shape[1]):
        return x, None
    counts = (1, last - begin, *x.type.shape[2:])
    name = names.unique(f"{x.name}_rows")
    part = replace(x, name=name, type=replace(x.type, shape=counts))
    attrs = StridedSliceAttrs(
        begin=(0, begin, 0, 0), strides=(1, 1, 1, 1), counts=counts, shrunk=()
    )
    return part, Call("strided_slice", (x,), (part,), attrs, span)


def _window_end(rows: RowWindow, end: int) -> int:
    """Return the end of the window of output row end - 1, which may be padding."""
    return rows.stride * (end - 1) - rows.pad_before + rows.window_height


def _row_bytes(value: Value) -> int:
    return value.type.size_bytes // value.type.shape[1]


def _padded(call: Call, rows: RowWindow, first: int, end: int) -> OpAttrs:
    """Return the attributes for output rows first..end.

    Only the outermost parts have padding.
    """
    attrs = call.attrs
    if not isinstance(attrs, WindowAttrs):
        return attrs
    x = rows.row_inputs(call)[0]
    above = max(0, rows.pad_before - rows.stride * first)
    below = max(0, _window_end(rows, end) - x.type.shape[1])
    return replace(attrs, padding=(above, below, *attrs.padding[2:]))
