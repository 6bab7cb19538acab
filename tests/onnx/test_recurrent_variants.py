"""RNN, GRU and LSTM with all attributes and optional inputs equal ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.base.errors import FirmwrightError
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from tests.onnx.backend import run_merged
from tests.onnx.onnx_models import Net
from tests.onnx.test_nets import imported, results

Array = NDArray[Any]
CASES, DEEP_CASES, COMPARED_SHARE = 40, 1200, 0.7
STATE_MAX = 1e4
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
ACTIVATIONS = {
    "Affine": (1.3, 0.1),
    "Elu": (0.7,),
    "HardSigmoid": (0.3, 0.4),
    "LeakyRelu": (0.2,),
    "Relu": (),
    "ScaledTanh": (0.8, 1.1),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": (0.3,),
}
BOUNDED = ("HardSigmoid", "ScaledTanh", "Sigmoid", "Softsign", "Tanh")
USUAL = {
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "RNN": ("Tanh",),
}


def _activations(rng: np.random.Generator, op: str, directions: int) -> dict[str, Any]:
    if rng.random() < 0.4:
        return {}
    # Gates above 1 would let the state grow beyond the range of floats.
    firsts = BOUNDED if op != "RNN" else tuple(ACTIVATIONS)
    kinds = [firsts, *[tuple(ACTIVATIONS)] * (len(USUAL[op]) - 1)] * directions
    names = [str(rng.choice(kind)) for kind in kinds]
    alphas = [ACTIVATIONS[name][0] for name in names if ACTIVATIONS[name]]
    betas = [ACTIVATIONS[name][1] for name in names if len(ACTIVATIONS[name]) > 1]
    attrs: dict[str, Any] = {"activations": names}
    if alphas:
        attrs["activation_alpha"] = alphas
    if betas:
        attrs["activation_beta"] = betas
    return attrs


def recurrent_case(number: int) -> tuple[str, bytes, dict[str, Array]]:
    """Return a description, the model and its input."""
    rng, net = np.random.Generator(np.random.PCG64([9, number])), Net(number)
    op = str(rng.choice(list(GATES)))
    hidden, width, steps, batch = (int(rng.integers(1, n)) for n in (10, 5, 6, 4))
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    count = 2 if direction == "bidirectional" else 1
    rows = GATES[op] * hidden
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    attrs |= _activations(rng, op, count)
    if rng.random() < 0.5:
        attrs["clip"] = float(rng.choice([0.1, 0.4, 1.0, 3.0]))
    if op == "GRU" and rng.random() < 0.5:
        attrs["linear_before_reset"] = 1
    if op == "LSTM" and rng.random() < 0.3:
        attrs["input_forget"] = 1

    def optional(chance: float, *shape: int) -> str:
        return net.random(*shape) if rng.random() < chance else ""

    w, r = net.random(count, rows, width), net.random(count, rows, hidden)
    lengths = ""
    if rng.random() < 0.25:
        lengths = net.weight(rng.integers(0, steps + 1, batch).astype(np.int32))
    state = (count, batch, hidden)
    operands = [
        net.input("x", (steps, batch, width)),
        w,
        r,
        optional(0.8, count, 2 * rows),
        lengths,
        optional(0.4, *state),
    ]
    if op == "LSTM":
        operands += [optional(0.4, *state), optional(0.4, count, 3 * hidden)]
    y, *last = net.node(op, *operands, outputs=3 if op == "LSTM" else 2, **attrs)
    x = (rng.normal(size=(steps, batch, width)) * 2).astype(np.float32)
    given = [bool(name) for name in operands]
    return f"{number} {op} {attrs} {given}", net.model(y, *last), {"x": x}


def expected(model: bytes, inputs: dict[str, Array]) -> list[Array] | None:
    """Return ONNX Runtime's outputs; None if it refuses or the state grows."""
    try:
        session = OnnxRuntimeSession(model, layers=False)
        outputs = list(session.run([inputs[name] for name in session.input_names]))
    except RuntimeError:
        return None
    return outputs if all((np.abs(y) < STATE_MAX).all() for y in outputs) else None


def accepted(model: bytes) -> IRModule | None:
    try:
        return imported(model)
    except FirmwrightError:
        return None


def is_close(own: Array, reference: Array) -> bool:
    bound = 1e-4 * np.abs(reference).max(initial=0) + 1e-5
    return bool((np.abs(own - reference) <= bound).all())


def test_recurrent_layers_equal_onnx_runtime(deep: bool) -> None:
    counts: Counter[str] = Counter()
    different = []
    for number in range(DEEP_CASES if deep else CASES):
        name, model, inputs = recurrent_case(number)
        module, outputs = accepted(model), expected(model, inputs)
        counts["tried"] += 1
        counts["no reference"] += outputs is None
        counts["refused"] += module is None
        if module is None or outputs is None:
            continue
        counts["compared"] += 1
        own = results(module, inputs).values()
        if not all(is_close(a, b) for a, b in zip(own, outputs, strict=True)):
            different.append(name)
    print(dict(counts), "differing", len(different))
    assert different == []
    assert counts["compared"] >= COMPARED_SHARE * counts["tried"]


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, 120, 12))
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
        pytest.param("mps3-an547", marks=pytest.mark.qemu),
    ],
)
def test_firmware_of_recurrent_layers_equals_onnx_runtime(
    board: str, first: int
) -> None:
    cases = [recurrent_case(number) for number in range(first, first + 12)]
    rows = [(name, accepted(model), expected(model, x), x) for name, model, x in cases]
    rows = [row for row in rows if row[1] is not None and row[2] is not None]
    modules = [module for _, module, _, _ in rows if module is not None]
    (got,) = run_merged(modules, [[inputs for *_, inputs in rows]], board)
    for number, (name, module, outputs, _) in enumerate(rows):
        assert module is not None
        assert outputs is not None
        assert isinstance(module.entry, Function)
        for value, reference in zip(module.entry.results, outputs, strict=True):
            assert is_close(got[f"{number}.{value.name}"], reference), name


@pytest.mark.parametrize("clip", [0.1, 0.4])
def test_the_cell_of_an_lstm_is_not_clipped_for_the_output(clip: float) -> None:
    net = Net(3)
    w, r, b = net.random(1, 12, 2, scale=3), net.random(1, 12, 3), net.random(1, 24)
    model = net.model(
        net.node("LSTM", net.input("x", (6, 1, 2)), w, r, b, hidden_size=3, clip=clip)
    )
    x = np.random.default_rng(1).normal(size=(6, 1, 2)).astype(np.float32)
    reference = expected(model, {"x": x})
    assert reference is not None
    (own,) = results(imported(model), {"x": x}).values()
    assert is_close(own, reference[0])
