"""lstm: a long short-term memory layer over all time steps of its input.

Inputs: x [batch, time, inputs] (`time_major`: [time, batch, inputs]); weights [units,
inputs], recurrent weights [units, units] and bias of each gate (input, forget, cell,
output); and the state: hidden values and cells [batch, units]. Outputs: all hidden
values and the final state. `cell_clip` bounds the magnitude of cells; 0 means no bound.

    gate = W x + bias + R hidden;  i, f, o = logistic(gate), g = tanh(gate)
    cell = f cell + i g;           hidden = o tanh(cell)

int8 with int16 cells: both products of a gate are requantized to int16 with 3 integer
bits and added with saturation. LiteRT computes logistic and tanh in fixed point
(gate_functions.py) and rounds 16-bit products once; TFLM uses its table
(logistic_tanh.py) and rounds twice. int16 layers are TFLM's in both profiles, with
64-bit sums as in int16x8.py. Semantics: TFLite's and TFLM's UnidirectionalSequenceLSTM.
"""

from collections.abc import Callable, Sequence

import numpy as np

from firmwright.base import quant
from firmwright.base.dtypes import FLOAT32, INT16, INT32, INT64, UINT16, Array, DType
from firmwright.ir import tir
from firmwright.ir.graph import OpCall
from firmwright.ir.graph.attributes.recurrent import LstmAttrs
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    as_expr,
    immediate,
    maximum,
    minimum,
)
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops.gate_functions import (
    GATE_BITS,
    WITHIN_QUARTER,
    GateFunction,
    powers_within_quarter,
)
from firmwright.ops.int16x8 import (
    reduce_multiplier,
    requantize_int64,
    requantize_int64_array,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.libm_intrinsics import libm_function
from firmwright.ops.logistic_tanh import (
    centered_sigmoid_table,
    lookup_sigmoid,
    lookup_sigmoid_array,
)
from firmwright.ops.lstm_layer import (
    BIAS,
    CELL_STATE,
    GATES,
    HIDDEN_STATE,
    INPUT_WEIGHTS,
    RECURRENT_WEIGHTS,
    batch_time_inputs,
    cell_bits,
    cell_clip,
    folded_biases,
    gate_factors,
    hidden_factor,
    infer,
    litert_gap,
    macs,
    sigmoid_steps,
    uses_tflm_arithmetic,
    weights_at,
)
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import clamp, per_tensor_quant

_CELL_GATE = 2
Index = Sequence[ArithExpr]


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    time_major = call.attributes(LstmAttrs).time_major
    step = _float_step if call.input(0).dtype == FLOAT32 else _integer_step
    dtype = np.float64 if call.input(0).dtype == FLOAT32 else np.int64
    x = (np.swapaxes(arrays[0], 0, 1) if time_major else arrays[0]).astype(dtype)
    weights = [array.astype(dtype) for array in arrays[1:HIDDEN_STATE]]
    hidden, cells = (array.astype(dtype) for array in arrays[HIDDEN_STATE:])
    hidden_steps: list[Array] = []
    for t in range(x.shape[1]):
        hidden, cells = step(call, x[:, t], weights, hidden, cells)
        hidden_steps.append(hidden)
    y = np.stack(hidden_steps, axis=0 if time_major else 1)
    pairs = zip((y, hidden, cells), call.outputs, strict=True)
    return tuple(values.astype(kind.dtype.np) for values, kind in pairs)


def _float_step(
    call: OpCall, x: Array, weights: Sequence[Array], hidden: Array, cells: Array
) -> tuple[Array, Array]:
    gates: list[Array] = []
    for k in range(len(GATES)):
        product = x @ weights[k].T + weights[k + 8]
        gates.append(product + hidden @ weights[k + 4].T)
    i, f, g, o = gates
    cells = _logistic_array(f) * cells + _logistic_array(i) * np.tanh(g)
    limit = cell_clip(call)
    cells = np.clip(cells, -limit, limit) if limit else cells
    return _logistic_array(o) * np.tanh(cells), cells


def _logistic_array(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _integer_step(
    call: OpCall, x: Array, weights: Sequence[Array], hidden: Array, cells: Array
) -> tuple[Array, Array]:
    x_zero = per_tensor_quant(call.input(0)).zero_point
    zero = per_tensor_quant(call.input(HIDDEN_STATE)).zero_point
    gates: list[Array] = []
    for k in range(len(GATES)):
        input_factor, recurrent = gate_factors(call, k)
        product = (x - x_zero) @ weights[k].T + weights[k + 8]
        first = _saturated(_requantize_sum(call, product, input_factor))
        second = _requantize_sum(call, (hidden - zero) @ weights[k + 4].T, recurrent)
        second = _saturated(second) if uses_tflm_arithmetic(call) else second
        gates.append(_saturated(first + second))
    activated: list[Array] = []
    for k, value in enumerate(gates):
        activated.append(_activate(call, value, GATE_BITS, k == _CELL_GATE))
    i, f, g, o = activated
    retained = _saturated(_shift_right(call, f * cells, 15))
    added = _saturated(_shift_right(call, i * g, 15 + cell_bits(call)))
    cells = _saturated(retained + added)
    limit = cell_clip(call)
    cells = np.clip(cells, -limit, limit) if limit else cells
    hidden = o * _activate(call, cells, cell_bits(call), True)
    total = _scaled(hidden, hidden_factor(call))
    kind = call.output.dtype
    return np.clip(total + zero, kind.min, kind.max), cells


def _requantize_sum(call: OpCall, x: Array, factor: tuple[int, int]) -> Array:
    if call.input(0).dtype == INT16:
        return requantize_int64_array(x, *reduce_multiplier(*factor))
    return _scaled(x, factor)


def _scaled(x: Array, factor: tuple[int, int]) -> Array:
    return quant.multiply_by_quantized_multiplier(x, *factor, quant.Rounding.TWICE)


def _saturated(x: Array) -> Array:
    return np.asarray(np.clip(x, INT16.min, INT16.max))


def _activate(call: OpCall, x: Array, integer_bits: int, is_tanh: bool) -> Array:
    if uses_tflm_arithmetic(call):
        multiplier, right = sigmoid_steps(integer_bits)
        steps = (x * multiplier + (1 << right >> 1)) >> right
        return lookup_sigmoid_array(steps, is_tanh)
    return GateFunction(integer_bits, is_tanh).apply(x).astype(np.int64)


def _shift_right(call: OpCall, x: Array, right: int) -> Array:
    if uses_tflm_arithmetic(call):
        return _scaled(x, quant.quantize_multiplier(2.0**-right))
    return quant.rounding_divide_by_pot(x, right)


def lower(call: OpCall, b: Kernel) -> None:
    emit_steps(call, b, UnitLoops(call, b).units)


def emit_steps(
    call: OpCall, b: Kernel, emit_units: Callable[[Index, ArithExpr], None]
) -> None:
    """Emit all gates of a step before the hidden values change.

    `emit_units(at, n)` emits the units of batch `n` for row `at` of the input.
    """
    batch, time, _ = batch_time_inputs(call)
    units = call.input(HIDDEN_STATE).shape[1]
    hidden = b.outputs[1]
    copy_state(call, b)
    with b.for_("n", batch) as n, b.for_("t", time) as t:
        step = [t, n] if call.attributes(LstmAttrs).time_major else [n, t]
        emit_units(step, n)
        with b.for_("u", units) as u:
            b.store(hidden, [n, u], b.load(b.y, [*step, u]))


def copy_state(call: OpCall, b: Kernel) -> None:
    batch, units = call.input(HIDDEN_STATE).shape
    for source, target in zip((HIDDEN_STATE, CELL_STATE), b.outputs[1:], strict=True):
        with b.for_("n", batch) as n, b.for_("u", units) as u:
            b.store(target, [n, u], b.load(b.input(source), [n, u]))


def finish_float(
    call: OpCall, b: Kernel, sums: tir.Buffer, state: Index, y: Index
) -> None:
    limit = cell_clip(call)
    i, f, g, o = (b.load(sums, [k]) for k in range(len(GATES)))
    cell = _logistic(f) * b.load(b.outputs[2], state) + _logistic(i) * _tanh(g)
    if limit:
        cell = minimum(limit, maximum(-limit, cell))
    value = b.let("cell", cell)
    b.store(b.outputs[2], state, value)
    b.store(b.y, y, _logistic(o) * _tanh(value))


def sum_dtype(call: OpCall) -> DType:
    """Return the type of sums: int64 for int16, unless int32 provably suffices."""
    kind = call.input(0).dtype
    if kind != INT16:
        return FLOAT32 if kind == FLOAT32 else INT32
    reach = 0
    for gate in range(len(GATES)):
        bias = int(np.abs(weights_at(call, BIAS + gate)).max())
        first = _greatest_product(call, INPUT_WEIGHTS + gate) + bias
        reach = max(reach, first, _greatest_product(call, RECURRENT_WEIGHTS + gate))
    return INT32 if reach <= INT32.max else INT64


def _greatest_product(call: OpCall, weights: int) -> int:
    """Return the greatest sum of int16 values times the weights of input `weights`."""
    sizes = np.abs(weights_at(call, weights)).sum(axis=1)
    return int((sizes << 15).max())


class UnitBuilder:
    """Emits the end of one unit's step: integer gates, cell and hidden value."""

    def __init__(self, call: OpCall, b: Kernel) -> None:
        self.call, self.b = call, b
        self.is_real = call.input(0).dtype == FLOAT32
        self._table: tir.Buffer | None = None

    def input_steps(self, acc: ArithExpr, gate: int) -> ArithExpr:
        """Return a gate's product with x in int16 steps."""
        return _saturate(self._requantize_sum(acc, gate, is_recurrent=False))

    def gate_steps(
        self, acc: ArithExpr, gate: int, input_steps: ArithExpr
    ) -> ArithExpr:
        """Return a gate's sum; `acc` is its product with the hidden values."""
        other = self._requantize_sum(acc, gate, is_recurrent=True)
        if uses_tflm_arithmetic(self.call):
            other = _saturate(other)
        return _saturate(input_steps + other)

    def finish(self, steps: Index, state: Index, y: Index) -> None:
        """Update a unit from the sums of its gates."""
        call = self.call
        b = self.b
        bits = cell_bits(self.call)
        gates = []
        for gate, value in enumerate(steps):
            total = b.let(f"{GATES[gate]}_sum", value)
            activated = self._activate(total, GATE_BITS, gate == _CELL_GATE)
            gates.append(b.let(GATES[gate], activated))
        i, f, g, o = gates
        retained = self._shift_right(f * b.load_i32(b.outputs[2], state), 15)
        added = self._shift_right(i * g, 15 + bits)
        cell = _saturate(_saturate(retained) + _saturate(added))
        limit = int(cell_clip(call))
        if limit:
            cell = minimum(maximum(cell, -limit), limit)
        value = b.let("cell_value", cell)
        b.store(b.outputs[2], state, value.cast(INT16))
        out = o * self._activate(value, bits, True)
        scaled = _requantize_twice(out, hidden_factor(call), _PRODUCT_REACH)
        total = scaled + per_tensor_quant(call.input(HIDDEN_STATE)).zero_point
        b.store(b.y, y, clamp(total, b.y.dtype.min, b.y.dtype.max, b.y.dtype))

    def _requantize_sum(
        self, acc: ArithExpr, gate: int, *, is_recurrent: bool
    ) -> ArithExpr:
        factor = gate_factors(self.call, gate)[is_recurrent]
        if self.call.input(0).dtype == INT16:
            multiplier, right = reduce_multiplier(*factor)
            return requantize_int64(
                acc,
                ArithExpr(immediate(multiplier, INT32)),
                ArithExpr(immediate(right, INT32)),
            )
        first = RECURRENT_WEIGHTS if is_recurrent else INPUT_WEIGHTS
        sizes = np.abs(weights_at(self.call, first + gate)).sum(axis=1) << 7
        bias = np.abs(folded_biases(self.call, gate)[is_recurrent])
        return _requantize_twice(acc, factor, int((sizes + bias).max()))

    def _activate(self, x: ArithExpr, bits: int, is_tanh: bool) -> ArithExpr:
        b, is_tflm = self.b, uses_tflm_arithmetic(self.call)
        function = GateFunction(bits, is_tanh)
        if not is_tflm and not function.has_table:
            return intrinsic(function.name, [x], INT32)
        if self._table is None:
            self._table = (
                b.constant("sigmoid", centered_sigmoid_table(), INT16)
                if is_tflm
                else b.constant("powers", powers_within_quarter(), UINT16)
            )
        if is_tflm:
            multiplier, right = sigmoid_steps(bits)
            steps = x * multiplier
            if right:
                steps = (steps + (1 << (right - 1))) >> right
            return lookup_sigmoid(b, self._table, b.let("steps", steps), is_tanh)
        size = maximum(x, 0 - x) << function.distance_shift
        distance = b.let("distance", size - 1)
        place = (distance & (WITHIN_QUARTER - 1)).cast(INDEX)
        power = b.load_i32(self._table, [place])
        return intrinsic(function.table_name, [x, distance, power], INT32)

    def _shift_right(self, x: ArithExpr, right: int) -> ArithExpr:
        factor = quant.quantize_multiplier(2.0**-right)
        if uses_tflm_arithmetic(self.call):
            return _requantize_twice(x, factor, _PRODUCT_REACH)
        return (x + ((1 << (right - 1)) - (x < 0).cast(INT32))) >> right


class UnitLoops(UnitBuilder):
    """Emits all of one unit's step, in floats or integers."""

    def __init__(self, call: OpCall, b: Kernel) -> None:
        super().__init__(call, b)
        self.wide = sum_dtype(call)
        self.biases = [self._bias(gate) for gate in range(len(GATES))]

    def _bias(self, gate: int) -> tuple[tir.Buffer, tir.Buffer | None]:
        """Return the biases of both products; None means 0."""
        call = self.call
        b = self.b
        name = GATES[gate]
        if self.is_real:
            return b.input(BIAS + gate), None
        total, recurrent = folded_biases(call, gate)
        bias = b.constant(f"{name}_bias", total, self.wide)
        if not recurrent.any():
            return bias, None
        return bias, b.constant(f"{name}_recurrent_bias", recurrent, INT32)

    def units(self, at: Index, n: ArithExpr) -> None:
        with self.b.for_("u", self.call.input(HIDDEN_STATE).shape[1]) as u:
            self._unit(at, n, u)

    def _unit(self, at: Index, n: ArithExpr, u: ArithExpr) -> None:
        call, b = self.call, self.b
        sums = b.reg("sums", self.wide, len(GATES))
        for gate, (bias, _) in enumerate(self.biases):
            b.store(sums, [gate], b.load(bias, [u]))
        self.accumulate(sums, b.input(0), at, INPUT_WEIGHTS, u)
        parts = [] if self.is_real else self._input_products(sums, u)
        self.accumulate(sums, b.outputs[1], [n], RECURRENT_WEIGHTS, u)
        if self.is_real:
            finish_float(call, b, sums, [n, u], [*at, u])
        else:
            steps: list[ArithExpr] = []
            for k, part in enumerate(parts):
                steps.append(self.gate_steps(b.load(sums, [k]), k, part))
            self.finish(steps, [n, u], [*at, u])

    def accumulate(
        self, sums: tir.Buffer, x: tir.Buffer, at: Index, first: int, u: ArithExpr
    ) -> None:
        """Add the products of row `at` of `x` and the weights from input `first` on."""
        b = self.b
        weights = [b.input(first + gate) for gate in range(len(GATES))]
        with b.for_("i", x.shape[-1]) as i:
            item = b.load(x, [*at, i])
            self.add_products(sums, item, [b.load(w, [u, i]) for w in weights])

    def add_products(self, sums: tir.Buffer, item: ArithExpr, weights: Index) -> None:
        b = self.b
        narrow = FLOAT32 if self.is_real else INT32
        value = b.let("item", item.cast(narrow))
        for gate, weight in enumerate(weights):
            product = (value * weight.cast(narrow)).cast(self.wide)
            b.store(sums, [gate], b.load(sums, [gate]) + product)

    def _input_products(self, sums: tir.Buffer, u: ArithExpr) -> list[ArithExpr]:
        """Bind each gate's requantized product with x, then restart the sums."""
        b, products = self.b, []
        for gate, (_, recurrent) in enumerate(self.biases):
            steps = self.input_steps(b.load(sums, [gate]), gate)
            products.append(b.let(f"{GATES[gate]}_x", steps))
            b.store(sums, [gate], 0 if recurrent is None else b.load(recurrent, [u]))
        return products


_PRODUCT_REACH = INT16.max << 15
"""The greatest magnitude of the product of a gate and an int16 value."""


def _requantize_twice(x: ArithExpr, factor: tuple[int, int], reach: int) -> ArithExpr:
    """Return x times a factor, rounded twice; |x| is at most `reach`."""
    multiplier, shift = factor
    left = max(shift, 0) + 1
    if reach << left > INT32.max:
        return intrinsic("requantize_twice", [x, *factor], INT32)
    doubled: list[ArithExpr | int] = [x * (1 << left), multiplier, max(-shift, 0)]
    return intrinsic("requantize_doubled", doubled, INT32)


def _saturate(x: ArithExpr) -> ArithExpr:
    return minimum(maximum(x, INT16.min), INT16.max)


_tanh = libm_function("tanh")


def _logistic(x: ArithExpr) -> ArithExpr:
    power = intrinsic("exp_f32", [x * -1.0], FLOAT32)
    return ArithExpr(as_expr(1.0, FLOAT32)) / (power + 1.0)


OPDEF = OpDef(
    "lstm",
    infer,
    reference,
    lower,
    macs=macs,
    litert_gap=litert_gap,
)
