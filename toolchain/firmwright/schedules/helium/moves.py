"""Data movement operators, and inversions of sign bits, by vectors.

A dynamic_gather of slices of some words looks up four indices at a time.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT32, UINT8, UINT16, UINT32, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir import tir
from firmwright.ir.graph.attributes.movement import DynamicGatherAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import (
    ElementLoop,
    element_intrinsics,
    helium_text,
)
from firmwright.kernels.isa.lanes import constant
from firmwright.kernels.isa.mve import veorq_u8, vmov_u8
from firmwright.kernels.isa.words import bit_xor
from firmwright.kernels.program import PointerOperand
from firmwright.ops.gather_scatter import gather_axis
from firmwright.ops.kernel import Kernel
from firmwright.ops.quantize import flips_sign_bits
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.data_moves import (
    move_schedules,
    pad_schedule,
    strided_copy,
    vector_runs,
)
from firmwright.schedules.helium.im2col import ROW_MOVES
from firmwright.schedules.schedule_factories import helium_schedule

_WORDS_MAX = 32
_C = read_sections(__file__)
_COPY = "mve_copy"
_RUNS = vector_runs(ROW_MOVES, _COPY)


def _build_flips(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    _evaluate(b, "mve_flip_signs", UINT8, [op.output.elements])


def _evaluate(
    b: Kernel, name: str, dtype: DType, numbers: Sequence[int], *more: tir.Expr
) -> None:
    """Emit an intrinsic of the whole output and input, seen as `dtype`."""
    spans, size = [], dtype.size_bytes
    for buffer in (b.y, b.input(0)):
        count = buffer.elements * buffer.dtype.size_bytes // size
        access: tir.AccessMode = "w" if buffer == b.y else "r"
        view = b.view(
            "run", buffer, 0, (count,), dtype=dtype, access=access, alignment=size
        )
        spans.append(b.pointer(view, 0, count, access))
    b.evaluate(name, [*spans, *more, *numbers])


def _slice_words(op: OpCall) -> int:
    """Return the words of a slice, or 0 if slices cannot be gathered.

    They can along the only axis that counts, if they are a few whole words.
    """
    attrs, x = op.attributes(DynamicGatherAttrs), op.input(0)
    if attrs.mode != "along":
        return 0
    axis = gather_axis(op)
    if math.prod(x.shape[:axis]) > 1:
        return 0
    slice_bytes = math.prod(x.shape[axis + 1 :]) * x.dtype.size_bytes
    words, rest = divmod(slice_bytes, 4)
    return words if not rest and words <= _WORDS_MAX else 0


def _build_gather(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    count = op.input(1).elements
    step = op.input(1).dtype.size_bytes // 4
    places = b.view("places", b.input(1), 0, (count * step,), dtype=INT32, alignment=4)
    numbers = [op.input(0).shape[gather_axis(op)], _slice_words(op), step, count]
    at = b.pointer(places, 0, count * step)
    _evaluate(b, "mve_gather_words", UINT32, numbers, at)


_PLACES_MAX = 256
"""The most elements whose places are constants."""


def _reversed_places(op: OpCall) -> Array | None:
    """Return the places of all elements in the input, if lengths are constant."""
    lengths, count = op.constant(1), op.output.elements
    if lengths is None or op.output.dtype.size_bytes != 4 or count > _PLACES_MAX:
        return None
    places = np.arange(count, dtype=np.int32).reshape(op.output.shape)
    (moved,) = op_table()[op.op].reference(op, [places, lengths.array()])
    return np.asarray(moved).reshape(-1)


def _build_reversed(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    moved, count = _reversed_places(op), op.output.elements
    assert moved is not None
    places = b.pointer(b.constant("places", moved, INT32), 0, count)
    _evaluate(b, "mve_gather_words", UINT32, [count, 1, 1, count], places)


def _gathered(
    y: Array, x: Array, places: Array, size: int, words: int, step: int, count: int
) -> Array:
    index = np.asarray(places)[::step].astype(np.int64)
    index = np.clip(np.where(index < 0, index + size, index), 0, size - 1)
    at = np.repeat(index * words, words, axis=0)
    return np.take_along_axis(x, (at.T + np.arange(words * count) % words).T, 0)


def _executed_gather(args: Sequence[int]) -> int:
    words, count = args[-3], args[-1]
    return 12 + divide_up(count, 4) * (14 + 7 * words)


def _strided_copy(dtype: DType, lanes: int, letter: str) -> Intrinsic:
    text = fill_text(
        _C["copy"],
        n=lanes,
        order=", ".join(map(str, range(lanes))),
        bits=128 // lanes,
        c=letter,
        shifted="" if dtype == UINT8 else "_shifted",
    )
    count = partial(_executed_copy, lanes)
    return strided_copy(_COPY, dtype, "mve", text, count)


def _executed_copy(lanes: int, args: Sequence[int]) -> int:
    return 12 + round(args[-1] * 6 / lanes)


SIGN_FLIPS = ElementLoop(
    (PointerOperand("x", UINT8),),
    PointerOperand("y", UINT8, "w"),
    UINT8,
    lambda k, lanes: k(veorq_u8, lanes[0], k(vmov_u8, 0x80)),
)

INTRINSICS = (
    _strided_copy(UINT8, 8, "b"),
    _strided_copy(UINT16, 8, "h"),
    _strided_copy(UINT32, 4, "w"),
    *element_intrinsics(
        "mve_flip_signs",
        (
            *pointers(UINT8, "w", y=1),
            *pointers(UINT8, x=1),
            *immediates("count"),
        ),
        lambda x: bit_xor(x, constant(0x80, UINT8)),
        "Inverts the sign bits of `count` bytes.",
        "mve",
        helium_text(SIGN_FLIPS),
        lambda args: 12 + round(args[-1] * 0.25),
        (KEEP_STORES,),
    ),
    Intrinsic(
        "mve_gather_words",
        (
            *pointers(UINT32, "w", y=1),
            *pointers(UINT32, x=1),
            *pointers(INT32, places=1),
            *immediates("size", "words", "step", "count"),
        ),
        _gathered,
        _C["gather_portable"],
        "Copies slices of a few words, those at `count` indices.",
        requires="mve",
        text={"gnu": _C["gather"]},
        count=_executed_gather,
    ),
)
SCHEDULES = (
    *move_schedules(helium_schedule, "helium", "vectors", _RUNS),
    pad_schedule(helium_schedule, "helium.pad.vectors", _RUNS, ROW_MOVES),
    helium_schedule(
        "helium.quantize.signs",
        "quantize",
        build=_build_flips,
        configs=lambda op: (NO_CONFIG,) if flips_sign_bits(op) else (),
    ),
    helium_schedule(
        "helium.dynamic_gather.words",
        "dynamic_gather",
        build=_build_gather,
        configs=lambda op: (NO_CONFIG,) if _slice_words(op) else (),
    ),
    helium_schedule(
        "helium.reverse_sequence.words",
        "reverse_sequence",
        build=_build_reversed,
        configs=lambda op: () if _reversed_places(op) is None else (NO_CONFIG,),
    ),
)
