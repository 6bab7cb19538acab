"""From an accelerometer's samples to a board: filters, features, a forest, firmware.

    python gestures.py [--board mps2-an386] [--save PROJECT]

The samples are synthetic. Needs scikit-learn and skl2onnx (firmwright[sklearn]).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline

import firmwright as fw
from firmwright.sensors import (
    Biquads,
    Center,
    Join,
    Magnitude,
    SensorChain,
    Spectrum,
    Statistic,
    Statistics,
    StreamWindow,
)
from firmwright.sensors.pipelines import SensorFeatures

RATE = 100  # samples per second
HOP = 25  # samples of a run
NAMES = ("rest", "shake", "circle", "tap")
LOWPASS = [[0.2066, 0.4131, 0.2066, 1.0, -0.3695, 0.1958]]  # 20 Hz, Butterworth
CHAIN = SensorChain(
    channels=3,
    samples=HOP,
    rate=RATE,
    steps=(
        Biquads(LOWPASS),
        StreamWindow(128),
        Join(
            (
                Statistics((Statistic.STANDARD_DEVIATION, Statistic.MEAN_CROSSINGS)),
                (Center(), Spectrum((0.5, 2, 5, 15))),
                (Center(), Magnitude(), Statistics((Statistic.PEAK, Statistic.RMS))),
            )
        ),
    ),
)

Table = NDArray[Any]


def recording(name: str, rng: np.random.Generator, count: int = 200) -> Table:
    """Return synthetic accelerations in g, float32 [count, 3]."""
    t, phase = np.arange(count) / RATE, rng.uniform(0, 6)
    motion = np.zeros((count, 3))
    speed, strength = rng.uniform(0.8, 1.2), rng.uniform(0.5, 1.5)
    if name == "shake":
        motion[:, 0] = np.sin(2 * np.pi * 6 * speed * t + phase)
    if name == "circle":
        angle = 2 * np.pi * 1.2 * speed * t + phase
        motion[:, :2] = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if name == "tap":
        for at in rng.integers(80, count - 10, 4):
            motion[at : at + 10, 2] += 3 * np.exp(-np.arange(10) / 2)
    gravity = rng.normal(size=3)
    gravity /= np.linalg.norm(gravity)
    noise = rng.normal(size=(count, 3)) * 0.03
    return (motion * strength + gravity + noise).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("--save", help="write the program as a project to this folder")
    asked = parser.parse_args()
    rng = np.random.default_rng(15)
    labels = rng.integers(0, len(NAMES), 600)
    recordings = np.stack([recording(NAMES[label], rng) for label in labels])
    forest = RandomForestClassifier(10, max_depth=6, random_state=15)
    pipeline = make_pipeline(SensorFeatures(CHAIN), forest)
    pipeline.fit(recordings[:400], labels[:400])
    share = pipeline.score(recordings[400:], labels[400:])
    print(f"{100 * share:.0f} % of the recordings held out are recognized")

    model = fw.load(pipeline, name="gestures")
    compiled = fw.compile(model, board=asked.board)
    if asked.save:
        compiled.save(asked.save)
    stream = np.concatenate([recording(name, rng) for name in NAMES])
    with fw.session(compiled) as session:
        outputs = session.run(stream.reshape(-1, 1, HOP, 3))
    answers = np.asarray(outputs["label"]).reshape(-1)
    expected = forest.predict(CHAIN.compute(stream).reshape(len(answers), -1))
    equal = "equal" if np.array_equal(answers, expected) else "DIFFER FROM"
    print(f"{asked.board}: {len(answers)} answers {equal} those of scikit-learn")
    for second in range(2, len(stream) // RATE + 1, 2):
        print(f"{second:3d} s  {NAMES[answers[second * RATE // HOP - 1]]}")


if __name__ == "__main__":
    main()
