"""dynamic_gather of slices of up to four words on Helium, four indices at a time."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT32, UINT32
from firmwright.base.text_sections import read_sections
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ir.tir.schedule import Config
from firmwright.ops.kernel import Kernel
from firmwright.schedules.schedule_factories import helium_schedule

_C = read_sections(__file__)
_WORDS_MAX = 4


def _meaning(y: Any, x: Any, places: Any, size: int, words: int, step: int, count: int) -> Any:
    index = np.asarray(places)[::step].astype(np.int64)
    index = np.clip(np.where(index < 0, index + size, index), 0, size - 1)
    at = np.repeat(index * words, words, axis=0)
    return np.take_along_axis(x, (at.T + np.arange(words * count) % words).T, 0)


def _configs(op: OpCall) -> Sequence[Config]:
    x, axis = op.input(0), op.attrs.get("axis")
    if op.str_attr("mode") != "along" or not isinstance(axis, int) or math.prod(x.shape[:axis]) > 1:
        return ()
    size_bytes = math.prod(x.shape[axis + 1 :]) * x.dtype.size_bytes
    fits = size_bytes % 4 == 0 and 0 < size_bytes <= 4 * _WORDS_MAX
    return ({"axis": axis, "words": size_bytes // 4},) if fits else ()


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    size, words = op.input(0).shape[int(config["axis"])], int(config["words"])
    count = op.input(1).elements
    step = op.input(1).dtype.size_bytes // 4
    x = b.view("words", b.input(0), 0, (size * words,), dtype=UINT32, alignment=4)
    places = b.view("places", b.input(1), 0, (count * step,), dtype=INT32, alignment=4)
    y = b.view("out", b.y, 0, (count * words,), dtype=UINT32, access="w", alignment=4)
    runs = [b.pointer(y, 0, count * words, "w"), b.pointer(x, 0, size * words)]
    b.evaluate(
        "mve_gather_words", [*runs, b.pointer(places, 0, count * step), size, words, step, count]
    )


INTRINSICS = (
    Intrinsic(
        "mve_gather_words",
        (*pointers(UINT32, "w", y=1), *pointers(UINT32, x=1), *pointers(INT32, places=1),
         *immediates("size", "words", "step", "count")),
        _meaning,
        _C["portable"],
        "Copies slices of a few words to y: those at `count` indices, which are limited.",
        requires="mve",
        text={"gnu": _C["text"]},
        count=lambda args: 16 + -(-args[6] // 4) * (10 + 3 * args[4]),
    ),
)  # fmt: skip
SCHEDULES = (
    helium_schedule(
        "helium.dynamic_gather.words", "dynamic_gather", configs=_configs, build=_build
    ),
)
