"""Recurrent layers; the gates are reordered from PyTorch's to ONNX's sequence."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.pytorch.operators.shapes import slice_axis, transpose
from firmwright.frontends.pytorch.translation import NodeTranslation, Translator

_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
"""For each gate of ONNX, its place in PyTorch's sequence."""


def _ordered(t: NodeTranslation, op: str, x: str, hidden: int) -> str:
    """Return weights or a bias with the gates in ONNX's order."""
    order = _GATES[op]
    if order == (0,):
        return x
    rows = np.concatenate([np.arange(hidden) + gate * hidden for gate in order])
    return t.emit("Gather", x, rows.astype(np.int64), axis=0)


def _layer(op: str, activation: str, t: NodeTranslation) -> Sequence[str]:
    if t.arg("train", False) and t.arg("dropout", 0.0) and t.arg("num_layers") > 1:
        raise NotSupportedError(
            "dropout of a model in training mode; call model.eval() first"
        )
    if "input" not in t.node.args or "params" not in t.node.args:
        raise NotSupportedError("packed sequences")
    params = t.tensors("params")
    has_biases = bool(t.arg("has_biases", True))
    directions = 2 if t.arg("bidirectional", False) else 1
    states = t.tensors("hx") if op == "LSTM" else [t.tensor("hx")]
    hidden = t.output_shape(1)[-1]
    per = 4 if has_biases else 2
    layers = t.arg("num_layers", 1)
    if len(params) != per * directions * layers:
        raise NotSupportedError("a recurrent layer with a projection")
    x = t.tensor("input")
    batch_first = bool(t.arg("batch_first", False))
    if batch_first:
        x = transpose(t, x, [1, 0, 2])
    steps, batch = t.shape("input")[:2][:: -1 if batch_first else 1]
    lasts: list[list[str]] = [[] for _ in states]
    for layer in range(layers):
        first = layer * directions * per
        sets: list[list[str]] = []
        for start in range(first, first + directions * per, per):
            sets.append(params[start : start + per])
        part = slice(layer * directions, (layer + 1) * directions)
        own = [slice_axis(t, s, 0, part.start, part.stop) for s in states]
        y, *last = _emit_layer(op, activation, t, x, sets, own, hidden)
        for states_of_layers, state in zip(lasts, last, strict=True):
            states_of_layers.append(state)
        rows = transpose(t, y, [0, 2, 1, 3])
        x = t.reshape(rows, (steps, batch, directions * hidden))
    finals = [_joined(t, parts) for parts in lasts]
    return [transpose(t, x, [1, 0, 2]) if batch_first else x, *finals]


def _joined(t: NodeTranslation, rows: Sequence[str]) -> str:
    return rows[0] if len(rows) == 1 else t.emit("Concat", *rows, axis=0)


def _emit_layer(
    op: str,
    activation: str,
    t: NodeTranslation,
    x: str,
    sets: Sequence[Sequence[str]],
    states: Sequence[str],
    hidden: int,
) -> tuple[str, ...]:
    """Emit one layer with (weights, recurrent weights, biases) per direction."""

    def stacked(parts: Sequence[str], shape: Sequence[int]) -> str:
        return _joined(t, [t.reshape(part, (1, *shape)) for part in parts])

    gates = len(_GATES[op]) * hidden
    ordered = [[_ordered(t, op, part, hidden) for part in row] for row in sets]
    weights = stacked([row[0] for row in ordered], (gates, -1))
    recurrent = stacked([row[1] for row in ordered], (gates, hidden))
    bias = ""
    if len(sets[0]) == 4:
        pairs = [t.emit("Concat", row[2], row[3], axis=0) for row in ordered]
        bias = stacked(pairs, (2 * gates,))
    attrs = {
        "hidden_size": hidden,
        "direction": "bidirectional" if len(sets) == 2 else "forward",
        "activations": (activation,) * len(sets) if activation else None,
        "linear_before_reset": 1 if op == "GRU" else None,
    }
    inputs = (x, weights, recurrent, bias, "", *states)
    return t.emit_all(op, 1 + len(states), *inputs, **attrs)


def _cell(op: str, activation: str, t: NodeTranslation) -> Sequence[str]:
    states = t.tensors("hx") if op == "LSTM" else [t.tensor("hx")]
    batch, hidden = t.output_shape()
    names = ("w_ih", "w_hh", "b_ih", "b_hh")
    params = [t.tensor(name) for name in names if t.has(name)]
    x = t.reshape(t.tensor("input"), (1, batch, -1))
    wide = [t.reshape(state, (1, batch, hidden)) for state in states]
    _, *last = _emit_layer(op, activation, t, x, [params], wide, hidden)
    return [t.reshape(state, (batch, hidden)) for state in last]


TRANSLATORS: dict[str, Translator] = {}
for _name, _op, _activation in (
    ("gru", "GRU", ""),
    ("lstm", "LSTM", ""),
    ("rnn_relu", "RNN", "Relu"),
    ("rnn_tanh", "RNN", "Tanh"),
):
    TRANSLATORS[_name] = partial(_layer, _op, _activation)
    TRANSLATORS[f"{_name}_cell"] = partial(_cell, _op, _activation)
