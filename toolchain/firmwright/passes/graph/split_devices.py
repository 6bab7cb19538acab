"""Splits calls over the cores of a chip: each makes a part of the output in its place.

In: a module whose entry is a graph function and whose attribute `devices` names several cores. Out:
the same results; calls that can be cut and are worth it are one call a core. What works row by row
is cut into rows, each core taking the rows of the input that its own are made of, those around them
included; a fully connected layer is cut into outputs, with its weights. Cuts lie where parts are
aligned, so that parts of inputs and outputs are windows and no byte is moved. Invariants: the last
bit of every value is as before; a value that says its device is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from firmwright.base.names import NameSupply
from firmwright.ir.core import UNCONSTRAINED, Attr, Constant, Span
from firmwright.ir.graph.devices import cores_of, placed
from firmwright.ir.graph.evaluate import describe
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.graph.opdef import OpTable, RowMap
from firmwright.ir.module import IRModule
from firmwright.ops.kernel import KERNEL_ALIGNMENT

WORTH = 4096
"""Multiply-adds, or elements, below which a call is left whole: beginning a part costs too."""


def split_over_cores(module: IRModule, ops: OpTable) -> IRModule:
    """The module with calls split; the same one where there are no cores to split over."""
    entry, cores = module.entry, cores_of(module)
    if len(cores) < 2 or not isinstance(entry, Function):
        return module
    split = _Split(module, ops, cores, entry)
    body = tuple(part for call in entry.body for part in split.parts(call))
    changed = replace(module, constants={**module.constants, **split.constants})
    return changed.with_function(replace(entry, body=body))


def cuts(count: int, parts: int, is_good: Callable[[int], bool]) -> tuple[int, ...] | None:
    """Where to cut `count` into `parts` as equal as good places allow: 0, ..., count.

    Of two the earlier: the first core has what is not split as well.
    """
    found = [0]
    for number in range(1, parts):
        ideal = count * number / parts
        places = (place for place in range(found[-1] + 1, count) if is_good(place))
        best = min(places, key=lambda place: (abs(place - ideal), place), default=None)
        if best is None:
            return None
        found.append(best)
    return (*found, count)


@dataclass
class _Split:
    module: IRModule
    ops: OpTable
    cores: tuple[str, ...]
    entry: Function
    names: NameSupply = field(init=False)
    constants: dict[str, Constant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values = [v for c in self.entry.body for v in (*c.inputs, *c.outputs) if v is not None]
        taken = (value.name for value in (*self.entry.sources, *values))
        self.names = NameSupply((*taken, *self.module.constants))

    def parts(self, call: Call) -> list[Call]:
        """What stands in the place of `call`: itself, or slices, a call a core, and a joint."""
        if call.op not in self.ops or len(call.outputs) != 1 or call.target:
            return [call]
        y, op = call.outputs[0], self.ops[call.op]
        described = describe(call, self.module)
        free = y.virtual_device == UNCONSTRAINED and y.constant is None
        if not free or max(op.macs(described), y.type.elements) < WORTH:
            return [call]
        if call.op == "fully_connected":
            return self._outputs(call)
        rows = op.rows(described)
        return self._rows(call, rows) if isinstance(rows, RowMap) else [call]

    # ---- rows ----------------------------------------------------------------------------------

    def _rows(self, call: Call, rows: RowMap) -> list[Call]:
        y, sources = call.outputs[0], rows.sources(call)
        is_plain = (rows.reach, rows.stride, rows.before) == (1, 1, 0)
        if "padding" not in call.attrs and not is_plain:
            return [call]

        def is_good(place: int) -> bool:
            first = [max(0, rows.stride * place - rows.before) * _row_bytes(x) for x in sources]
            return not any(n % KERNEL_ALIGNMENT for n in (place * _row_bytes(y), *first))

        found = cuts(y.type.shape[1], len(self.cores), is_good)
        if found is None:
            return [call]
        made: list[Call] = []
        results = []
        for core, first, end in zip(self.cores, found, found[1:], strict=False):
            windows = {x.name: self._window(x, rows, (first, end), call.span) for x in sources}
            made += [slice_ for _, slice_ in windows.values() if slice_ is not None]
            inputs = tuple(
                windows[v.name][0] if v is not None and v in sources else v for v in call.inputs
            )
            part = self._part(y, 1, end - first, core)
            attrs = _padded(call, rows, first, end)
            made.append(replace(call, inputs=inputs, outputs=(part,), attrs=attrs))
            results.append(part)
        return [*made, self._joint(call, results, 1)]

    def _window(
        self, x: Value, rows: RowMap, wanted: tuple[int, int], span: Span
    ) -> tuple[Value, Call | None]:
        """The rows of `x` that those of the output are made of, and the call that gives them."""
        first, end = wanted
        begin = max(0, rows.stride * first - rows.before)
        last = min(x.type.shape[1], rows.stride * (end - 1) - rows.before + rows.reach)
        if (begin, last) == (0, x.type.shape[1]):
            return x, None
        counts = (1, last - begin, *x.type.shape[2:])
        part = replace(
            x, name=self.names.take(f"{x.name}_rows"), type=replace(x.type, shape=counts)
        )
        attrs: dict[str, Attr] = {
            "begin": (0, begin, 0, 0),
            "strides": (1, 1, 1, 1),
            "counts": counts,
            "shrunk": (),
        }
        return part, Call("strided_slice", (x,), (part,), attrs, span)

    # ---- outputs of a fully connected layer ----------------------------------------------------

    def _outputs(self, call: Call) -> list[Call]:
        y, weights = call.outputs[0], call.inputs[1]
        axis = len(y.type.shape) - 1
        if weights is None or weights.constant is None or y.type.elements != y.type.shape[axis]:
            return [call]
        step = y.type.dtype.size_bytes
        found = cuts(
            y.type.elements, len(self.cores), lambda place: place * step % KERNEL_ALIGNMENT == 0
        )
        biases = call.inputs[2:]
        if found is None or any(v is not None and v.constant is None for v in biases):
            return [call]
        made, results = [], []
        for core, first, end in zip(self.cores, found, found[1:], strict=False):
            own = tuple(
                None if v is None else self._own_constant(v, first, end) for v in call.inputs[1:]
            )
            part = self._part(y, axis, end - first, core)
            made.append(replace(call, inputs=(call.inputs[0], *own), outputs=(part,)))
            results.append(part)
        return [*made, self._joint(call, results, axis)]

    def _own_constant(self, value: Value, first: int, end: int) -> Value:
        """Entries first..end of a constant along its first axis, with their scales."""
        whole = self.module.constants[value.constant or ""]
        array = whole.array()[first:end]
        name = self.names.take(f"{whole.name}_part")
        part = Constant.from_array(name, array, whole.dtype)
        self.constants[name] = replace(part, pool=whole.pool)
        kind = TensorType(array.shape, value.type.dtype, value.type.quantization)
        quantization = kind.quantization
        if quantization is not None and quantization.axis == 0 and len(quantization.scales) > 1:
            quantization = replace(
                quantization,
                scales=quantization.scales[first:end],
                zero_points=quantization.zero_points[first:end],
            )
        kind = replace(kind, quantization=quantization)
        return replace(value, name=self.names.take(f"{value.name}_part"), type=kind, constant=name)

    # ---- both ----------------------------------------------------------------------------------

    def _part(self, y: Value, axis: int, count: int, core: str) -> Value:
        shape = (*y.type.shape[:axis], count, *y.type.shape[axis + 1 :])
        part = replace(
            y, name=self.names.take(f"{y.name}_{core}"), type=replace(y.type, shape=shape)
        )
        return placed(part, core)

    def _joint(self, call: Call, parts: Sequence[Value], axis: int) -> Call:
        """The parts one behind the other: the output that was asked for."""
        return Call("concatenation", tuple(parts), call.outputs, {"axis": axis}, call.span)


def _row_bytes(value: Value) -> int:
    return value.type.size_bytes // value.type.shape[1]


def _padded(call: Call, rows: RowMap, first: int, end: int) -> dict[str, Attr]:
    """The attributes of output rows first..end: only the outer parts see padding above or below."""
    attrs = dict(call.attrs)
    if "padding" not in attrs:
        return attrs
    x = rows.sources(call)[0]
    padding = attrs["padding"]
    assert isinstance(padding, tuple)
    above = max(0, rows.before - rows.stride * first)
    below = max(0, rows.stride * (end - 1) - rows.before + rows.reach - x.type.shape[1])
    attrs["padding"] = (above, below, *padding[2:])
    return attrs
