"""Coded weights: less flash, a small buffer, equal results, predicted instructions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import firmwright as fw
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import open_session
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.predict.cost_prediction import predict_instructions
from firmwright.flows.samples.reference_outputs import compute_reference
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.graph_builder import GraphBuilder
from firmwright.ir import tir
from firmwright.ir.tir.traversal import statements
from firmwright.pipeline import Compilation

TARGETS = [
    "cortex-m -mcpu=cortex-m0",
    "cortex-m -mcpu=cortex-m3",
    "cortex-m -mcpu=cortex-m4",
    "cortex-m -mcpu=cortex-m55",
    "riscv32 -mcpu=sifive-e31",
]


def network(spread: float = 4.0) -> Model:
    """A pointwise convolution and two dense layers; spread or uniform weights."""
    g, rng = GraphBuilder("net"), np.random.default_rng(3)

    def weights(*shape: int) -> np.ndarray:
        if not spread:
            return rng.integers(-127, 128, shape).astype(np.int8)
        return np.clip(np.round(rng.laplace(0, spread, shape)), -127, 127).astype(
            np.int8
        )

    def bias(size: int) -> np.ndarray:
        return rng.integers(-500, 500, size).astype(np.int32)

    x = g.input("x", (1, 4, 4, 32), scale=0.05, zero_point=3)
    window = {"stride": (1, 1), "dilation": (1, 1), "padding": (0, 0, 0, 0)}
    w = g.constant(weights(32, 1, 1, 32), scale=[0.01] * 32)
    y = g.call(
        "conv2d", x, w, g.constant(bias(32)), scale=0.1, activation="relu", **window
    )
    y = g.call("reshape", y, shape=(1, 512))
    for inputs, outputs in ((512, 48), (48, 24)):
        w = g.constant(weights(outputs, inputs), scale=0.01)
        y = g.call(
            "fully_connected",
            y,
            w,
            g.constant(bias(outputs)),
            scale=0.2,
            activation="none",
            keep_dims=False,
        )
    return g.model(y)


def compiled(
    board: str = "host", spread: float = 4.0, **options: object
) -> Compilation:
    return compile_for(network(spread), board, **{"compress_weights": True, **options})


def results_agree(done: Compilation) -> bool:
    samples = generate_samples(done.module.io.inputs, 3, 0).samples
    expected = compute_reference(done, samples).outputs
    with open_session(done, in_process=True) as session:
        actual = session.run_all(samples)
    return all(
        np.array_equal(mine.ravel(), theirs.ravel())
        for row, other in zip(actual, expected, strict=True)
        for mine, theirs in zip(row.values(), other.values(), strict=True)
    )


@pytest.mark.sampled(3)
@pytest.mark.host_c
@pytest.mark.parametrize("target", TARGETS)
def test_results_are_equal_on_every_family_and_the_buffer_is_small(target: str) -> None:
    plain, coded = (
        compiled(target=target, compress_weights=False),
        compiled(target=target),
    )
    saved = coded.summary.compressed_bytes
    assert saved > 8000
    assert coded.summary.constants_bytes == plain.summary.constants_bytes - saved
    assert coded.summary.workspace_bytes <= plain.summary.workspace_bytes + 8192
    assert results_agree(coded)


@pytest.mark.host_c
def test_results_are_equal_in_shared_code() -> None:
    coded = compiled(target="cortex-m -mcpu=cortex-m4", optimize="size")
    assert coded.summary.compressed_bytes > 8000
    assert results_agree(coded)


def test_a_dense_layer_decodes_blocks_of_its_rows() -> None:
    kernel = compiled(target="cortex-m -mcpu=cortex-m4").module.kernel(
        "fully_connected_2"
    )
    loops = [node for node in statements(kernel.body) if isinstance(node, tir.For)]
    decodes = [
        node
        for node in statements(loops[0].body)
        if isinstance(node, tir.Evaluate) and node.call.name == "decode_weights"
    ]
    assert len(decodes) == 1
    (decoded,) = [param for param in kernel.params if param.name.startswith("decoded")]
    assert isinstance(decoded.value, tir.Buffer)
    assert decoded.value.size_bytes <= 512 * 48 // 6


def test_random_weights_stay_as_they_are() -> None:
    plain, coded = compiled(spread=0.0, compress_weights=False), compiled(spread=0.0)
    assert coded.summary.compressed_bytes == 0
    assert coded.tree.files["model/net.c"] == plain.tree.files["model/net.c"]
    assert "compressed_bytes" not in coded.metadata


def test_with_a_ram_budget_the_buffers_fit_in_it() -> None:
    ram = compiled(compress_weights=False).summary.workspace_bytes + 2100
    coded = compiled(ram_bytes=ram)
    assert 0 < coded.summary.workspace_bytes <= ram
    assert coded.summary.compressed_bytes > 0


def test_a_flash_budget_counts_the_bytes_that_coding_saves() -> None:
    target = {"target": "cortex-m -mcpu=cortex-m4", "flash_bytes": 24_000}
    with pytest.raises(fw.FirmwrightError, match="--compress-weights"):
        compiled(compress_weights=False, **target)
    assert compiled(**target).summary.constants_bytes < 24_000


@pytest.mark.qemu("arm")
def test_the_image_is_smaller_and_its_instructions_are_predicted() -> None:
    plain, coded = (
        compiled("mps2-an386", compress_weights=False),
        compiled("mps2-an386"),
    )
    assert (
        build_image(coded).sizes.flash_bytes
        < build_image(plain).sizes.flash_bytes - 7000
    )
    measured = measure_instructions(coded).total.instructions
    assert sum(predict_instructions(coded).values()) == pytest.approx(
        measured, rel=0.05
    )


@pytest.mark.deep
@pytest.mark.models
@pytest.mark.qemu("arm")
def test_the_anomaly_detector_fits_in_the_flash_of_a_microbit(
    model_path: Callable[[str], Path],
) -> None:
    model = fw.load(model_path("ad01_int8.tflite"))
    coded = fw.compile(model, board="microbit", compress_weights=True)
    assert build_image(coded).sizes.flash_bytes < 200_000
    assert fw.verify(coded, samples=1).exact
