"""Print the keywords in a .wav file: the keyword model as firmware, run hop by hop.

    python listen.py [--board mps2-an386] SPEECH.wav
    python listen.py --make SPEECH.wav   (one with "up" at 0.6 s, "down" at 1.7 s)

Each output line has the time in seconds and the keyword.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from speech import HOP, RATE, WORDS, hops, read_wav, scene, write_wav

import firmwright as fw

MODEL = Path(__file__).with_name("keyword.tflite")
SURE = 190  # of 256: what a word's probability must reach
APART_S = 0.5  # a word is not heard twice within


def heard(outputs: NDArray[Any]) -> Iterator[tuple[float, str]]:
    """Return the time (in seconds) and name of each keyword in the model's outputs."""
    last_s = -APART_S
    for run, words in enumerate(outputs.reshape(len(outputs), -1).astype(int) + 128):
        best, now_s = int(words.argmax()), (run + 1) * HOP / RATE
        if best and words[best] >= SURE and now_s >= last_s + APART_S:
            last_s = now_s
            yield now_s, WORDS[best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wav")
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("--make", action="store_true")
    asked = parser.parse_args()
    if asked.make:
        write_wav(
            asked.wav,
            scene([(0.6, "up"), (1.7, "down")], 2.8, np.random.default_rng(99)),
        )
        return
    compiled = fw.compile(fw.load(MODEL), board=asked.board, numerics="tflm")
    with fw.session(compiled) as session:
        outputs = session.run(hops(read_wav(asked.wav))[:, None])
    for second, name in heard(outputs):
        print(f"{second:5.2f} s  {name}")


if __name__ == "__main__":
    main()
