"""RNN, GRU and LSTM unrolled in time.

The inputs of all steps are multiplied at once; steps share their kernels. The number of steps is
known at compile time. Source of the semantics: ONNX's RNN, GRU, LSTM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.onnx.call_emitter import ConstantValue, OnnxValue, shape_of
from firmwright.frontends.onnx.node_context import Importer, NodeContext
from firmwright.frontends.onnx.operators.elementwise import float32_literal, require_float32
from firmwright.frontends.onnx.operators.matmul import emit_fully_connected, emit_matmul
from firmwright.ir.graph.nodes import TensorType
from firmwright.ops.expression_language import substitute_names

_STEPS_MAX = 512

# Formula of `v`, defaults of alpha and beta where it has them.
_ACTIVATIONS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "Relu": ("max(v, 0.0)", ()),
    "Tanh": ("tanh(v)", ()),
    "Sigmoid": ("1.0 / (1.0 + exp(-v))", ()),
    "Affine": ("alpha * v + beta", (1.0, 0.0)),
    "LeakyRelu": ("where(v < 0.0, alpha * v, v)", (0.01,)),
    "ThresholdedRelu": ("where(v >= alpha, v, 0.0)", (1.0,)),
    "ScaledTanh": ("alpha * tanh(beta * v)", (1.0, 1.0)),
    "HardSigmoid": ("min(max(alpha * v + beta, 0.0), 1.0)", (0.2, 0.5)),
    "Elu": ("where(v < 0.0, alpha * expm1(v), v)", (1.0,)),
    "Softsign": ("v / (1.0 + abs(v))", ()),
    "Softplus": ("log1p(exp(-abs(v))) + max(v, 0.0)", ()),
}


@dataclass(frozen=True, slots=True)
class _Direction:
    """Weights of one direction, [gates * hidden, ...], and its activations as expressions of v."""

    backwards: bool
    w: OnnxValue
    r: OnnxValue
    w_bias: OnnxValue | None
    r_bias: OnnxValue | None
    formulas: tuple[str, ...]


def _formulas(c: NodeContext, defaults: Sequence[str], directions: int) -> list[tuple[str, ...]]:
    names = list(c.attr("activations") or list(defaults) * directions)
    alphas, betas = list(c.attr("activation_alpha") or ()), list(c.attr("activation_beta") or ())
    clip = c.attr("clip")
    formulas = []
    for name in names:
        activations = {key.lower(): row for key, row in _ACTIVATIONS.items()}
        if name.lower() not in activations:
            raise NotSupportedError(f"the activation {name}")
        text, values = activations[name.lower()]
        parameters = [
            overrides.pop(0) if overrides else default
            for overrides, default in zip((alphas, betas), values, strict=False)
        ]
        for letter, value in zip(("alpha", "beta"), parameters, strict=False):
            text = substitute_names(text, {letter: float32_literal(value)})
        if clip is not None:
            text = substitute_names(
                text, {"v": f"min(max(v, {float32_literal(-clip)}), {float32_literal(clip)})"}
            )
        formulas.append(text)
    per = len(defaults)
    return [tuple(formulas[k * per : (k + 1) * per]) for k in range(directions)]


def _directions(c: NodeContext, gates: int, defaults: Sequence[str]) -> list[_Direction]:
    w, r = c.input(1), c.input(2)
    count, rows, hidden = shape_of(r)
    direction = c.attr("direction", "forward")
    if count != (2 if direction == "bidirectional" else 1) or rows != gates * hidden:
        raise NotSupportedError(f"weights {list(shape_of(r))} for direction {direction}")
    formulas = _formulas(c, defaults, count)
    directions = []
    for index in range(count):
        bias = _index_first_axis(c, c.input(3), index) if c.has(3) else None
        w_bias, r_bias = (
            None if bias is None else c.emit.slice(bias, [k * rows], [rows]) for k in (0, 1)
        )
        backwards = index == 1 or direction == "reverse"
        directions.append(
            _Direction(
                backwards,
                _index_first_axis(c, w, index),
                _index_first_axis(c, r, index),
                w_bias,
                r_bias,
                formulas[index],
            )
        )
    return directions


def _index_first_axis(c: NodeContext, tensor: OnnxValue, index: int) -> OnnxValue:
    shape = shape_of(tensor)
    begin = [index, *(0,) * (len(shape) - 1)]
    return c.emit.reshape(c.emit.slice(tensor, begin, (1, *shape[1:])), shape[1:])


def emit_dense(c: NodeContext, x: OnnxValue, w: OnnxValue, bias: OnnxValue | None) -> OnnxValue:
    if isinstance(w, ConstantValue) and (bias is None or isinstance(bias, ConstantValue)):
        return emit_fully_connected(c.emit, x, w.array, w.name, bias)
    y = emit_matmul(c.emit, x, c.emit.transpose(w, (1, 0)))
    return y if bias is None else c.emit.expression("a + b", y, bias)


@dataclass(slots=True)
class _RecurrentInputs:
    """Inputs by step, initial states, and the mask of samples that are still running."""

    c: NodeContext
    steps: int
    batch: int
    hidden: int
    is_batch_first: bool

    def projected(self, direction: _Direction) -> list[OnnxValue]:
        """Return x[t] W + b for every step."""
        c, x = self.c, self.c.input(0)
        if self.is_batch_first:
            x = c.emit.transpose(x, (1, 0, 2))
        size = shape_of(x)[2]
        rows = shape_of(direction.w)[0]
        flat = c.emit.reshape(x, (self.steps * self.batch, size))
        whole = emit_dense(c, flat, direction.w, direction.w_bias)
        return [
            c.emit.slice(whole, [t * self.batch, 0], [self.batch, rows]) for t in range(self.steps)
        ]

    def initial(self, index: int, direction: int) -> OnnxValue:
        shape = (self.batch, self.hidden)
        if not self.c.has(index):
            return self.c.emit.const(np.zeros(shape, np.float32), "zeros")
        state = self.c.input(index)
        if self.is_batch_first:
            state = self.c.emit.transpose(state, (1, 0, 2))
        return _index_first_axis(self.c, state, direction)

    def running(self, step: int) -> OnnxValue | None:
        """Return the mask of samples that have not ended at `step`, or None if all are running."""
        if not self.c.has(4):
            return None
        lengths = self.c.array(4, "lengths").reshape(-1)
        if (lengths > step).all():
            return None
        return self.c.emit.const((lengths > step).reshape(-1, 1), "running")

    def order(self, direction: _Direction) -> list[int]:
        if direction.backwards and self.c.has(4):
            lengths = self.c.array(4, "lengths").reshape(-1)
            if (lengths != self.steps).any():
                raise NotSupportedError("lengths with the reverse direction")
        return list(range(self.steps))[:: -1 if direction.backwards else 1]

    def select(self, mask: OnnxValue | None, new: OnnxValue, old: OnnxValue) -> OnnxValue:
        return new if mask is None else self.c.emit.expression("where(a, b, c)", mask, new, old)


def _read_inputs(c: NodeContext) -> _RecurrentInputs:
    require_float32(c)
    first = bool(c.attr("layout", 0))
    steps, batch, _ = c.shape(0) if not first else (c.shape(0)[1], c.shape(0)[0], 0)
    if steps > _STEPS_MAX:
        raise NotSupportedError(f"{steps} steps, more than {_STEPS_MAX}")
    return _RecurrentInputs(c, steps, batch, shape_of(c.input(2))[2], first)


def _results(
    recurrence: _RecurrentInputs,
    outputs: Sequence[Sequence[OnnxValue]],
    states: Sequence[Sequence[OnnxValue]],
) -> list[OnnxValue]:
    """Return Y [t, d, b, h] from each direction's steps, and the last states [d, b, h]."""
    c, results = recurrence.c, []
    rows = []
    for step in range(recurrence.steps):
        for direction in outputs:
            rows.append(c.emit.reshape(direction[step], (1, recurrence.batch, recurrence.hidden)))
    count = len(outputs)
    y = c.emit.concat(rows, 0)
    y = c.emit.reshape(y, (recurrence.steps, count, recurrence.batch, recurrence.hidden))
    results.append(c.emit.transpose(y, (2, 0, 1, 3)) if recurrence.is_batch_first else y)
    for state in states:
        parts = [c.emit.reshape(item, (1, recurrence.batch, recurrence.hidden)) for item in state]
        last = c.emit.concat(parts, 0)
        results.append(c.emit.transpose(last, (1, 0, 2)) if recurrence.is_batch_first else last)
    return results[: max(1, len(c.outputs))]


def _gates(c: NodeContext, z: OnnxValue, count: int) -> tuple[OnnxValue, ...]:
    rows, hidden = shape_of(z)[0], shape_of(z)[1] // count
    kinds = (TensorType((rows, hidden), FLOAT32),) * count
    return c.emit.multi_result_call("split", [z], {"axis": 1, "sizes": (hidden,) * count}, kinds)


def _rnn(c: NodeContext) -> list[OnnxValue]:
    recurrence = _read_inputs(c)
    outputs, states = [], []
    for index, direction in enumerate(_directions(c, 1, ("Tanh",))):
        h, inputs = recurrence.initial(5, index), recurrence.projected(direction)
        steps: list[OnnxValue] = [h] * recurrence.steps
        formula = f"v = a + b; {direction.formulas[0]}"
        for step in recurrence.order(direction):
            z = emit_dense(c, h, direction.r, direction.r_bias)
            mask = recurrence.running(step)
            new = c.emit.expression(formula, inputs[step], z)
            steps[step] = new if mask is None else c.emit.expression("where(a, b, 0.0)", mask, new)
            h = recurrence.select(mask, new, h)
        outputs.append(steps)
        states.append(h)
    return _results(recurrence, outputs, [states])


def _lstm(c: NodeContext) -> list[OnnxValue]:
    if c.attr("input_forget", 0):
        raise NotSupportedError("coupled input and forget gates")
    recurrence = _read_inputs(c)
    outputs, last_h, last_c = [], [], []
    for index, direction in enumerate(_directions(c, 4, ("Sigmoid", "Tanh", "Tanh"))):
        f, g, h_formula = direction.formulas
        peepholes = _peepholes(c, recurrence, index)
        h, cell = recurrence.initial(5, index), recurrence.initial(6, index)
        inputs, steps = recurrence.projected(direction), [h] * recurrence.steps
        for step in recurrence.order(direction):
            z = emit_dense(c, h, direction.r, direction.r_bias)
            mask = recurrence.running(step)
            zi, zo, zf, zc = _gates(c, c.emit.expression("a + b", inputs[step], z), 4)
            if peepholes:
                zi, zf = (
                    c.emit.expression("a + b * c", gate, hole, cell)
                    for gate, hole in ((zi, peepholes[0]), (zf, peepholes[2]))
                )
            gate, forget, new = (
                _substitute_v(text, name) for text, name in ((f, "a"), (f, "b"), (g, "c"))
            )
            next_cell = c.emit.expression(f"({forget}) * d + ({gate}) * ({new})", zi, zf, zc, cell)
            if peepholes:
                zo = c.emit.expression("a + b * c", zo, peepholes[1], next_cell)
            formula = f"({_substitute_v(f, 'a')}) * ({_substitute_v(h_formula, 'b')})"
            out = c.emit.expression(formula, zo, next_cell)
            steps[step] = out if mask is None else c.emit.expression("where(a, b, 0.0)", mask, out)
            h, cell = recurrence.select(mask, out, h), recurrence.select(mask, next_cell, cell)
        outputs.append(steps)
        last_h.append(h)
        last_c.append(cell)
    return _results(recurrence, outputs, [last_h, last_c])


def _substitute_v(formula: str, name: str) -> str:
    return substitute_names(formula, {"v": name})


def _peepholes(c: NodeContext, recurrence: _RecurrentInputs, index: int) -> list[OnnxValue]:
    if not c.has(7):
        return []
    whole = _index_first_axis(c, c.input(7), index)
    return [c.emit.slice(whole, [k * recurrence.hidden], [recurrence.hidden]) for k in range(3)]


def _gru(c: NodeContext) -> list[OnnxValue]:
    recurrence, after = _read_inputs(c), bool(c.attr("linear_before_reset", 0))
    outputs, states = [], []
    for index, direction in enumerate(_directions(c, 3, ("Sigmoid", "Tanh"))):
        f, g = direction.formulas
        h, inputs = recurrence.initial(5, index), recurrence.projected(direction)
        steps: list[OnnxValue] = [h] * recurrence.steps
        n = recurrence.hidden
        r_gates, r_hidden = (
            c.emit.slice(direction.r, [first, 0], [rows, n])
            for first, rows in ((0, 2 * n), (2 * n, n))
        )
        b_gates, b_hidden = (
            None if direction.r_bias is None else c.emit.slice(direction.r_bias, [first], [rows])
            for first, rows in ((0, 2 * n), (2 * n, n))
        )
        for step in recurrence.order(direction):
            xz, xr, xh = _gates(c, inputs[step], 3)
            hz, hr = _gates(c, emit_dense(c, h, r_gates, b_gates), 2)
            update = c.emit.expression(f"v = a + b; {f}", xz, hz)
            reset = c.emit.expression(f"v = a + b; {f}", xr, hr)
            if after:
                inner = emit_dense(c, h, r_hidden, b_hidden)
                new = c.emit.expression(f"v = a + b * c; {g}", xh, reset, inner)
            else:
                inner = emit_dense(c, c.emit.expression("a * b", reset, h), r_hidden, b_hidden)
                new = c.emit.expression(f"v = a + b; {g}", xh, inner)
            mask = recurrence.running(step)
            out = c.emit.expression("(1.0 - a) * b + a * c", update, new, h)
            steps[step] = out if mask is None else c.emit.expression("where(a, b, 0.0)", mask, out)
            h = recurrence.select(mask, out, h)
        outputs.append(steps)
        states.append(h)
    return _results(recurrence, outputs, [states])


IMPORTERS: Mapping[str, Importer] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
