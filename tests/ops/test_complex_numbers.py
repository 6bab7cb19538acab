"""Spectra of .tflite files, which are complex numbers there, are those of LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.errors import UnsupportedError
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ops.registry import op_table
from firmwright.oracle.reference_runner import run_reference
from firmwright.pipeline import load_module_bytes
from tests.state.model_writer import ModelFile

BATCH = 3


def spectrum_model(points: int, length: int) -> bytes:
    """Return the absolute value and the parts of the spectrum of x [BATCH, points]."""
    bins = points // 2 + 1
    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", "float32", (BATCH, 1, points))
    sizes = main.constant("sizes", np.array([1, length], np.int32))
    spectrum = main.tensor("spectrum", "complex64", (BATCH, 1, bins))
    main.op("RFFT2D", [x, sizes], [spectrum], "Rfft2dOptions")
    shape = main.constant("shape", np.array([BATCH, bins], np.int32))
    flat = main.tensor("flat", "complex64", (BATCH, bins))
    main.op("RESHAPE", [spectrum, shape], [flat], "ReshapeOptions")
    for op in ("COMPLEX_ABS", "REAL", "IMAG"):
        y = main.tensor(op.lower(), "float32", (BATCH, bins))
        main.op(op, [flat], [y])
        main.outputs(y)
    return file.data()


@pytest.mark.parametrize("points", [2, 16, 256, 4096])
def test_a_spectrum_equals_litert(points: int) -> None:
    data = spectrum_model(points, points)
    module = load_module_bytes(data, "spectrum.tflite")
    called = {call.op for call in module.entry_graph.body}
    assert ("rfft" in called) == (points in (256, 4096))
    x = np.random.default_rng(4).normal(size=(BATCH, 1, points)).astype(np.float32)
    (expected,) = run_reference(data, [{"x": x}], "litert").outputs
    found = evaluate_graph(module, {"x": x}, op_table(), {})
    # Each of the products and sums of a bin may be rounded once.
    bound = 2 * points * float(np.finfo(np.float32).eps) * np.abs(x).sum(axis=-1).max()
    for name, y in expected.items():
        np.testing.assert_allclose(found[name], y, rtol=0, atol=bound)


def test_complex_outputs_are_refused() -> None:
    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", "float32", (1, 16))
    sizes = main.constant("sizes", np.array([1, 16], np.int32))
    spectrum = main.tensor("spectrum", "complex64", (1, 9))
    main.op("RFFT2D", [x, sizes], [spectrum], "Rfft2dOptions")
    main.outputs(spectrum)
    with pytest.raises(UnsupportedError, match="RFFT2D"):
        load_module_bytes(file.data(), "spectrum.tflite")


def test_a_transform_that_pads_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="RFFT2D"):
        load_module_bytes(spectrum_model(16, 32), "spectrum.tflite")
