"""Chains that several tests compute, and samples for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from firmwright.sensors import (
    Biquads,
    Center,
    Decimate,
    Fir,
    Join,
    Magnitude,
    Normalize,
    SensorChain,
    Spectrum,
    Start,
    Statistic,
    Statistics,
    StreamWindow,
)

Table = np.ndarray[Any, Any]
SOS = np.array(
    [
        [0.0201, 0.0402, 0.0201, 1, -1.561, 0.6414],
        [0.5, -1.0, 0.5, 1, -0.9428, 0.3333],
    ]
)
"""A lowpass and a highpass section."""
ALL = Statistics(tuple(Statistic))
ROWS = 49
CHAINS = {
    "stream": SensorChain(
        channels=3,
        samples=32,
        rate=100,
        steps=(
            Biquads(SOS),
            StreamWindow(128),
            Join(
                (
                    ALL,
                    Spectrum((0, 5, 20, 50)),
                    (Magnitude(), Statistics((Statistic.RMS,))),
                )
            ),
        ),
    ),
    "integers": SensorChain(
        channels=2,
        samples=64,
        rate=100,
        dtype="int16",
        steps=(
            Normalize((3.0, 4.0), 0.01),
            Biquads(np.repeat(SOS, 3, axis=0)),
            Decimate(4),
            Fir(np.ones(5) / 5),
            StreamWindow(32),
            Center(),
            ALL,
        ),
    ),
    "rows": SensorChain(
        channels=1,
        samples=64,
        steps=(
            Fir(np.hanning(21)),
            Decimate(4),
            Statistics((Statistic.MEAN,)),
            StreamWindow(5),
        ),
    ),
    "windows": SensorChain(
        channels=3,
        samples=100,
        rate=50,
        steps=(
            Biquads(SOS, Start.SETTLED),
            Decimate(2),
            Fir((1, -1)),
            Join((ALL, Spectrum((1, 3, 12.5)))),
        ),
    ),
    "every_second": SensorChain(channels=3, samples=16, steps=(Decimate(2),)),
    "sample": SensorChain(
        channels=2, samples=1, steps=(Fir((0.5, 0.5)), StreamWindow(3))
    ),
}


def recordings(chain: SensorChain, runs: int, seed: int = 5) -> Table:
    """Return noise [runs * samples, channels], with silence in the second half."""
    rng = np.random.default_rng(seed)
    samples = rng.normal(size=(runs * chain.samples, chain.channels)) * 1000
    samples[len(samples) // 2 : len(samples) * 2 // 3] = 0
    return samples.astype(chain.dtype)
