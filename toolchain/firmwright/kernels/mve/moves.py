"""Copies, fills and gathers of a run of bytes on Helium, by vectors.

The whole vectors are assembly, after each of which the pointers advance. The last one
has `last` elements, all or only the first ones:

    vldrb.8 q0, [x], #16
    vstrb.8 q0, [y], #16                  for each vector but the last
    if (last == 16) { load and store } else { the same, with a predicate }
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import indent
from typing import TypeAlias

from firmwright.base.dtypes import BOOL, INT8, UINT8, UINT16, DType
from firmwright.kernels.isa import mve_lanes
from firmwright.kernels.isa.c_numbers import equal, word
from firmwright.kernels.isa.instruction import Instr, RegisterClass, RegisterPlace
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.program import (
    Address,
    Argument,
    PointerOperand,
    Program,
    VirtualRegister,
)
from firmwright.kernels.program_builder import ProgramBuilder
from firmwright.kernels.register_files import mve_file
from firmwright.kernels.statement import statement_text
from firmwright.kernels.vector_program import VectorBuilder, VectorProgram
from firmwright.kernels.vector_text import vector_text


@dataclass(slots=True)
class VectorSteps:
    """The steps of the vectors of a move, of `lanes` elements each.

    Pointers advance unless the vector is the last one, of which `inside` are the lanes.
    """

    k: ProgramBuilder
    lanes: int
    is_last: bool
    inside: VirtualRegister | None = None
    pointers: dict[str, PointerOperand] = field(default_factory=dict)
    vectors: dict[str, VirtualRegister] = field(default_factory=dict)

    def base(self, name: str, dtype: DType) -> PointerOperand:
        """Return a pointer operand."""
        if name not in self.pointers:
            self.pointers[name] = self.k.pointer(name, dtype)
        return self.pointers[name]

    def elements(self, name: str, dtype: DType) -> Address:
        """Return the elements of the vector at a pointer."""
        pointer = self.base(name, dtype)
        return pointer[0] if self.is_last else pointer.next(self.lanes)

    def vector(self, name: str, dtype: DType) -> VirtualRegister:
        """Return a vector that the C has a variable for."""
        if name not in self.vectors:
            place = RegisterPlace(RegisterClass.VECTOR, dtype, self.lanes)
            self.vectors[name] = self.k.operand(name, place)
        return self.vectors[name]

    def load(self, name: str, *operands: Argument) -> VirtualRegister:
        """Return the result of a row, or of that with a predicate."""
        row, inside = self._row(name, "z")
        return self.k(row, *operands, *inside)

    def store(self, name: str, to: Address, value: VirtualRegister) -> None:
        row, inside = self._row(name, "p")
        self.k.store(row, to, value, *inside)

    def _row(self, name: str, mode: str) -> tuple[Instr, list[VirtualRegister]]:
        if self.inside is None:
            return MVE_MEMORY.rows[name], []
        stem, _, lane = name.rpartition("_")
        return MVE_MEMORY.rows[f"{stem}_{mode}_{lane}"], [self.inside]


AppendSteps: TypeAlias = Callable[[VectorSteps], None]


@dataclass(frozen=True, slots=True)
class VectorMove:
    """A move of a run, by vectors of `lanes` elements; `append` moves one of them."""

    lanes: int
    predicate: Instr
    append: AppendSteps

    def program(self, vectors: int) -> Program:
        """Return the assembly of whole vectors."""
        k = ProgramBuilder("moved_vectors")
        steps = VectorSteps(k, self.lanes, is_last=False)
        for _ in range(vectors):
            self.append(steps)
        return k.build()

    def last(self) -> VectorProgram:
        k = VectorBuilder("last_vector")
        count = k.number("last")
        with k.when(k(equal, count, self.lanes)):
            self.append(VectorSteps(k, self.lanes, is_last=True))
        with k.otherwise():
            inside = k.named("inside", self.predicate, k(word, count))
            self.append(VectorSteps(k, self.lanes, is_last=True, inside=inside))
        return k.build_vectors()

    def text(self, vectors: int) -> str:
        """Return the C that moves some vectors."""
        last = vector_text(self.last())
        if vectors == 1:
            return last
        whole = statement_text(self.program(vectors - 1), mve_file(2))
        return f"{whole}\n{last}"


def _copy(v: VectorSteps) -> None:
    loaded = v.load("vldrbq_s8", v.elements("x", INT8))
    v.store("vstrbq_s8", v.elements("y", INT8), loaded)


def _fill(v: VectorSteps) -> None:
    v.store("vstrbq_s8", v.elements("y", INT8), v.vector("filled", INT8))


def _gather(v: VectorSteps) -> None:
    # The table has whole vectors.
    places = v.k(MVE_MEMORY.rows["vldrhq_u16"], v.elements("offsets", UINT16))
    loaded = v.load("vldrbq_gather_offset_s16", v.base("x", INT8)[0], places)
    v.store("vstrbq_s16", v.elements("y", INT8), loaded)


COPY = VectorMove(16, mve_lanes.vctp8q, _copy)
FILL = VectorMove(16, mve_lanes.vctp8q, _fill)
"""The vector `filled` is in the elements."""
GATHER = VectorMove(8, mve_lanes.vctp16q, _gather)
"""The elements are those of x at `offsets`, a table of whole vectors."""


def spread_text() -> str:
    """Return the C that stores `count` bytes of x to places of y at `offsets`.

    A vector has a group of whole pixels, and bytes of the next one behind them. Those
    are stored again with their group, and so are of use only to the last vector.
    """
    return f"""\
const uint8x16_t places = vldrbq_u8(offsets);
int32_t left = count;
for (; left >= 16; left -= group) {{
{indent(vector_text(_spread_vector()), "    ")}
    x += advance;
    y += distance;
    /* Keep the pointers: post-increments are free, a common index is not. */
    __asm__("" : "+r"(x), "+r"(y));
}}
if (left > 0) {{
    const mve_pred16_t inside = vctp8q((uint32_t)left);
{indent(vector_text(_spread_vector(is_last=True)), "    ")}
}}"""


def _spread_vector(*, is_last: bool = False) -> VectorProgram:
    k = VectorBuilder("spread")
    places = k.variable("places", RegisterPlace(RegisterClass.VECTOR, UINT8, 16))
    predicate = RegisterPlace(RegisterClass.PREDICATE, BOOL, 16)
    inside = [VirtualRegister(predicate, "inside")] * is_last
    x, y = k.pointer("x", INT8), k.pointer("y", INT8, "w")
    load, store = ("vldrbq_z_s8", "vstrbq_scatter_offset_p_s8")
    if not is_last:
        load, store = ("vldrbq_s8", "vstrbq_scatter_offset_s8")
    loaded = k(MVE_MEMORY.rows[load], x[0], *inside)
    k.store(MVE_MEMORY.rows[store], y[0], loaded, places, *inside)
    return k.build_vectors()
