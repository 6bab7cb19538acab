"""Resize and Upsample equal ONNX Runtime in all modes, also for fractional sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.onnx.geometry_sweep import (
    Array,
    Case,
    between_quantizations,
    compare_firmware,
    import_case,
    one_node_model,
    own_result,
    random_array,
    sweep,
)

GATE_CASES, DEEP_CASES, FIRMWARE_CASES, DEEP_IMAGES = 60, 3000, 12, 8
SCALES = (
    0.7,
    1 / 3,
    0.6,
    2 / 3,
    1.1,
    1.3,
    2.5,
    1.999,
    3.0001,
    0.9,
    0.99,
    1.2,
    1.7,
    2.0,
    3.0,
    4.0,
    0.5,
    0.25,
    0.3,
    1.0,
    1.5,
    7 / 3,
    1.01,
    0.35,
)
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
RANKS = {
    "nearest": (1, 2, 3, 4, 4, 5),
    "linear": (2, 3, 4, 4, 4, 5),
    "cubic": (2, 4, 4),
}
REFUSALS = {
    *(
        f"an interpolation of {kind} {how}"
        for kind in ("intN", "uintN")
        for how in (
            "that is not linear of two or three axes",
            "with channels last; transpose x around the Resize, or quantize it (QDQ)",
        )
    ),
    "a tensor without elements",
}


@dataclass(frozen=True)
class ResizeMaker:
    """Draws the attributes and constants of one Resize."""

    rng: np.random.Generator
    opset: int

    def attributes(self) -> dict[str, Any]:
        rng, mode = self.rng, str(self.rng.choice(list(RANKS)))
        attrs: dict[str, Any] = {
            "mode": mode,
            "coordinate_transformation_mode": str(rng.choice(COORDINATES)),
        }
        if mode == "nearest":
            return attrs | {"nearest_mode": str(rng.choice(NEAREST))}
        if mode == "cubic":
            attrs["cubic_coeff_a"] = float(rng.choice([-0.75, -0.5]))
            attrs["exclude_outside"] = int(rng.integers(2))
        if self.opset >= 18 and rng.random() < 0.3:
            attrs["antialias"] = 1
            attrs["exclude_outside"] = int(rng.integers(2))
        return attrs

    def shape(self, mode: str) -> tuple[tuple[int, ...], list[int]]:
        """Return a shape and the axes to resize, which ONNX Runtime restricts."""
        rng, rank = self.rng, int(self.rng.choice(RANKS[mode]))
        first = (
            int(rng.integers(2)) if rank == 3 else max(rank - 2, 0) if rank < 5 else 2
        )
        axes = list(range(first, rank))
        sizes = [
            int(rng.integers(1, 18 if axis in axes else 4)) for axis in range(rank)
        ]
        return tuple(sizes), axes

    def region(self, rank: int, axes: list[int]) -> Array:
        starts, ends = np.zeros(rank), np.ones(rank)
        starts[axes], ends[axes] = (
            self.rng.uniform(-0.4, 0.5, len(axes)),
            self.rng.uniform(0.5, 1.4),
        )
        return np.stack([starts, ends]).astype(np.float32)

    def constants(
        self, attrs: dict[str, Any], shape: tuple[int, ...], axes: list[int]
    ) -> dict[int, Array]:
        """Return inputs 1 to 3; add the attributes that depend on them."""
        rng, constants, rank = self.rng, dict[int, Array](), len(shape)
        listed = self.opset >= 18 and rng.random() < 0.4
        if listed:
            attrs["axes"] = axes
        chosen = axes if listed else list(range(rank))
        if attrs["coordinate_transformation_mode"] == "tf_crop_and_resize":
            attrs["extrapolation_value"] = float(rng.choice([0.0, 3.25]))
            constants[1] = self.region(rank, axes)[:, chosen].reshape(-1)
        if rng.random() < 0.35:
            sizes = {axis: int(rng.integers(1, 36)) for axis in axes}
            constants[3] = np.array(
                [sizes.get(axis, shape[axis]) for axis in chosen], np.int64
            )
            if listed:
                policies = ["stretch", "not_larger", "not_smaller"]
                attrs["keep_aspect_ratio_policy"] = str(rng.choice(policies))
        else:
            scales = {axis: float(rng.choice(SCALES)) for axis in axes}
            constants[2] = np.array(
                [scales.get(axis, 1.0) for axis in chosen], np.float32
            )
        if self.opset < 13:
            # Not optional there, but may be empty.
            return {
                k: constants.get(k, np.zeros(0, np.float32)) for k in (1, 2)
            } | constants
        return constants


def resize_case(seed: int) -> Case:
    rng = np.random.Generator(np.random.PCG64(seed))
    maker = ResizeMaker(rng, int(rng.choice([11, 13, 18, 19])))
    attrs = maker.attributes()
    integers = (
        ["int8", "uint8", "int32"]
        if attrs["mode"] == "nearest" or seed % 9 == 0
        else []
    )
    kind = str(rng.choice(["float32", "quantized", *integers]))
    shape, axes = maker.shape(attrs["mode"])
    constants = maker.constants(attrs, shape, axes)
    name = f"{seed}: {kind}{list(shape)}, opset {maker.opset}, {attrs}, {constants}"
    if kind != "quantized":
        x = random_array(rng, shape, kind)
        return Case(
            name, one_node_model("Resize", x, constants, maker.opset, **attrs), x
        )
    x = random_array(rng, shape, "float32")
    element = np.uint8 if rng.random() < 0.5 else np.int8
    first = (
        float(rng.uniform(0.01, 0.05)),
        int(rng.integers(-20, 20)) + 128 * (element == np.uint8),
    )
    second = (
        first if rng.random() < 0.5 else (float(rng.uniform(0.01, 0.05)), first[1] + 3)
    )
    pairs = (first[0], second[0]), (first[1], second[1])
    model = between_quantizations(
        "Resize", x, constants, maker.opset, element, *pairs, **attrs
    )
    return Case(name, model, x)


def check_sweep(count: int) -> None:
    tally = sweep(map(resize_case, range(count)))
    print(tally)
    assert tally.differing == []
    assert tally.refused.keys() <= REFUSALS, tally
    assert not tally.not_run, tally
    assert tally.compared >= 0.6 * tally.tried, tally


def test_resizes_equal_onnx_runtime() -> None:
    check_sweep(GATE_CASES)


@pytest.mark.deep
def test_thousands_of_resizes_equal_onnx_runtime() -> None:
    check_sweep(DEEP_CASES)


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("mps3-an547", marks=[pytest.mark.qemu, pytest.mark.deep]),
    ],
)
def test_firmware_of_resizes_equals_onnx_runtime(board: str, deep: bool) -> None:
    for image in range(DEEP_IMAGES if deep else 1):
        first = image * FIRMWARE_CASES
        tally = compare_firmware(
            map(resize_case, range(first, first + FIRMWARE_CASES)), board
        )
        print(board, tally)
        assert tally.differing == []
        assert tally.compared >= 0.5 * tally.tried


# ---- each way in which values or sizes were wrong ------------------------------------


def resized(
    x: Array, constants: dict[int, Array], opset: int = 19, **attrs: Any
) -> Array:
    """Return our result of a Resize after comparing it with ONNX Runtime's."""
    case = Case("", one_node_model("Resize", x, constants, opset, **attrs), x)
    assert sweep([case]).differing == []
    return own_result(case)


def line(length: int) -> Array:
    return np.arange(length, dtype=np.float32).reshape(1, 1, 1, length)


def scales_of(*factors: float) -> dict[int, Array]:
    return {2: np.array((1.0, 1.0, 1.0, *factors), np.float32)}


def test_a_size_is_the_product_rounded_to_float32() -> None:
    assert resized(line(10), scales_of(0.7)).shape == (1, 1, 1, 7)


def test_corners_are_aligned_if_the_scale_gives_no_whole_size() -> None:
    attrs = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    y = resized(line(10), scales_of(0.55), **attrs)
    np.testing.assert_allclose(y.reshape(-1), np.linspace(0, 9, 5), rtol=1e-6)


@pytest.mark.parametrize(
    ("scale", "mode"), [(1.3, "round_prefer_floor"), (0.3, "round_prefer_ceil")]
)
def test_a_coordinate_next_to_a_tie_is_a_tie(scale: float, mode: str) -> None:
    """Coordinate 14.500001 or 14.499999, where ONNX Runtime selects 14 or 15."""
    y = resized(line(20), scales_of(scale), mode="nearest", nearest_mode=mode)
    assert 14.0 + (mode == "round_prefer_ceil") in y


def test_a_crop_of_nearest_elements_is_filled_outside_of_the_input() -> None:
    region = np.array([0, 0, 0, -0.5, 1, 1, 1, 1.5], np.float32)
    attrs = {
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 7.5,
    }
    y = resized(line(5), {1: region, **scales_of(2.0)}, mode="nearest", **attrs)
    assert y[0, 0, 0, 0] == 7.5


def test_a_tensor_of_the_same_sizes_is_copied_by_any_scale() -> None:
    for attrs in ({"mode": "linear"}, {"mode": "cubic", "antialias": 1}):
        np.testing.assert_array_equal(
            resized(line(5), scales_of(1.1), **attrs), line(5)
        )


def test_a_filter_outside_of_the_input_gives_0() -> None:
    # An antialiased enlargement, of which the last filter is outside.
    case = resize_case(1134)
    assert "antialias" in case.name
    tally = sweep([case])
    assert (tally.compared, tally.differing) == (1, [])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_a_resize_to_no_elements_is_refused(mode: str) -> None:
    model = one_node_model("Resize", line(2), scales_of(0.3), 13, mode=mode)
    assert import_case(Case("", model, line(2))) == "a tensor without elements"


@pytest.mark.parametrize(
    ("op", "opset"), [("Upsample", 8), ("Upsample", 9), ("Resize", 10)]
)
def test_older_operators_keep_their_coordinates(
    op: str, opset: int, deep: bool
) -> None:
    """Their coordinates are not the defaults of a later Resize."""
    rng = np.random.Generator(np.random.PCG64(4))
    cases = []
    for number in range(400 if deep else 30):
        x = random_array(rng, (1, 2, *rng.integers(4, 14, 2).tolist()), "float32")
        least = 1.0 if op == "Upsample" else 0.0
        pair = [max(least, float(rng.choice(SCALES))) for _ in range(2)]
        scales = np.array([1.0, 1.0, *pair], np.float32)
        mode = ("nearest", "linear")[number % 2]
        attrs = {"scales": scales.tolist()} if opset == 8 else {}
        constants = {} if opset == 8 else {1: scales}
        model = one_node_model(op, x, constants, opset, mode=mode, **attrs)
        cases.append(Case(f"{mode} by {scales}", model, x))
    tally = sweep(cases)
    print(tally)
    assert (tally.differing, tally.not_run.total()) == ([], 0)
    assert tally.compared == tally.tried
