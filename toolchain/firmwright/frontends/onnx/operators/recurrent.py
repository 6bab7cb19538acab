"""RNN, GRU and LSTM unrolled in time.

The inputs of all steps are multiplied by W at once; steps share their kernels. The
number of steps is known at compile time. Source of the semantics: ONNX's RNN, GRU,
LSTM.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import FLOAT32
from firmwright.base.errors import NotSupportedError
from firmwright.base.resource_limits import RAISED_BY, scaled_limit
from firmwright.frontends.onnx.node_context import (
    ConstantValue,
    Importer,
    NodeContext,
    OnnxValue,
)
from firmwright.frontends.onnx.operators.elementwise import (
    float32_literal,
    require_float32,
)
from firmwright.frontends.onnx.operators.matmul import emit_fully_connected, emit_matmul
from firmwright.ir.graph.nodes import TensorType
from firmwright.ops.formula_texts import substitute_names

_STEPS_MAX = 512
_GATE_ACTIVATIONS = 2

# Formula of `v`, and the defaults of alpha and beta; None if ONNX states no default.
_ACTIVATIONS: Mapping[str, tuple[str, tuple[float | None, ...]]] = {
    "Relu": ("max(0.0, v)", ()),
    "Tanh": ("tanh(v)", ()),
    "Sigmoid": ("1.0 / (1.0 + exp(-v))", ()),
    "Affine": ("alpha * v + beta", (1.0, 0.0)),
    "LeakyRelu": ("where(v < 0.0, alpha * v, v)", (0.01,)),
    "ThresholdedRelu": ("where(v >= alpha, v, 0.0)", (1.0,)),
    "ScaledTanh": ("alpha * tanh(beta * v)", (None, None)),
    "HardSigmoid": ("min(1.0, max(0.0, alpha * v + beta))", (0.2, 0.5)),
    "Elu": ("where(v < 0.0, alpha * expm1(v), v)", (1.0,)),
    "Softsign": ("v / (1.0 + abs(v))", ()),
    "Softplus": ("log1p(exp(-abs(v))) + max(v, 0.0)", ()),
}


@dataclass(frozen=True, slots=True)
class _Direction:
    """Weights of one direction, [gates * hidden, ...], and activation formulas of v."""

    backwards: bool
    w: OnnxValue
    r: OnnxValue
    w_bias: OnnxValue | None
    r_bias: OnnxValue | None
    peepholes: Sequence[OnnxValue]
    formulas: tuple[str, ...]


def _formulas(
    c: NodeContext, defaults: Sequence[str], directions: int
) -> list[tuple[str, ...]]:
    """Return the activations of each direction as formulas of v.

    The arguments of those of gates are clipped; the third, an LSTM's of the cell, is of
    no gate.
    """
    names = list(c.attr("activations") or list(defaults) * directions)
    alphas = list(c.attr("activation_alpha") or ())
    betas = list(c.attr("activation_beta") or ())
    clip = c.attr("clip")
    activations = {key.lower(): row for key, row in _ACTIVATIONS.items()}
    formulas = []
    for place, name in enumerate(names):
        if name.lower() not in activations:
            raise NotSupportedError(f"the activation {name}")
        text, values = activations[name.lower()]
        arguments = zip(("alpha", "beta"), (alphas, betas), values, strict=False)
        for letter, overrides, default in arguments:
            value = overrides.pop(0) if overrides else default
            if value is None:
                raise NotSupportedError(
                    f"the activation {name} without activation_{letter}"
                )
            text = substitute_names(text, {letter: float32_literal(value)})
        if clip is not None and place % len(defaults) < _GATE_ACTIVATIONS:
            low = float32_literal(-clip)
            high = float32_literal(clip)
            text = substitute_names(text, {"v": f"min({high}, max({low}, v))"})
        formulas.append(text)
    per = len(defaults)
    return [tuple(formulas[k * per : (k + 1) * per]) for k in range(directions)]


def _directions(
    c: NodeContext, gates: int, defaults: Sequence[str]
) -> Iterator[_Direction]:
    if not len(c.shape(1)) == len(c.shape(2)) == 3:
        weights = f"{list(c.shape(1))} and {list(c.shape(2))}"
        raise NotSupportedError(f"weights {weights}, without three dimensions each")
    count, rows, hidden = c.shape(2)
    direction = c.attr("direction", "forward")
    expected = 2 if direction == "bidirectional" else 1
    if count != expected or rows != gates * hidden:
        raise NotSupportedError(f"weights {list(c.shape(2))} for direction {direction}")
    for index, formulas in enumerate(_formulas(c, defaults, count)):
        bias = c.emit.index_axis(c.input(3), 0, index) if c.has(3) else None
        w_bias = bias and c.emit.slice(bias, [0], [rows])
        r_bias = bias and c.emit.slice(bias, [rows], [rows])
        w = c.emit.index_axis(c.input(1), 0, index)
        r = c.emit.index_axis(c.input(2), 0, index)
        peepholes = []
        if c.has(7):
            whole = c.emit.index_axis(c.input(7), 0, index)
            peepholes = [c.emit.slice(whole, [k * hidden], [hidden]) for k in range(3)]
        backwards = index == 1 or direction == "reverse"
        yield _Direction(backwards, w, r, w_bias, r_bias, peepholes, formulas)


def emit_dense(
    c: NodeContext, x: OnnxValue, w: OnnxValue, bias: OnnxValue | None
) -> OnnxValue:
    if isinstance(w, ConstantValue) and isinstance(bias, ConstantValue | None):
        return emit_fully_connected(c.emit, x, w.array, w.name, bias)
    y = emit_matmul(c.emit, x, c.emit.transpose(w, (1, 0)))
    return y if bias is None else c.emit.expression("a + b", y, bias)


_Step: TypeAlias = Callable[[OnnxValue, Sequence[OnnxValue]], Sequence[OnnxValue]]
"""Function of x[t] W + b and the states; returns the next states, the output first."""


@dataclass(slots=True)
class _Recurrence:
    """A recurrent node; its state has the shape [batch, hidden]."""

    c: NodeContext
    steps: int
    batch: int
    hidden: int
    is_batch_first: bool

    def projected(self, direction: _Direction) -> list[OnnxValue]:
        c, x = self.c, self.c.input(0)
        if self.is_batch_first:
            x = c.emit.transpose(x, (1, 0, 2))
        flat = c.emit.reshape(x, (self.steps * self.batch, x.shape[2]))
        whole = emit_dense(c, flat, direction.w, direction.w_bias)
        parts: list[OnnxValue] = []
        for t in range(self.steps):
            parts.append(c.emit.slice_axis(whole, 0, t * self.batch, self.batch))
        return parts

    def initial(self, index: int, direction: int) -> OnnxValue:
        if not self.c.has(index):
            zeros = np.zeros((self.batch, self.hidden), np.float32)
            return self.c.emit.const(zeros, "zeros")
        state = self.c.input(index)
        if self.is_batch_first:
            state = self.c.emit.transpose(state, (1, 0, 2))
        first = self.c.emit.index_axis(state, 0, direction)
        mask = self.running(0)
        if mask is None:
            return first
        # ONNX Runtime's last state of a sample without steps is 0, not the initial one.
        return self.c.emit.expression("where(a, b, 0.0)", mask, first)

    def running(self, step: int) -> OnnxValue | None:
        """Return the mask of samples running at `step`, or None if all are."""
        if not self.c.has(4):
            return None
        is_running = self.c.array(4, "lengths").reshape(-1, 1) > step
        if is_running.all():
            return None
        return self.c.emit.const(is_running, "running")

    def order(self, direction: _Direction) -> range:
        if not direction.backwards:
            return range(self.steps)
        # A sample shorter than others begins at its own end: it is masked before.
        return range(self.steps)[::-1]

    def unroll(
        self,
        directions: Iterable[_Direction],
        make_step: Callable[[_Direction], _Step],
        states: int,
    ) -> list[OnnxValue]:
        """Return Y [t, d, b, h], and the last states [d, b, h]."""
        emit = self.c.emit
        outputs, last_states = [], []
        for index, direction in enumerate(list(directions)):
            state = [self.initial(5 + k, index) for k in range(states)]
            inputs = self.projected(direction)
            step = make_step(direction)
            steps: list[OnnxValue] = [state[0]] * self.steps
            for t in self.order(direction):
                following = step(inputs[t], state)
                steps[t], state = self.masked(t, following, state)
            outputs.append(steps)
            last_states.append(state)
        shape = (1, self.batch, self.hidden)
        rows = [emit.reshape(row, shape) for row in chain(*zip(*outputs, strict=True))]
        y = emit.reshape(emit.concat(rows, 0), (self.steps, len(outputs), *shape[1:]))
        results = [emit.transpose(y, (2, 0, 1, 3)) if self.is_batch_first else y]
        for parts in zip(*last_states, strict=True):
            last = emit.concat([emit.reshape(part, shape) for part in parts], 0)
            if self.is_batch_first:
                last = emit.transpose(last, (1, 0, 2))
            results.append(last)
        return results[: max(1, len(self.c.outputs))]

    def masked(
        self, step: int, following: Sequence[OnnxValue], state: Sequence[OnnxValue]
    ) -> tuple[OnnxValue, list[OnnxValue]]:
        """Return output and states: zero and the old ones for ended samples."""
        emit, mask = self.c.emit, self.running(step)
        if mask is None:
            return following[0], list(following)
        output = emit.expression("where(a, b, 0.0)", mask, following[0])
        states: list[OnnxValue] = []
        for new, old in zip(following, state, strict=True):
            states.append(emit.expression("where(a, b, c)", mask, new, old))
        return output, states


def _recurrence(c: NodeContext) -> _Recurrence:
    require_float32(c)
    is_batch_first = bool(c.attr("layout", 0))
    steps, batch = c.shape(0)[:2][:: -1 if is_batch_first else 1]
    steps_max = scaled_limit(_STEPS_MAX)
    if steps > steps_max:
        raise NotSupportedError(f"{steps} steps, more than {steps_max} ({RAISED_BY})")
    return _Recurrence(c, steps, batch, c.shape(2)[2], is_batch_first)


def _gates(c: NodeContext, z: OnnxValue, count: int) -> tuple[OnnxValue, ...]:
    rows, hidden = z.shape[0], z.shape[1] // count
    kinds = (TensorType((rows, hidden), FLOAT32),) * count
    return c.emit.split(z, 1, (hidden,) * count, kinds)


def _rnn(c: NodeContext) -> list[OnnxValue]:
    def make_step(direction: _Direction) -> _Step:
        def step(x: OnnxValue, state: Sequence[OnnxValue]) -> Sequence[OnnxValue]:
            z = emit_dense(c, state[0], direction.r, direction.r_bias)
            return [c.emit.expression(f"v = a + b; {direction.formulas[0]}", x, z)]

        return step

    return _recurrence(c).unroll(_directions(c, 1, ("Tanh",)), make_step, 1)


def _lstm(c: NodeContext) -> list[OnnxValue]:
    is_coupled = bool(c.attr("input_forget", 0))

    def make_step(direction: _Direction) -> _Step:
        f, g, h_formula = direction.formulas
        gate = output = substitute_names(f, {"v": "a"})
        forget = substitute_names(f, {"v": "b"})
        new = substitute_names(g, {"v": "c"})
        shown = substitute_names(h_formula, {"v": "b"})
        kept = f"1.0 - ({gate})" if is_coupled else forget

        def step(x: OnnxValue, state: Sequence[OnnxValue]) -> Sequence[OnnxValue]:
            h, cell = state
            z = emit_dense(c, h, direction.r, direction.r_bias)
            zi, zo, zf, zc = _gates(c, c.emit.expression("a + b", x, z), 4)
            if direction.peepholes:
                i_hole, o_hole, f_hole = direction.peepholes
                zi = c.emit.expression("a + b * c", zi, i_hole, cell)
                zf = c.emit.expression("a + b * c", zf, f_hole, cell)
            formula = f"({kept}) * d + ({gate}) * ({new})"
            cell = c.emit.expression(formula, zi, zf, zc, cell)
            if direction.peepholes:
                zo = c.emit.expression("a + b * c", zo, o_hole, cell)
            return c.emit.expression(f"({output}) * ({shown})", zo, cell), cell

        return step

    directions = _directions(c, 4, ("Sigmoid", "Tanh", "Tanh"))
    return _recurrence(c).unroll(directions, make_step, 2)


def _gru(c: NodeContext) -> list[OnnxValue]:
    recurrence = _recurrence(c)
    after = bool(c.attr("linear_before_reset", 0))
    n = recurrence.hidden

    def make_step(direction: _Direction) -> _Step:
        f, g = direction.formulas
        bias = direction.r_bias
        r_gates = c.emit.slice_axis(direction.r, 0, 0, 2 * n)
        r_hidden = c.emit.slice_axis(direction.r, 0, 2 * n, n)
        b_gates = bias and c.emit.slice_axis(bias, 0, 0, 2 * n)
        b_hidden = bias and c.emit.slice_axis(bias, 0, 2 * n, n)

        def step(x: OnnxValue, state: Sequence[OnnxValue]) -> Sequence[OnnxValue]:
            (h,) = state
            xz, xr, xh = _gates(c, x, 3)
            hz, hr = _gates(c, emit_dense(c, h, r_gates, b_gates), 2)
            update = c.emit.expression(f"v = a + b; {f}", xz, hz)
            reset = c.emit.expression(f"v = a + b; {f}", xr, hr)
            if after:
                inner = emit_dense(c, h, r_hidden, b_hidden)
                new = c.emit.expression(f"v = a + b * c; {g}", xh, reset, inner)
            else:
                kept = c.emit.expression("a * b", reset, h)
                inner = emit_dense(c, kept, r_hidden, b_hidden)
                new = c.emit.expression(f"v = a + b; {g}", xh, inner)
            return [c.emit.expression("(1.0 - a) * b + a * c", update, new, h)]

        return step

    return recurrence.unroll(_directions(c, 3, ("Sigmoid", "Tanh")), make_step, 1)


IMPORTERS: Mapping[str, Importer] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
