"""Sweeps of one-node models: the numpy reference compared with ONNX Runtime."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import onnx
from firmwright.base.errors import FirmwrightError, InternalError, UnsupportedError
from firmwright.ir.module import IRModule
from firmwright.oracle.compare import WHOLE_MODEL, Tolerance, compare_tensor
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from onnx import TensorProto, helper, numpy_helper
from tests.onnx.backend import run_merged
from tests.onnx.test_nets import entry_of, imported, results

Array = NDArray[Any]
CODES = {
    "float32": TensorProto.FLOAT,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32,
}


@dataclass(frozen=True, slots=True)
class Case:
    """A model of one input `x`, and a sample of it."""

    name: str
    model: bytes
    x: Array


@dataclass(slots=True)
class Tally:
    """What became of the cases: compared, refused by either side, or differing."""

    tried: int = 0
    compared: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    not_run: Counter[str] = field(default_factory=Counter)
    differing: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.tried} tried, {self.compared} compared, {self.refused.total()} refused "
            f"{dict(self.refused)}, {self.not_run.total()} without a result of ONNX Runtime, "
            f"{len(self.differing)} differing {self.differing[:8]}"
        )


def one_node_model(
    op: str,
    x: Array,
    constants: Mapping[int, Array],
    opset: int,
    domain: str = "",
    **attrs: Any,
) -> bytes:
    """Return a model of one node with the inputs `x` and, by index, `constants`."""
    count = max(constants, default=0) + 1
    names = ["x", *(f"c{k}" if k in constants else "" for k in range(1, count))]
    node = helper.make_node(op, names, ["y"], domain=domain, **attrs)
    weights = [
        numpy_helper.from_array(array, f"c{k}") for k, array in constants.items()
    ]
    return whole_model([node], x, weights, opset, domain)


def whole_model(
    nodes: list[Any], x: Array, weights: list[Any], opset: int, domain: str = ""
) -> bytes:
    info = helper.make_tensor_value_info("x", CODES[x.dtype.name], x.shape)
    graph = helper.make_graph(
        nodes, "net", [info], [helper.make_empty_tensor_value_info("y")], weights
    )
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 8
    return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())


def between_quantizations(
    op: str,
    x: Array,
    constants: Mapping[int, Array],
    opset: int,
    kind: type[np.integer[Any]],
    scales: tuple[float, float],
    points: tuple[int, int],
    **attrs: Any,
) -> bytes:
    """Return a float model of the node between two pairs of quantize and dequantize.

    An int8 constant is dequantized by steps of 1/100.
    """
    weights = [
        numpy_helper.from_array(array, f"c{k}") for k, array in constants.items()
    ]
    names = [
        f"c{k}" if k in constants else ""
        for k in range(1, max(constants, default=0) + 1)
    ]
    nodes: list[Any] = []

    def scaling(which: str, scale: float, point: Any) -> list[str]:
        pair = [f"scale{which}", f"point{which}"]
        weights.append(numpy_helper.from_array(np.array(scale, np.float32), pair[0]))
        weights.append(numpy_helper.from_array(np.array(point), pair[1]))
        return pair

    def quantized(name: str, result: str, which: int) -> None:
        pair = scaling(str(which), scales[which], kind(points[which]))
        nodes.append(helper.make_node("QuantizeLinear", [name, *pair], [f"{result}_q"]))
        nodes.append(
            helper.make_node("DequantizeLinear", [f"{result}_q", *pair], [result])
        )

    quantized("x", "real", 0)
    for place, (k, array) in enumerate(constants.items()):
        if array.dtype == np.int8:
            operands = [f"c{k}", *scaling("w", 0.01, np.int8(0))]
            nodes.append(helper.make_node("DequantizeLinear", operands, [f"real{k}"]))
            names[place] = f"real{k}"
    nodes.append(helper.make_node(op, ["real", *names], ["z"], **attrs))
    quantized("z", "y", 1)
    return whole_model(nodes, x, weights, opset)


class QuantizedNode:
    """A node between quantizations with random element type, scales and zero points."""

    def __init__(
        self,
        op: str,
        rng: np.random.Generator,
        weights: Array | None = None,
        keeps_scale: bool = False,
    ) -> None:
        self.op, self.weights = op, weights
        self.kind: type[np.integer[Any]] = np.uint8 if rng.random() < 0.5 else np.int8
        lowest = 128 if self.kind == np.uint8 else 0
        first = float(rng.uniform(0.02, 0.04)), lowest + int(rng.integers(-9, 9))
        second = float(rng.uniform(0.02, 0.15)), lowest + int(rng.integers(-9, 9))
        if keeps_scale or rng.random() < 0.4:
            second = first
        self.scales, self.points = (first[0], second[0]), (first[1], second[1])

    @property
    def step(self) -> float:
        return self.scales[1]

    def model(self, x: Array, opset: int, **attrs: Any) -> bytes:
        constants = {} if self.weights is None else {1: self.weights}
        return between_quantizations(
            self.op, x, constants, opset, self.kind, self.scales, self.points, **attrs
        )


def runtime_result(case: Case) -> Array | str:
    """Return ONNX Runtime's result, or the message of its refusal."""
    try:
        (y,) = OnnxRuntimeSession(case.model, layers=False).run([case.x])
    except RuntimeError as error:
        return str(error)
    return np.asarray(y)


def import_case(case: Case) -> IRModule | str:
    """Return the imported model, or the reason of the refusal with numbers left out."""
    try:
        return imported(case.model)
    except UnsupportedError as error:
        why = "; ".join(dict.fromkeys(item.why for item in error.items))
    except InternalError:
        raise
    except FirmwrightError as error:
        why = str(error)
    return re.sub(r"-?\d+(\.\d+)?", "N", why)


def difference(expected: Array, actual: Array, tolerance: float = 0.0) -> str:
    """Describe a difference above the tolerance (0: that of `verify`), or return ""."""
    allowed = Tolerance(0.0, tolerance) if tolerance else WHOLE_MODEL
    try:
        found = compare_tensor(0, "y", expected, actual, allowed)
    except InternalError as error:
        return str(error)
    if not found.mismatches:
        return ""
    return (
        f"{found.mismatches} of {found.values} values, by at most {found.max_abs_error}"
    )


def random_array(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    if kind == "float32":
        return rng.normal(size=shape).astype(np.float32)
    low, high = (0, 256) if kind == "uint8" else (-128, 128)
    return rng.integers(low, high, shape).astype(kind)


def own_result(case: Case) -> Array:
    """Return the result of our numpy reference."""
    module = imported(case.model)
    (y,) = results(module, {entry_of(module).params[0].name: case.x}).values()
    return y


def compare_firmware(cases: Iterable[Case], board: str) -> Tally:
    """Compare with ONNX Runtime what one firmware with all supported cases returns."""
    tally, modules, samples, expected = Tally(), [], [], []
    for case in cases:
        tally.tried += 1
        module, result = import_case(case), runtime_result(case)
        if isinstance(module, str):
            tally.refused[module] += 1
        elif isinstance(result, str):
            tally.not_run[result] += 1
        elif not entry_of(module).body:
            tally.refused["nothing to compute"] += 1
        else:
            modules.append(module)
            samples.append({entry_of(module).params[0].name: case.x})
            expected.append((case.name, result))
    (values,) = run_merged(modules, [samples], board)
    for number, (module, (name, result)) in enumerate(
        zip(modules, expected, strict=True)
    ):
        tally.compared += 1
        found = difference(
            result, values[f"{number}.{entry_of(module).results[0].name}"]
        )
        if found:
            tally.differing.append(f"{name}: {found}")
    return tally


def sweep(cases: Iterable[Case], tolerance: float = 0.0) -> Tally:
    """Compare our result of each case with ONNX Runtime's.

    Without a `tolerance`, that of `verify` applies.
    """
    tally = Tally()
    for case in cases:
        tally.tried += 1
        module = import_case(case)
        expected = runtime_result(case)
        if isinstance(module, str):
            tally.refused[module] += 1
        elif isinstance(expected, str):
            tally.not_run[expected] += 1
        else:
            tally.compared += 1
            own = results(module, {entry_of(module).params[0].name: case.x})
            found = difference(
                expected, own[entry_of(module).results[0].name], tolerance
            )
            if found:
                tally.differing.append(f"{case.name}: {found}")
    return tally
