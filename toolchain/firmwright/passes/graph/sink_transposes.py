"""Sinking of transposes until they cancel, become views or reach a boundary.

A transposed tensor is represented as (source, perm), and calls that accept any layout
are applied to the source. A transpose remains before operators that need it and at
results. A flatten before a fully connected layer permutes the columns of its weights.
Reshapes are handled so that the fewest elements are transposed. Reductions may sum in
another order.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.ir.core import Constant, Span
from firmwright.ir.graph.attributes.base import NO_ATTRS, OpAttrs
from firmwright.ir.graph.attributes.movement import TransposeAttrs
from firmwright.ir.graph.attributes.values import AxesAttrs, ReductionAttrs
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function, Value, unique_name
from firmwright.ir.module import IRModule, Pass
from firmwright.ops.strided_copy import is_view_transpose
from firmwright.passes.graph.fold_transpose import EXPRESSION_OPS, fold_transposes
from firmwright.passes.graph.transposed_attributes import (
    FIRST_INPUT_ONLY,
    REDUCTIONS,
    SOURCE_ATTRS,
    inverse,
    is_identity,
    keeps_order,
    takes_any_layout,
)
from firmwright.passes.graph.transposed_reshapes import (
    Perm,
    grouping_permutation,
    reshape_before_transpose,
)
from firmwright.passes.map_functions import map_with_constants, names_of

ReshapeStrategy = Literal["in front", "through", "gathered"]
"""How a reshape of a transposed tensor is handled.

"in front" transposes before it, "through" reshapes the source if the joined axes are
adjacent there, and "gathered" makes them adjacent first.
"""


@dataclass(frozen=True, slots=True)
class TransposedValue:
    """A value as a transpose of another: its axis i is axis perm[i] of the source."""

    source: Value
    perm: Perm


@dataclass(frozen=True, slots=True)
class FlattenedValue:
    """A value of shape [n, k]: a reshape of the transpose `moved` of shape `shape`."""

    moved: TransposedValue
    shape: tuple[int, ...]


@dataclass(slots=True)
class _TransposeSinker:
    """Rewrites one function.

    `body` receives the new calls. `moved` and `flat` have the values that exist only as
    transposes of others, `emitted` those of them that were computed nevertheless, for a
    reader that needs them. `spans` has the origin of each value.
    """

    constants: dict[str, Constant]
    names: set[str]
    strategy: ReshapeStrategy
    body: list[Call] = field(default_factory=list)
    moved: dict[str, TransposedValue] = field(default_factory=dict)
    flat: dict[str, FlattenedValue] = field(default_factory=dict)
    emitted: set[str] = field(default_factory=set)
    spans: dict[str, Span] = field(default_factory=dict)

    def run(self, function: Function) -> Function:
        for call in function.body:
            for value in call.outputs:
                self.spans[value.name] = call.span
        for call in function.body:
            if self._handled(call):
                continue
            inputs: list[Value | None] = []
            for operand in call.inputs:
                if operand is not None:
                    operand = self.plain(operand, call)
                inputs.append(operand)
            self.body.append(replace(call, inputs=tuple(inputs)))
        for value in function.results:
            self.plain(value, None)
        return replace(function, body=tuple(self.body))

    def _handled(self, call: Call) -> bool:
        """Return whether the call was applied to its sources, or needs no call."""
        if any(map(is_placed, call.outputs)):
            return False  # the tensor that the user placed keeps its layout
        if call.op == "transpose":
            return self._transpose(call)
        if call.op == "fully_connected":
            return self._fully_connected(call)
        names = [value.name for value in call.inputs if value is not None]
        if self.moved.keys().isdisjoint(names):
            return False
        if call.op == "reshape":
            return self._reshape(call)
        return takes_any_layout(call) and self._apply_to_sources(call)

    # ---- values ----------------------------------------------------------------------

    def plain(self, value: Value, reader: Call | None) -> Value:
        """Return the value itself; emit a transpose if only another layout exists."""
        if value.name in self.flat and value.name not in self.emitted:
            self._make_flat(value)
        transposed = self.moved.get(value.name)
        if transposed is None or value.name in self.emitted:
            return value
        if reader is not None and is_identity(transposed.perm):
            return transposed.source
        self.emitted.add(value.name)
        span = reader.span if reader is not None else self.spans[value.name]
        source = transposed.source
        if is_view_transpose(source.type.shape, transposed.perm):
            self.body.append(Call("reshape", (source,), (value,), NO_ATTRS, span))
        else:
            self._emit_transpose(source, transposed.perm, value, span)
        return value

    def _emit_transpose(
        self, source: Value, perm: Perm, output: Value, span: Span
    ) -> None:
        attrs = TransposeAttrs(perm=perm)
        self.body.append(Call("transpose", (source,), (output,), attrs, span))

    def _make_flat(self, value: Value) -> None:
        """Emit the transpose and the reshape that compute a flattened value."""
        flat = self.flat[value.name]
        self.emitted.add(value.name)
        source, span = flat.moved.source, self.spans[value.name]
        between = self._reshaped_value(f"{value.name}/moved", source, flat.shape)
        self._emit_transpose(source, flat.moved.perm, between, span)
        self.body.append(Call("reshape", (between,), (value,), NO_ATTRS, span))

    def _reshaped_value(self, name: str, like: Value, shape: Sequence[int]) -> Value:
        kind = replace(like.type, shape=tuple(shape))
        return Value(unique_name(name, self.names), kind)

    def reshaped(self, value: Value, shape: Sequence[int], call: Call) -> Value:
        """Return the value with another shape, emitting a reshape if it differs."""
        if value.type.shape == tuple(shape):
            return value
        view = self._reshaped_value(f"{value.name}/view", value, shape)
        self.body.append(Call("reshape", (value,), (view,), NO_ATTRS, call.span))
        return view

    def constant(self, value: Value, array: Array) -> Value:
        """Return a new constant with other contents than the constant `value`."""
        name = unique_name(f"{value.name}/moved", self.names)
        self.constants[name] = Constant.from_array(name, array, value.type.dtype)
        shape = tuple(int(n) for n in array.shape)
        return Value(name, replace(value.type, shape=shape), name)

    def array(self, value: Value) -> Array:
        return np.asarray(self.constants[str(value.constant)].array())

    # ---- transpositions, reshapes, fully connected -----------------------------------

    def _transpose(self, call: Call) -> bool:
        """Record the result as a transpose of the source of the input."""
        x, perm = call.inputs[0], call.attributes(TransposeAttrs).perm
        if x is None or x.constant is not None:
            return False
        inner = self.moved.get(x.name, TransposedValue(x, tuple(range(len(perm)))))
        # y[i] = x axis perm[i], and x[j] = source axis inner[j], so y[i] = source axis
        # inner[perm[i]].
        composed = tuple(inner.perm[axis] for axis in perm)
        self.moved[call.outputs[0].name] = TransposedValue(inner.source, composed)
        return True

    def _reshape(self, call: Call) -> bool:
        """Reshape the source if its elements have that order, else follow the strategy.

        A flatten (one row for each item of the batch) is only recorded, as the weights
        of a fully connected layer may follow it.
        """
        x, y = call.inputs[0], call.outputs[0]
        assert x is not None
        transposed = self.moved[x.name]
        if is_view_transpose(transposed.source.type.shape, transposed.perm):
            self.body.append(replace(call, inputs=(transposed.source,)))
            return True
        shape = x.type.shape
        if self.strategy != "in front" and self._through(transposed, call):
            return True
        keeps_batch = y.type.shape[0:1] == shape[0:1] and transposed.perm[0] == 0
        if len(y.type.shape) == 2 and keeps_batch:
            self.flat[y.name] = FlattenedValue(transposed, shape)
            return True
        if self.strategy != "gathered":
            return False
        return self._through(self._gathered(transposed, call), call)

    def _through(self, transposed: TransposedValue, call: Call) -> bool:
        """Reshape the source instead, if the axes to be joined are adjacent in it."""
        source, y = transposed.source, call.outputs[0]
        reshape = reshape_before_transpose(
            source.type.shape, transposed.perm, y.type.shape
        )
        if reshape is None:
            return False
        if is_view_transpose(reshape.shape, reshape.perm):
            self.body.append(replace(call, inputs=(source,)))
        else:
            source = self.reshaped(source, reshape.shape, call)
            self.moved[y.name] = TransposedValue(source, reshape.perm)
        return True

    def _gathered(self, transposed: TransposedValue, call: Call) -> TransposedValue:
        """Transpose the source so that the axes joined by the reshape are adjacent."""
        source, y = transposed.source, call.outputs[0]
        order = grouping_permutation(source.type.shape, transposed.perm, y.type.shape)
        shape = tuple(source.type.shape[axis] for axis in order)
        moved = self._reshaped_value(f"{y.name}/gathered", source, shape)
        self._emit_transpose(source, order, moved, call.span)
        return TransposedValue(moved, tuple(map(order.index, transposed.perm)))

    def _fully_connected(self, call: Call) -> bool:
        """Permute the columns of the weights to match the source's element order."""
        x, w = call.inputs[0], call.inputs[1]
        flat = self.flat.get(x.name) if x is not None else None
        if x is None or flat is None or x.name in self.emitted:
            return False
        if w is None or w.constant is None or is_placed(w):
            return False
        outputs, inputs = w.type.shape
        if inputs != math.prod(flat.shape[1:]):
            return False
        # Column k of the weights belongs to element k of the flattened transpose. Read
        # as an array of the shape before the flatten, the columns are transposed back
        # to the source's order:
        #
        #     source NCHW --transpose--> NHWC --flatten--> n x (h w c)
        #                                          weights o x (h w c)
        #
        #     source NCHW -----------------------flatten-> n x (c h w)
        #                                          weights o x (c h w)
        back = inverse(flat.moved.perm)
        columns = self.array(w).reshape(outputs, *flat.shape[1:]).transpose(back)
        array = np.ascontiguousarray(columns).reshape(outputs, inputs)
        weights = self.constant(w, array)
        rows = self.reshaped(flat.moved.source, x.type.shape, call)
        self.body.append(replace(call, inputs=(rows, weights, *call.inputs[2:])))
        return True

    # ---- operators that take any layout ----------------------------------------------

    def _apply_to_sources(self, call: Call) -> bool:
        """Emit the call on its sources, in the layout of the first transposed input."""
        count = 1 if call.op in FIRST_INPUT_ONLY else len(call.inputs)
        inputs = [value for value in call.inputs[:count] if value is not None]
        rank = len(call.outputs[0].type.shape)
        if call.op in REDUCTIONS:
            rank = max(len(value.type.shape) for value in inputs)
        perm = self._first_perm(inputs, rank)
        if perm is None:
            return False
        sources = [self._source(value, perm, call) for value in inputs]
        if None in sources:
            return False
        # Softmax works along the last axis, which must also be that of the source.
        if call.op == "softmax" and perm[-1] != rank - 1:
            return False
        own = call.attrs
        attrs = SOURCE_ATTRS[call.op](call, perm)
        if isinstance(own, AxesAttrs | ReductionAttrs):
            has_order = isinstance(own, AxesAttrs) and bool(own.float_order)
            if has_order and not keeps_order(own.axes, perm):
                return False
            if not own.keep_dims:
                # Without the reduced axes, the others are numbered anew, in the order
                # of the source.
                left = [perm[axis] for axis in range(rank) if axis not in own.axes]
                perm = tuple(map(sorted(left).index, left))
        self._emit(call, perm, (*sources, *call.inputs[count:]), attrs)
        return True

    def _first_perm(self, values: Sequence[Value], rank: int) -> Perm | None:
        """Return the permutation of the first transposed value of that rank."""
        for value in values:
            if value.name in self.moved and len(value.type.shape) == rank:
                return self.moved[value.name].perm
        return None

    def _source(self, value: Value, perm: Perm, call: Call) -> Value | None:
        """Return the input in the sources' layout, or None if it must be transposed."""
        transposed = self.moved.get(value.name)
        if transposed is not None and transposed.perm == perm:
            return transposed.source
        wide = (1,) * (len(perm) - len(value.type.shape)) + value.type.shape
        back = inverse(perm)
        if value.constant is not None:
            if value.type.elements == 1:
                return value
            if is_placed(value):
                return None
            return self.constant(value, self.array(value).reshape(wide).transpose(back))
        if value.type.elements != 1 and not is_view_transpose(wide, back):
            return None
        # The value exists in another layout than the sources, and is not yet computed.
        is_pending = transposed is not None and value.name not in self.emitted
        if is_pending and call.op in EXPRESSION_OPS:
            return None  # expressions read it through a permutation
        plain = self.plain(value, call)
        return self.reshaped(plain, [wide[axis] for axis in back], call)

    def _emit(
        self, call: Call, perm: Perm, inputs: tuple[Value | None, ...], attrs: OpAttrs
    ) -> None:
        """Emit the call; its outputs become transposes by `perm` of those emitted."""
        call = replace(call, inputs=inputs, attrs=attrs)
        if not is_identity(perm):
            outputs = []
            for value in call.outputs:
                shape = tuple(value.type.shape[axis] for axis in inverse(perm))
                moved = self._reshaped_value(f"{value.name}/moved", value, shape)
                self.moved[value.name] = TransposedValue(moved, perm)
                outputs.append(moved)
            call = replace(call, outputs=tuple(outputs))
        self.body.append(call)


def run(module: IRModule) -> IRModule:
    def change(function: Function, constants: dict[str, Constant]) -> Function:
        if not any(call.op == "transpose" for call in function.body):
            return function
        sunk, new_constants = _best(function, module.constants)
        constants.update(new_constants)
        return sunk

    return map_with_constants(module, change)


def _best(
    function: Function, constants: Mapping[str, Constant]
) -> tuple[Function, dict[str, Constant]]:
    """Return function and constants of the strategy that transposes fewest elements.

    Ties go to the first strategy.
    """
    names = names_of(function.params) | set(constants)
    for call in function.body:
        names |= names_of(call.outputs)
    layouts: list[tuple[int, Function, dict[str, Constant]]] = []
    for strategy in get_args(ReshapeStrategy):
        sinker = _TransposeSinker(dict(constants), set(names), strategy)
        sunk = sinker.run(function)
        # Adjacent transposes cancel or become one only in the next pass, so what it
        # leaves counts.
        moved_elements = 0
        for call in fold_transposes(sunk).body:
            if call.op == "transpose":
                moved_elements += call.outputs[0].type.elements
        layouts.append((moved_elements, sunk, sinker.constants))
    _, sunk, new_constants = min(layouts, key=lambda item: item[0])
    return sunk, new_constants


PASS = Pass("sink-transposes", run)
