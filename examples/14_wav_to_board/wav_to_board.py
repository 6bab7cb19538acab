"""From .wav files to a keyword program on a board: features, training, int8, firmware.

    python wav_to_board.py [--folder WAVS] [--board mps2-an386] [--save PROJECT]
                           [--wav RECORDING] [--stride HOPS]

WAVS has a folder of clips for each word, at 16 kHz with 16 bits in one channel, and
"nothing" for other sounds. The default is a set of synthetic clips. Needs scikit-learn.
At the end the board hears RECORDING, which may have a multiple of 16 kHz, too. With a
stride of n hops the network runs after every n-th one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier

import firmwright as fw
from firmwright.audio import Features
from firmwright.graph_builder import GraphBuilder

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "02_keyword"))
from speech import RATE, read_wav, scene, write_wav

FEATURES = Features(frame=480, hop=320, channels=20)
ROWS = 32  # the network sees the last 0.64 s
COMPLETE, HALF = slice(-4, None), slice(-14, -9)  # hops of a clip, by its word
HIDDEN = 16
SURE = 190  # of 256: the least probability of a word
APART_S = 0.5  # a word is not heard twice within

Table = NDArray[Any]


def make_clips(folder: Path, count: int) -> None:
    """Write `count` synthetic clips of a second for each word."""
    rng = np.random.default_rng(14)
    for word in ("nothing", "up", "down"):
        (folder / word).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            said = [] if word == "nothing" else [(rng.uniform(0.56, 0.62), word)]
            write_wav(folder / word / f"{index}.wav", scene(said, 1.0, rng))


def read_clips(folder: Path) -> tuple[Table, Table, list[str]]:
    """Return clips int16 [clips, RATE], the index of each one's word, and the words."""
    names = sorted(item.name for item in folder.iterdir() if item.is_dir())
    words = ["nothing", *(name for name in names if name != "nothing")]
    clips, labels = [], []
    for label, word in enumerate(words):
        for file in sorted((folder / word).glob("*.wav")):
            clip = np.zeros(RATE, np.int16)
            sound = read_wav(file)[:RATE]
            clip[RATE - len(sound) :] = sound
            clips.append(clip)
            labels.append(label)
    return np.stack(clips), np.array(labels), words


def training_set(clips: Table, labels: Table) -> tuple[Table, Table]:
    """Return inputs of the network, float [..., ROWS * channels], and their words.

    They are those of the firmware's runs. A clip ends with its word: the last runs have
    heard it, some before only its beginning, which is nothing yet.
    """
    windows = FEATURES.to_float(FEATURES.windows(clips, ROWS))
    parts = [windows[labels > 0, COMPLETE], windows[labels > 0, HALF]]
    parts.append(windows[labels == 0])
    said = [np.repeat(labels[labels > 0], parts[0].shape[1])]
    said.append(np.zeros(sum(part.shape[0] * part.shape[1] for part in parts[1:]), int))
    x = [part.reshape(-1, ROWS * FEATURES.channels) for part in parts]
    return np.concatenate(x), np.concatenate(said)


def train(x: Table, words: Table) -> MLPClassifier:
    model = MLPClassifier((HIDDEN,), alpha=0.1, max_iter=200, tol=1e-3, random_state=14)
    return model.fit(x / 16, words)  # of about 0 to 1


def to_int8(model: MLPClassifier, x: Table) -> fw.Model:
    """Quantize both layers; the inputs `x` give the ranges of their results."""
    (first, second), (bias, last_bias) = model.coefs_, model.intercepts_
    hidden = np.maximum(x / 16 @ first + bias, 0)
    scores = hidden @ second + last_bias

    g = GraphBuilder("wav_to_board")
    rows = g.input(
        "rows",
        (1, ROWS, FEATURES.channels),
        scale=FEATURES.scale,
        zero_point=FEATURES.zero_point,
    )
    flat = g.call("reshape", rows, shape=(1, ROWS * FEATURES.channels))
    hidden_scale = hidden.max() / 255
    y = dense(g, flat, first / 16, bias, (hidden_scale, -128), "relu")
    y = dense(g, y, second, last_bias, (np.abs(scores).max() / 127, 0), "none")
    return g.model(
        g.call("softmax", y, name="words", scale=1 / 256, zero_point=-128, beta=1.0)
    )


def dense(
    g: GraphBuilder,
    x: Any,
    weights: Table,
    bias: Table,
    result: tuple[float, int],
    activation: str,
) -> Any:
    """Add a layer of float weights [inputs, outputs] in int8."""
    scale, (y_scale, y_zero) = float(np.abs(weights).max() / 127), result
    steps = scale * x.type.quantization.scale
    return g.call(
        "fully_connected",
        x,
        g.constant(np.round(weights.T / scale).astype(np.int8), scale=scale),
        g.constant(np.round(bias / steps).astype(np.int32)),
        scale=float(y_scale),
        zero_point=y_zero,
        activation=activation,
        keep_dims=False,
    )


def run(compiled: fw.Compilation, inputs: Table) -> Table:
    with fw.session(compiled) as session:
        return np.asarray(session.run(inputs)).reshape(len(inputs), -1)


def accuracy(network: fw.Model, clips: Table, labels: Table) -> float:
    """Return the share of clips whose last run gives their word."""
    inputs = FEATURES.windows(clips, ROWS)[:, -1]
    outputs = run(fw.compile(network), inputs[:, None])
    return float((outputs.argmax(axis=1) == labels).mean())


def heard(outputs: Table, hops: int) -> Iterator[tuple[float, int]]:
    """Yield time (in seconds) and index of each word, by the mean over five hops.

    There is an output for each `hops`.
    """
    last_s, count = -APART_S, -(-5 // hops)
    means = np.lib.stride_tricks.sliding_window_view(outputs + 128.0, count, axis=0)
    for run, mean in enumerate(means.mean(axis=-1), count):
        now_s, word = run * hops * FEATURES.hop / RATE, int(mean.argmax())
        if word > 0 and mean[word] >= SURE and now_s >= last_s + APART_S:
            last_s = now_s
            yield now_s, word


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="default: synthetic clips")
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("--clips", type=int, default=60, help="synthetic, of each word")
    parser.add_argument("--wav", type=Path, help="what the board hears at the end")
    parser.add_argument("--stride", type=int, default=1, help="hops for a run of it")
    parser.add_argument("--save", help="write the program as a project to this folder")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        if asked.folder is None:
            make_clips(Path(temporary), asked.clips)
        clips, labels, words = read_clips(asked.folder or Path(temporary))
    held_out = np.arange(len(clips)) % 4 == 3
    x, said = training_set(clips[~held_out], labels[~held_out])
    network = to_int8(train(x, said), x)
    share = accuracy(network, clips[held_out], labels[held_out])
    print(f"{len(clips)} clips, {100 * share:.0f} % of those held out are recognized")

    compiled = fw.compile(
        FEATURES.before(network, stride=asked.stride), board=asked.board
    )
    if asked.save:
        compiled.save(asked.save)
    stream = np.concatenate(clips[held_out][labels[held_out] > 0][:2])
    if asked.wav is not None:
        sound = read_wav(asked.wav)
        stream = sound[: len(sound) // FEATURES.hop * FEATURES.hop]
    elif asked.folder is None:
        stream = scene([(0.6, "up"), (1.7, "down")], 2.8, np.random.default_rng(99))
    outputs = run(compiled, stream.reshape(-1, 1, FEATURES.hop))
    outputs = outputs[asked.stride - 1 :: asked.stride]  # others repeat them
    inputs = FEATURES.windows(stream, ROWS, stride=asked.stride)
    expected = run(fw.compile(network), inputs[:, None])
    equal = "equal" if np.array_equal(outputs, expected) else "DIFFER FROM"
    what = f"{outputs.size} outputs {equal} those of the features in Python"
    print(f"{asked.board}: {what}")
    for second, word in heard(outputs, asked.stride):
        print(f"{second:5.2f} s  {words[word]}")


if __name__ == "__main__":
    main()
