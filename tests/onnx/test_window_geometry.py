"""Convolutions and pools place their windows as ONNX Runtime does, or are refused.

All of `auto_pad`, pads, strides, dilations, `ceil_mode`, `count_include_pad`,
`output_padding` and `output_shape`, along one to three axes, in floats and integers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.onnx.geometry_sweep import (
    Array,
    Case,
    QuantizedNode,
    compare_firmware,
    import_case,
    one_node_model,
    own_result,
    random_array,
    runtime_result,
    sweep,
)

GATE_CASES, DEEP_CASES, FIRMWARE_CASES, DEEP_IMAGES = 130, 3900, 13, 10
CONVOLUTIONS = ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "quantized Conv")
POOLS = (
    "AveragePool",
    "MaxPool",
    "LpPool",
    "MaxPool of integers",
    "quantized AveragePool",
    "quantized MaxPool",
    "QLinearAveragePool",
    "global",
)
OPERATORS = (*CONVOLUTIONS, *POOLS)
REFUSALS = {
    "a kernel larger than the padded input",
    "a window, stride, dilation or output below N",
    "an output without elements",
    "a tensor without elements",
    "a window that covers padding only",
    *(
        f"auto_pad {auto} with a stride of N for windows of N elements, which ONNX Runtime places "
        "otherwise than ONNX; state pads"
        for auto in ("SAME_UPPER", "SAME_LOWER")
    ),
    *(
        f"auto_pad {auto} with a stride of N for windows of N elements, which ONNX Runtime "
        "refuses; state pads"
        for auto in ("SAME_UPPER", "SAME_LOWER")
    ),
    "an output_shape of N elements, where the input has at most N",
}
NOT_RUN = (
    "Dilation not supported for AutoPadType",
    "Computed output shape is inconsistent",
    "Pad should be smaller than kernel",
    "invalid model",
)
"""What ONNX Runtime says of models that it does not run."""


@dataclass
class WindowMaker:
    """Draws the geometry of one operator; `attrs` are its attributes."""

    rng: np.random.Generator
    op: str
    opset: int
    attrs: dict[str, Any] = field(default_factory=dict)
    sizes: list[int] = field(init=False)
    kernel: list[int] = field(init=False)
    strides: list[int] = field(init=False)
    dilations: list[int] = field(init=False)

    def __post_init__(self) -> None:
        rng, rank = self.rng, int(self.rng.choice([1, 2, 2, 3]))
        self.sizes = rng.integers(1, 13, rank).tolist()
        self.kernel = rng.integers(1, 5, rank).tolist()
        self.strides = (
            rng.integers(1, 6, rank).tolist() if rng.random() < 0.8 else [1] * rank
        )
        is_dilated = self.has_dilations and rng.random() < 0.35
        self.dilations = rng.integers(1, 4, rank).tolist() if is_dilated else [1] * rank
        self.attrs["strides"] = self.strides
        if is_dilated:
            self.attrs["dilations"] = self.dilations
        if self.op in POOLS:
            self.attrs["kernel_shape"] = self.kernel
        self.add_padding()

    @property
    def has_dilations(self) -> bool:
        match self.op.split()[-1]:
            case "AveragePool":
                return self.opset >= 19 and self.op == "AveragePool"
            case "QLinearAveragePool":
                return False
            case "LpPool":
                return self.opset >= 18
        return True

    def add_padding(self) -> None:
        rng, attrs = self.rng, self.attrs
        how = rng.choice(["none", "pads", "auto", "auto"])
        if how == "pads":
            # Pools refuse pads as large as the window; convolutions do not.
            most = [size if self.op in POOLS else 2 * size for size in self.kernel]
            attrs["pads"] = [int(rng.integers(0, n)) for _ in range(2) for n in most]
        elif how == "auto":
            modes = ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"]
            attrs["auto_pad"] = str(rng.choice(modes))
        if self.op not in POOLS:
            return
        if rng.random() < 0.4 and (self.op != "LpPool" or self.opset >= 18):
            attrs["ceil_mode"] = 1
        if self.op.endswith("AveragePool"):
            attrs["count_include_pad"] = int(rng.integers(2))
        if self.op == "LpPool":
            attrs["p"] = int(rng.integers(1, 4))

    def add_transposed_output(self) -> None:
        rng, attrs = self.rng, self.attrs
        rows = list(
            zip(self.sizes, self.kernel, self.strides, self.dilations, strict=True)
        )
        if rng.random() < 0.4:
            attrs["output_padding"] = [
                int(rng.integers(0, max(s, d))) for *_, s, d in rows
            ]
        if rng.random() < 0.3:
            full = [(n - 1) * s + (k - 1) * d + 1 for n, k, s, d in rows]
            attrs["output_shape"] = [max(1, n - int(rng.integers(0, 3))) for n in full]
            attrs.pop("pads", None)

    def convolution(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of input and weights."""
        group = int(self.rng.choice([1, 1, 2, 3]))
        channels, filters = int(self.rng.integers(1, 3)), int(self.rng.integers(1, 3))
        if group > 1:
            self.attrs["group"] = group
        shape = (1, channels * group, *self.sizes)
        if self.op == "ConvTranspose":
            self.add_transposed_output()
            return shape, (channels * group, filters, *self.kernel)
        return shape, (filters * group, channels, *self.kernel)


def window_case(seed: int) -> Case:
    rng = np.random.Generator(np.random.PCG64(seed))
    op, opset = OPERATORS[seed % len(OPERATORS)], int(rng.choice([11, 13, 18, 19, 22]))
    maker = WindowMaker(rng, op, opset)
    make = convolution_model if op in CONVOLUTIONS else pool_model
    model, x = make(maker)
    return Case(
        f"{seed}: {op}, opset {opset}, {list(x.shape)}, {maker.attrs}", model, x
    )


def convolution_model(maker: WindowMaker) -> tuple[bytes, Array]:
    rng, op = maker.rng, maker.op
    shape, w_shape = maker.convolution()
    if op in ("Conv", "ConvTranspose"):
        x, w = (random_array(rng, item, "float32") for item in (shape, w_shape))
        return one_node_model(op, x, {1: w}, maker.opset, **maker.attrs), x
    w = random_array(rng, w_shape, "int8")
    if op == "quantized Conv":
        x = random_array(rng, shape, "float32")
        node = QuantizedNode("Conv", rng, weights=w)
        return node.model(x, maker.opset, **maker.attrs), x
    x = random_array(rng, shape, "uint8")
    constants: dict[int, Array] = {1: w, 2: np.array(7, np.uint8)}
    if op == "QLinearConv":
        point, steps = np.array(113, np.uint8), np.array([0.02, 0.01, 0.15], np.float32)
        zero = np.array(0, np.int8)
        constants = {
            1: steps[0],
            2: point,
            3: w,
            4: steps[1],
            5: zero,
            6: steps[2],
            7: point,
        }
    return one_node_model(op, x, constants, maker.opset, **maker.attrs), x


def pool_model(maker: WindowMaker) -> tuple[bytes, Array]:
    rng, op, attrs = maker.rng, maker.op, maker.attrs
    shape = (1, int(rng.integers(1, 4)), *maker.sizes)
    x = random_array(rng, shape, "float32")
    match op:
        case "MaxPool of integers":
            x = random_array(rng, shape, str(rng.choice(["int8", "uint8"])))
            return one_node_model("MaxPool", x, {}, max(maker.opset, 12), **attrs), x
        case "QLinearAveragePool":
            x = random_array(rng, shape, "uint8")
            point, steps = np.array(120, np.uint8), np.array([0.03, 0.02], np.float32)
            constants = {1: steps[0], 2: point, 3: steps[1], 4: point}
            domain = "com.microsoft"
            return one_node_model(
                op, x, constants, maker.opset, domain=domain, **attrs
            ), x
        case "global":
            kind = str(rng.choice(["Average", "Max", "Lp"]))
            return one_node_model(f"Global{kind}Pool", x, {}, min(maker.opset, 19)), x
        case "quantized AveragePool" | "quantized MaxPool":
            name = op.split()[1]
            node = QuantizedNode(name, rng, keeps_scale=name == "MaxPool")
            return node.model(x, maker.opset, **attrs), x
    return one_node_model(op, x, {}, maker.opset, **attrs), x


def check_sweep(count: int) -> None:
    tally = sweep(map(window_case, range(count)))
    print(tally)
    assert tally.differing == []
    assert tally.refused.keys() <= REFUSALS, tally
    assert all(any(known in why for known in NOT_RUN) for why in tally.not_run), tally
    assert tally.compared >= 0.7 * tally.tried, tally


def test_windows_equal_onnx_runtime() -> None:
    check_sweep(GATE_CASES)


@pytest.mark.deep
def test_thousands_of_windows_equal_onnx_runtime() -> None:
    check_sweep(DEEP_CASES)


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("mps3-an547", marks=[pytest.mark.qemu, pytest.mark.deep]),
    ],
)
def test_firmware_of_windows_equals_onnx_runtime(board: str, deep: bool) -> None:
    for image in range(DEEP_IMAGES if deep else 1):
        first = image * FIRMWARE_CASES
        tally = compare_firmware(
            map(window_case, range(first, first + FIRMWARE_CASES)), board
        )
        print(board, tally)
        assert tally.differing == []
        assert tally.compared >= 0.4 * tally.tried


# ---- each way in which values or shapes were wrong -----------------------------------


def line(length: int) -> Array:
    return np.arange(1, length + 1, dtype=np.float32).reshape(1, 1, length)


def checked(op: str, length: int, *weights: float, **attrs: Any) -> list[float]:
    """Return our result for the input 1, 2, 3..., which equals ONNX Runtime's."""
    constants = {1: np.array(weights, np.float32).reshape(1, 1, -1)} if weights else {}
    case = Case(
        "", one_node_model(op, line(length), constants, 22, **attrs), line(length)
    )
    tally = sweep([case])
    assert (tally.compared, tally.differing) == (1, []), tally
    return [float(value) for value in own_result(case).reshape(-1)]


@pytest.mark.parametrize(
    ("auto", "expected"),
    [
        ("SAME_UPPER", [1, 12, 23]),
        ("SAME_LOWER", [12, 23, 30]),
    ],
)
def test_a_transposed_convolution_crops_the_odd_element(
    auto: str, expected: list[float]
) -> None:
    assert checked("ConvTranspose", 3, 1, 10, auto_pad=auto) == expected


def test_a_transposed_convolution_has_no_more_outputs_than_products_reach() -> None:
    """ONNX says 3 * 4 = 12, but the products of a kernel of 1 reach only 9."""
    assert len(checked("ConvTranspose", 3, 1, auto_pad="SAME_UPPER", strides=[4])) == 9


def test_a_dilated_pool_is_padded_as_if_it_were_not_dilated() -> None:
    attrs = {"kernel_shape": [3], "dilations": [2], "auto_pad": "SAME_UPPER"}
    assert checked("MaxPool", 6, **attrs) == [4, 5, 6, 5]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_stride_that_passes_over_elements_is_refused_with_auto_pad(op: str) -> None:
    model = one_node_model(
        op, line(4), {}, 22, kernel_shape=[2], strides=[5], auto_pad="SAME_UPPER"
    )
    assert import_case(Case("", model, line(4))) in REFUSALS


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
def test_a_max_pool_with_negative_padding_is_refused(auto: str) -> None:
    attrs: dict[str, Any] = {"kernel_shape": [1], "strides": [2], "auto_pad": auto}
    case = Case("", one_node_model("MaxPool", line(4), {}, 22, **attrs), line(4))
    assert "padding values must be non-negative" in str(runtime_result(case))
    assert "which ONNX Runtime refuses" in str(import_case(case))
    assert checked("AveragePool", 4, **attrs) == [1, 3]


@pytest.mark.parametrize("auto", ["SAME_UPPER", "NOTSET"])
def test_an_output_shape_of_a_larger_input_is_refused(auto: str) -> None:
    """Two elements with a stride of 3 give at most 3 + 2 + 2; the last ones are 0."""
    attrs: dict[str, Any] = {"strides": [3], "auto_pad": auto}
    assert checked("ConvTranspose", 2, 1, 10, output_shape=[7], **attrs) == [
        1,
        10,
        0,
        2,
        20,
        0,
        0,
    ]
    constants = {1: np.array([[[1, 10]]], np.float32)}
    model = one_node_model(
        "ConvTranspose", line(2), constants, 22, output_shape=[8], **attrs
    )
    case = Case("", model, line(2))
    assert "inconsistent" in str(runtime_result(case))
    assert import_case(case) in REFUSALS


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_window_of_padding_only_is_refused(op: str) -> None:
    attrs = {"kernel_shape": [2], "dilations": [3], "strides": [3], "pads": [1, 1]}
    model = one_node_model(op, line(2), {}, 22, **attrs)
    assert import_case(Case("", model, line(2))) == "a window that covers padding only"


def test_quantized_transposed_convolutions_are_within_a_step_of_onnx_runtime() -> None:
    """It adds floats in an order of its own, which decides ties."""
    rng = np.random.Generator(np.random.PCG64(6))
    compared = 0
    for auto in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        for stride in (1, 2, 3):
            x, w = (
                random_array(rng, (1, 3, 5, 6), "float32"),
                random_array(rng, (3, 2, 2, 3), "int8"),
            )
            node = QuantizedNode("ConvTranspose", rng, weights=w)
            model = node.model(x, 13, auto_pad=auto, strides=[stride, 1])
            compared += sweep(
                [Case(auto, model, x)], tolerance=node.step * 1.01
            ).compared
    assert compared == 9
