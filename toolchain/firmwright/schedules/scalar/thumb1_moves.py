"""Data movement operators, and inversions of sign bits, on Armv6-M.

Runs of words are loaded and stored four at a time.

Loads of unsigned bytes and halfwords have offsets on these cores, signed ones have not.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import UINT8, UINT16, UINT32, Array
from firmwright.base.text_sections import read_sections
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.inplace_distance import excluded_distances
from firmwright.ir.tir.intrinsic import Intrinsic, Meaning, immediates, pointers
from firmwright.ops.kernel import CopyRuns, Kernel
from firmwright.ops.quantize import flips_sign_bits
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.ops.strided_copy import CopyAxis
from firmwright.schedules.data_moves import (
    MOVE_TIME_MAX,
    emit_strided,
    move_schedules,
    strided_copy,
)
from firmwright.schedules.schedule_factories import thumb1_schedule

_WORD_BYTES = 4
_SIGNS = 0x80808080
_REACH = 32
"""Elements that the offset of a load or store reaches."""
_C = read_sections(__file__)
_COPY = "thumb1_copy"
_Place = tuple[tir.Buffer, ArithExpr]


def _copy_words(b: Kernel, target: _Place, source: _Place, axis: CopyAxis) -> None:
    y = b.pointer(*target, axis.extent, "w")
    x = b.pointer(*source, axis.extent)
    b.evaluate("thumb1_copy_words", [y, x, axis.extent])


_RUNS = CopyRuns(of_words=_copy_words, strided=partial(emit_strided, _COPY))


def _flip_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    is_whole = op.output.elements % _WORD_BYTES == 0
    return (NO_CONFIG,) if flips_sign_bits(op) and is_whole else ()


def _build_flips(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    count = op.output.elements // _WORD_BYTES
    view = partial(
        b.view, offset=0, shape=(count,), dtype=UINT32, alignment=_WORD_BYTES
    )
    x, y = view("in", b.input(0)), view("out", b.y, access="w")
    b.evaluate(
        "thumb1_flip_signs",
        [b.pointer(y, 0, count, "w"), b.pointer(x, 0, count), count],
    )
    first = np.arange(count) * _WORD_BYTES
    word = (first, first + _WORD_BYTES)
    b.state_inplace_distances(excluded_distances(word, word))


def _flipped(y: Array, x: Array, count: int) -> Array:
    return x[:count] ^ np.uint32(_SIGNS)


def _words_meaning(y: Array, x: Array, count: int) -> Array:
    return x[:count]


def _executed_strided(args: Sequence[int]) -> int:
    _, _, y_step, x_step, count = args
    pointer_updates = 3 * max(y_step, x_step) >= _REACH
    return 8 + count * (13 + 6 * pointer_updates) // 4


def _words(name: str, section: str, meaning: Meaning, doc: str, each: int) -> Intrinsic:
    """Return an intrinsic for words that takes 4 + `each` instructions for four."""
    return Intrinsic(
        f"thumb1_{name}",
        (
            *pointers(UINT32, "w", y=1),
            *pointers(UINT32, x=1),
            *immediates("count"),
        ),
        meaning,
        _C[f"{section}_portable"],
        doc,
        requires="thumb1",
        text={"gnu": _C[section]},
        count=lambda args: 5 + args[-1] // 4 * (4 + each) + args[-1] % 4 * 3,
    )


INTRINSICS = (
    _words(
        "copy_words",
        "copy",
        _words_meaning,
        "Copies `count` words, in ascending order.",
        each=0,
    ),
    _words(
        "flip_signs",
        "flip",
        _flipped,
        "Inverts the sign bits of the bytes of `count` words.",
        each=4,
    ),
    *(
        strided_copy(_COPY, dtype, "thumb1", _C["strided"], _executed_strided)
        for dtype in (UINT8, UINT16, UINT32)
    ),
)
SCHEDULES = (
    *move_schedules(thumb1_schedule, "thumb1", "words", _RUNS),
    thumb1_schedule(
        "thumb1.quantize.signs",
        "quantize",
        configs=_flip_configs,
        build=_build_flips,
        time_max=MOVE_TIME_MAX,
    ),
)
