"""Transforms of floats are within the bound that docs/reference/numerics.md derives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.graph_builder import GraphBuilder

UNIT = 2.0**-24
"""The unit roundoff of float32."""
Floats = np.ndarray[Any, np.dtype[np.float32]]


def signals(length: int) -> Floats:
    """Return noise, impulses, tones, large offsets and steps, [signals, length]."""
    rng, n = np.random.default_rng(length), np.arange(length)
    rows = [rng.normal(size=length) * 10.0 ** rng.integers(-6, 6) for _ in range(20)]
    rows += [np.eye(length)[k] for k in (0, 1, length // 3)]
    rows += [np.cos(2 * np.pi * k * n / length) for k in (1, 3.5, length / 2)]
    rows += [1e4 + rng.normal(size=length), np.sign(n - length / 3), np.zeros(length)]
    rows += [np.sign(rng.normal(size=length)) for _ in range(20)]
    return np.array(rows, np.float32)


def relative_error(length: int) -> float:
    """Return rho, which the page derives, from the levels of the transform."""
    sum_, product = UNIT, UNIT / np.sqrt(2) + np.sqrt(5) * UNIT + UNIT
    doublings = (length // 2).bit_length() - 1
    stages = [2] * (doublings % 2) + [4] * (doublings // 2)
    growth = 1.0
    for place, radix in enumerate(stages):
        growth *= 1 + np.sqrt(2) * (product if place else sum_)
        growth *= 1 + np.sqrt(2) * (sum_ if radix == 4 else 0)
    return float(growth * (1 + np.sqrt(2) * sum_) * (1 + np.sqrt(2) * product) - 1)


def test_the_stated_bound_holds_for_all_lengths() -> None:
    for bits in range(5, 15):
        assert relative_error(1 << bits) < 4 * UNIT * bits


@pytest.mark.host_c
@pytest.mark.parametrize("length", [64, 512])
def test_transforms_are_within_the_bound(length: int) -> None:
    rho = 4 * UNIT * np.log2(length)
    g = GraphBuilder("spectra")
    x = g.input("x", (1, length), "float32")
    spectrum = g.call("rfft", x, shape=(1, length + 2), length=length)
    back = g.call("irfft", spectrum, shape=(1, length), length=length)
    samples = signals(length)
    compiled = compile_for(g.model(spectrum, back))
    with open_session(compiled, in_process=True) as session:
        outputs = session.run_all([{"x": row[None]} for row in samples])
    ratios: list[float] = []
    for row, values in zip(samples, outputs, strict=True):
        bins, again = (np.asarray(v, float).reshape(-1) for v in values.values())
        size = float(np.linalg.norm(row.astype(float)))
        exact = np.fft.rfft(row.astype(float))
        error = np.abs(bins[::2] + 1j * bins[1::2] - exact).max()
        assert error <= rho * np.sqrt(length) * size
        inverse = np.fft.irfft(bins[::2] + 1j * bins[1::2], length)
        back_error = np.abs(again - inverse).max()
        assert back_error <= rho * np.linalg.norm(inverse)
        ratios.append(error / (rho * np.sqrt(length) * size) if size else 0.0)
    # The bound is of the worst case; it would hide little if it were far from it.
    assert max(ratios) > 0.003
