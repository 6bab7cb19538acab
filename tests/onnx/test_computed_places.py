"""Operators at places computed at run time, and Col2Im, equal ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX needs the package onnx")
pytest.importorskip("onnxruntime", reason="the expected values come from ONNX Runtime")

from onnx.reference import ReferenceEvaluator

import onnx
from firmwright.base.errors import UnsupportedError
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from onnx import TensorProto
from tests.onnx.backend import run_merged
from tests.onnx.onnx_models import Array, Net
from tests.onnx.test_nets import imported, results

CASES = 12
Case = tuple[bytes, dict[str, Array]]


def _inputs(net: Net, **shapes: tuple[int, ...]) -> dict[str, Array]:
    """Add inputs of these names and shapes, and return random values for them."""
    arrays: dict[str, Array] = {}
    for name, shape in shapes.items():
        net.input(name, shape)
        arrays[name] = net.rng.normal(size=shape).astype(np.float32)
    return arrays


def deformable_convolution(seed: int) -> Case:
    net = Net(seed, opset=19)
    rng = net.rng
    groups, parts = rng.integers(1, 3, 2).tolist()
    channels = 2 * groups * parts
    filters, height, width = 3 * groups, *rng.integers(4, 8, 2).tolist()
    window, step, dilation = (rng.integers(1, 3, 2).tolist() for _ in range(3))
    pads = rng.integers(0, 2, 4).tolist()
    sizes: list[int] = []
    for axis, size in enumerate((height, width)):
        room = size + pads[axis] + pads[axis + 2]
        extent = dilation[axis] * (window[axis] - 1) + 1
        sizes.append((room - extent) // step[axis] + 1)
    taps = parts * window[0] * window[1]
    arrays = _inputs(
        net,
        x=(2, channels, height, width),
        offsets=(2, 2 * taps, *sizes),
        mask=(2, taps, *sizes),
    )
    arrays["offsets"] *= 2
    w = net.random(filters, channels // groups, *window)
    bias = net.random(filters) if seed % 2 else ""
    mask = "mask" if seed % 3 else ""
    if not mask:
        net.inputs.pop()
        del arrays["mask"]
    attrs: dict[str, Any] = {
        "group": groups,
        "offset_group": parts,
        "kernel_shape": window,
        "strides": step,
        "dilations": dilation,
        "pads": pads,
    }
    y = net.node("DeformConv", "x", w, "offsets", bias, mask, **attrs)
    return net.model(y), arrays


def aligned_regions(seed: int) -> Case:
    """Regions inside, beyond and smaller than one pixel of images."""
    net = Net(seed, opset=(10, 16)[seed % 2])
    rng = net.rng
    samples, channels, regions = rng.integers(1, [4, 4, 6]).tolist()
    height, width = rng.integers(1, 9, 2).tolist()
    arrays = _inputs(net, x=(samples, channels, height, width), rois=(regions, 4))
    arrays["rois"] = rng.uniform(-4, 12, (regions, 4)).astype(np.float32)
    net.input("batches", (regions,), TensorProto.INT64)
    arrays["batches"] = rng.integers(0, samples, regions)
    attrs: dict[str, Any] = {
        "output_height": int(rng.integers(1, 4)),
        "output_width": int(rng.integers(1, 4)),
        "sampling_ratio": int(rng.integers(1, 4)),
        "spatial_scale": float(rng.choice([1.0, 0.5])),
        "mode": ("avg", "max")[seed // 2 % 2],
    }
    if net.opset >= 16:
        modes = "half_pixel", "output_half_pixel"
        attrs["coordinate_transformation_mode"] = str(rng.choice(modes))
    y = net.node("RoiAlign", "x", "rois", "batches", **attrs)
    return net.model(y), arrays


def volume_samples(seed: int) -> Case:
    net = Net(seed, opset=20)
    rng = net.rng
    samples, channels, *sizes = rng.integers(1, [3, 4, 5, 5, 5]).tolist()
    results_of_axes = rng.integers(1, 4, 3).tolist()
    arrays = _inputs(
        net, x=(samples, channels, *sizes), grid=(samples, *results_of_axes, 3)
    )
    attrs: dict[str, Any] = {
        "mode": ("nearest", "linear")[seed % 2],
        "padding_mode": ("zeros", "border", "reflection")[seed % 3],
        "align_corners": int(rng.integers(2)),
    }
    return net.model(net.node("GridSample", "x", "grid", **attrs)), arrays


def image_of_columns(seed: int) -> Case:
    net = Net(seed, opset=18)
    rng = net.rng
    rank = int(rng.integers(1, 4)) if seed else 2
    window, step, dilation = (rng.integers(1, 4, rank) for _ in range(3))
    image = dilation * (window - 1) + rng.integers(1, 4, rank)
    pads = rng.integers(0, 2, 2 * rank)
    room = image + pads[:rank] + pads[rank:]
    places = (room - dilation * (window - 1) - 1) // step + 1
    samples, channels = rng.integers(1, 4, 2).tolist()
    rows = channels * int(window.prod())
    arrays = _inputs(net, x=(samples, rows, int(places.prod())))
    attrs: dict[str, Any] = {
        "pads": pads.tolist(),
        "strides": step.tolist(),
        "dilations": dilation.tolist(),
    }
    operands = net.weight(image), net.weight(window)
    return net.model(net.node("Col2Im", "x", *operands, **attrs)), arrays


MAKERS = (deformable_convolution, aligned_regions, volume_samples, image_of_columns)


def _expected(case: Case) -> Array:
    """Return the values of ONNX Runtime, or of ONNX's reference where it errs.

    ONNX Runtime adds elements to wrong pixels of lines and volumes with pads.
    """
    model, inputs = case
    proto = onnx.load_from_string(model)
    node = proto.graph.node[0]
    if node.op_type == "Col2Im" and proto.graph.initializer[0].dims[0] != 2:
        return np.asarray(ReferenceEvaluator(proto).run(None, inputs)[0])
    session = OnnxRuntimeSession(model, layers=False)
    return np.asarray(session.run(list(inputs.values()))[0])


@pytest.mark.parametrize("make", MAKERS)
def test_results_equal_onnx_runtime(make: Any) -> None:
    for seed in range(CASES):
        case = make(seed)
        (got,) = results(imported(case[0]), case[1]).values()
        np.testing.assert_allclose(got, _expected(case), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=[pytest.mark.qemu, pytest.mark.deep]),
    ],
)
def test_firmware_equals_onnx_runtime(board: str) -> None:
    cases = [make(seed) for make in MAKERS for seed in (1, 2)]
    modules = [imported(model) for model, _ in cases]
    (values,) = run_merged(modules, [[inputs for _, inputs in cases]], board)
    for got, case in zip(values.values(), cases, strict=True):
        np.testing.assert_allclose(got, _expected(case), atol=2e-5, rtol=1e-4)


def test_a_number_of_samples_that_depends_on_regions_is_refused() -> None:
    net = Net(opset=16)
    x, rois = net.input("x", (1, 1, 4, 4)), net.input("rois", (2, 4))
    batches = net.weight(np.zeros(2, np.int64))
    data = net.model(net.node("RoiAlign", x, rois, batches))
    with pytest.raises(UnsupportedError, match="sampling_ratio=0 with mode=avg"):
        imported(data)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"output_height": 1 << 30}, "a result of .* bytes"),
        ({"sampling_ratio": 1 << 40}, "a result of .* bytes"),
        ({"output_width": 0}, "a tensor without elements"),
    ],
)
def test_regions_of_no_or_too_many_samples_are_refused(
    changed: dict[str, int], reason: str
) -> None:
    net = Net(opset=16)
    x, rois = net.input("x", (1, 1, 4, 4)), net.input("rois", (2, 4))
    batches = net.weight(np.zeros(2, np.int64))
    attrs = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    y = net.node("RoiAlign", x, rois, batches, **(attrs | changed))
    with pytest.raises(UnsupportedError, match=reason):
        imported(net.model(y))


@pytest.mark.parametrize(
    ("image", "attrs", "reason"),
    [
        ((3, 3), {"strides": [0, 1]}, "sizes below 1"),
        ((3, 3), {"dilations": [1, -1]}, "sizes below 1"),
        ((5, 5), {"pads": [-1, -1, -1, -1]}, "padding below 0"),
        ((-3, -3), {}, "sizes below 1"),
        ((1 << 20, 1 << 20), {"strides": [(1 << 20) - 2] * 2}, "a result of .* bytes"),
    ],
)
def test_undefined_or_too_large_images_of_columns_are_refused(
    image: tuple[int, int], attrs: dict[str, Any], reason: str
) -> None:
    net = Net(opset=18)
    sizes = net.weight(np.array(image)), net.weight(np.array([2, 2]))
    y = net.node("Col2Im", net.input("x", (1, 4, 4)), *sizes, **attrs)
    with pytest.raises(UnsupportedError, match=reason):
        imported(net.model(y))
