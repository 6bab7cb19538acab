"""Train on the keywords of speech.py and write keyword.tflite next to this file.

TFLM runs the model's own front end to compute the features. The two dense layers are
trained in numpy, seeded, and quantized to int8.

Needs the extra `verify` (tflite-micro, ai-edge-litert):  pip install -e '.[verify]'
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from network import CHANNELS, FEATURE, FRAMES, Dense, build
from numpy.typing import NDArray
from speech import HOP, RATE, WORDS, hops, scene
from tflite_micro.python.tflite_micro import runtime

SEED, SCENES, HIDDEN, STEPS, BATCH = 5, 240, 16, 4000, 128
SCENE_S = 2.4
FIRST_END, LAST_END = (
    0.34,
    0.50,
)  # seconds after a word's beginning at which it is to be heard

Floats = NDArray[np.float64]


def examples(rng: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
    """Return feature histories and the keyword at their end, without ambiguous ones."""
    front = runtime.Interpreter.from_bytes(build(), arena_size=1 << 20)
    rows: list[NDArray[Any]] = []
    labels: list[int] = []
    for _ in range(SCENES):
        said = [
            (t, str(rng.choice(WORDS[1:]))) for t in (0.5 + rng.uniform(0, 0.2), 1.5)
        ]
        front.reset()
        features = []
        for hop in hops(scene(said, SCENE_S, rng)):
            front.set_input(hop[None], 0)
            front.invoke()
            features.append(front.get_output(0).reshape(CHANNELS).copy())
        for end in range(FRAMES, len(features) + 1):
            label = _label(end * HOP / RATE, said)
            if label is not None and (label or rng.uniform() < 0.3):
                rows.append(np.stack(features[end - FRAMES : end]).reshape(-1))
                labels.append(label)
    scale, zero = FEATURE
    return (np.stack(rows).astype(np.float64) - zero) * scale, np.array(labels)


def _label(now_s: float, said: list[tuple[float, str]]) -> int | None:
    for start_s, name in said:
        after_s = now_s - start_s
        if FIRST_END <= after_s <= LAST_END:
            return WORDS.index(name)
        if 0.25 < after_s < 0.58:
            return None
    return 0


def train(
    x: Floats, labels: NDArray[np.int64], rng: np.random.Generator
) -> list[Floats]:
    """Train weights and biases of both layers, with Adam on the cross entropy."""
    sizes = [(HIDDEN, x.shape[1]), (HIDDEN,), (len(WORDS), HIDDEN), (len(WORDS),)]
    values = [
        rng.normal(0, (2 / s[-1]) ** 0.5, s) if len(s) == 2 else np.zeros(s)
        for s in sizes
    ]
    moments = [(np.zeros(s), np.zeros(s)) for s in sizes]
    for step in range(1, STEPS + 1):
        some = rng.integers(0, len(x), BATCH)
        for value, moment, slope in zip(
            values, moments, _slopes(values, x[some], labels[some]), strict=True
        ):
            mean, square = moment
            mean += 0.1 * (slope - mean)
            square += 0.001 * (slope**2 - square)
            rate = 0.002 * (1 - step / STEPS)
            value -= (
                rate
                * (mean / (1 - 0.9**step))
                / ((square / (1 - 0.999**step)) ** 0.5 + 1e-8)
            )
    return values


def _slopes(values: list[Floats], x: Floats, labels: NDArray[np.int64]) -> list[Floats]:
    w1, b1, w2, b2 = values
    hidden = np.maximum(x @ w1.T + b1, 0)
    logits = hidden @ w2.T + b2
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    error = odds / odds.sum(axis=1, keepdims=True)
    error[np.arange(len(x)), labels] -= 1
    error /= len(x)
    back = (error @ w2) * (hidden > 0)
    return [
        back.T @ x + 1e-4 * w1,
        back.sum(0),
        error.T @ hidden + 1e-4 * w2,
        error.sum(0),
    ]


def quantised(values: list[Floats], x: Floats) -> list[Dense]:
    """Quantize both layers to int8, with the activation ranges of `x`."""
    w1, b1, w2, b2 = values
    hidden = np.maximum(x @ w1.T + b1, 0)
    logits = hidden @ w2.T + b2
    h_scale = float(np.float32(hidden.max() / 255))
    span = float(logits.max() - logits.min())
    l_scale = float(np.float32(span / 255))
    l_zero = int(np.clip(round(-128 - logits.min() / l_scale), -128, 127))
    first = _layer(w1, b1, FEATURE[0], (h_scale, -128), relu=True)
    return [first, _layer(w2, b2, h_scale, (l_scale, l_zero), relu=False)]


def _layer(
    w: Floats, b: Floats, x_scale: float, result: tuple[float, int], *, relu: bool
) -> Dense:
    scale = float(np.float32(np.abs(w).max() / 127))
    weights = np.round(w / scale).astype(np.int8)
    return Dense(
        weights, scale, np.round(b / (scale * x_scale)).astype(np.int32), *result, relu
    )


def main() -> None:
    rng = np.random.default_rng(SEED)
    x, labels = examples(rng)
    print(
        f"{len(x)} histories: "
        f"{dict(zip(WORDS, np.bincount(labels).tolist(), strict=True))}"
    )
    values = train(x, labels, rng)
    w1, b1, w2, b2 = values
    found = (np.maximum(x @ w1.T + b1, 0) @ w2.T + b2).argmax(axis=1)
    print(f"{100 * (found == labels).mean():.1f} % of them are told apart")
    data = build(quantised(values, x))
    Path(__file__).with_name("keyword.tflite").write_bytes(data)
    print(f"keyword.tflite: {len(data)} bytes")


if __name__ == "__main__":
    main()
