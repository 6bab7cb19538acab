"""Intrinsics that compute a whole int8 layer, whose properties are all in a table.

Parameters would take code in each call. The outputs are those of an offset form
(folded_requantize.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from firmwright.base.dtypes import INT8, Array
from firmwright.base.text_sections import insert_sections, read_sections
from firmwright.ir import tir
from firmwright.ir.tir.expr_evaluation import Ints
from firmwright.ir.tir.inplace_distance import excluded_distances
from firmwright.ir.tir.intrinsic import Intrinsic, Meaning, Operand, pointers
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.folded_requantize import FITTED_LEFT, read_offset_form


@dataclass(frozen=True, slots=True)
class SharedCode(ScheduleConfig):
    """The configuration of schedules whose layers share a function; `code=shared`."""

    code: Literal["own", "shared"] = "own"


SHARED_CODE = SharedCode("shared")


def layer_intrinsic(
    module: str,
    name: str,
    buffers: Sequence[Operand],
    meaning: Meaning,
    count: Callable[[Sequence[int]], int],
    instructions: int,
) -> Intrinsic:
    """Return the intrinsic of scratch memory and a table (`buffers`), input and output.

    Its text is in the file of `module` (`__file__`); `instructions` are those in its
    code.
    """
    sections = read_sections(module)
    return Intrinsic(
        name,
        (*buffers, *pointers(INT8, x=1), *pointers(INT8, "w", y=1)),
        meaning,
        insert_sections(sections, "body"),
        "Computes all outputs of a layer.",
        requires="dsp",
        text={"gnu": insert_sections(sections, "body", "_dsp")},
        definitions=(sections["assembly"],),
        count=count,
        instructions=instructions,
    )


def emit_layer(
    b: Kernel,
    name: str,
    scratch: tir.Buffer,
    table: tir.Buffer,
    reads: tuple[Ints, Ints],
    writes: tuple[Ints, Ints],
) -> None:
    """Emit intrinsic `name`; each step reads a range of x, then writes one of y."""
    args = (
        b.pointer(scratch, 0, scratch.elements, "rw"),
        b.pointer(table, 0, table.elements),
        b.pointer(b.input(0), 0, b.input(0).elements),
        b.pointer(b.y, 0, b.y.elements, "w"),
    )
    b.evaluate(name, args)
    b.state_inplace_distances(excluded_distances(reads, writes))


def first_lane(data: Array) -> Array:
    """Return the elements that all lanes of the interpreter share."""
    return np.reshape(data, (len(data), -1))[:, 0].copy()


def requantize_sums(sums: Array, records: Array, shift: int, offset_bits: int) -> Array:
    """Return int8 outputs of sums [..., channel] without bias (`fit_offset_form`)."""
    offset, multiplier = read_offset_form(records, offset_bits)
    scaled = ((sums << FITTED_LEFT) + offset) * multiplier >> (32 + shift)
    return np.asarray(np.clip(scaled, 0, 255) - 128, np.int8)
