"""Helium (MVE): loads and stores of vectors.

A load or store is widening or narrowing if elements of memory are narrower than lanes.
Of each there is a predicated form, which neither reads nor writes elements whose lane
is not set: a load returns 0 there. A gather and a scatter have an address for each
lane; the vectors of a gather must be different registers.

Semantics: instruction descriptions of the Armv8-M architecture reference manual.
"""

from dataclasses import dataclass

from firmwright.base.dtypes import (
    BOOL,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    UINT8,
    UINT16,
    UINT32,
    DType,
)
from firmwright.kernels.isa.instruction import (
    AddressForm,
    InstructionSet,
    Lanes,
    Memory,
    Place,
    RegisterClass,
    RegisterPlace,
    signature,
)
from firmwright.kernels.isa.mve_lanes import MVE_LANES
from firmwright.kernels.isa.vectors import active, active_or_zero, cast

MVE_MEMORY = InstructionSet("mve_memory", frozenset({"mve"}), MVE_LANES)

_VECTOR_BITS = 128
_OFFSET_MAX = 127
"""The largest offset in elements."""


@dataclass(frozen=True, slots=True)
class _Access:
    """The parts of the mnemonic, the elements, and the type of lanes."""

    stem: str
    suffix: str
    element: DType
    lane: DType

    @property
    def lanes(self) -> int:
        return _VECTOR_BITS // self.lane.bits

    @property
    def vector(self) -> RegisterPlace:
        return RegisterPlace(RegisterClass.VECTOR, self.lane, self.lanes)

    @property
    def predicate(self) -> RegisterPlace:
        return RegisterPlace(RegisterClass.PREDICATE, BOOL, self.lanes)

    @property
    def index(self) -> RegisterPlace:
        """The vector of offsets, which has lanes of the same width."""
        offsets = {8: UINT8, 16: UINT16, 32: UINT32}[self.lane.bits]
        return RegisterPlace(RegisterClass.VECTOR, offsets, self.lanes)

    @property
    def memory(self) -> Memory:
        """Adjacent elements."""
        size = self.element.size_bytes
        is_same = self.element.bits == self.lane.bits
        return Memory(
            self.element,
            self.lanes,
            range(-_OFFSET_MAX * size, _OFFSET_MAX * size + 1, size),
            can_advance=True,
            base=RegisterClass.CORE if is_same else RegisterClass.LOW,
        )

    def scattered(self, shift: int) -> Memory:
        """Return elements at offsets in units of 2^shift bytes."""
        return Memory(
            self.element,
            self.lanes,
            range(1),
            form=AddressForm.LANES,
            shifts=range(shift, shift + 1),
            index="offsets",
        )

    def asm(self, operands: str, *, is_predicated: bool = False) -> str:
        return f"{self.stem}{'t' * is_predicated}.{self.suffix} {operands}"

    def name(self, kind: str = "") -> str:
        """Return the intrinsic of the C language extensions."""
        type_letter = "f" if self.lane.is_float else "s" if self.lane.signed else "u"
        return f"{self.stem}q_{kind}{type_letter}{self.lane.bits}"


def _load(access: _Access) -> None:
    """Add loads of adjacent elements; lanes that are not set are 0."""
    _read(access, access.name(), access.name("z_"), address=access.memory)


def _gather(access: _Access, shift: int) -> None:
    """Add loads of the elements at offsets; lanes that are not set are 0."""
    kind = "gather_shifted_offset_" if shift else "gather_offset_"
    plain, masked = access.name(kind), access.name(f"{kind}z_")
    address = access.scattered(shift)
    _read(access, plain, masked, address=address, offsets=access.index)


def _read(access: _Access, plain: str, masked: str, **places: Place) -> None:
    def load(address: Lanes, *_: Lanes) -> Lanes:
        return cast(address, access.lane)

    def load_some(address: Lanes, *others: Lanes) -> Lanes:
        *_, inside = others
        return active_or_zero(inside, cast(address, access.lane))

    arguments = ", ".join(f"{{{name}}}" for name in places)
    MVE_MEMORY.row(
        access.asm("{d}, {address}"),
        signature(access.vector, **places),
        load,
        plain,
        f"{plain}({arguments})",
    )
    MVE_MEMORY.row(
        access.asm("{d}, {address}", is_predicated=True),
        signature(access.vector, **places, inside=access.predicate),
        load_some,
        masked,
        f"{masked}({arguments}, {{inside}})",
    )


def _store(access: _Access) -> None:
    """Add stores to adjacent elements, of the lanes that are set."""
    _write(access, access.name(), access.name("p_"), access.memory, a=access.vector)


def _scatter(access: _Access, shift: int) -> None:
    """Add stores of the lanes that are set, to elements at different offsets."""
    kind = "scatter_shifted_offset_" if shift else "scatter_offset_"
    plain, masked = access.name(kind), access.name(f"{kind}p_")
    operands = {"a": access.vector, "offsets": access.index}
    _write(access, plain, masked, access.scattered(shift), **operands)


def _write(
    access: _Access, plain: str, masked: str, memory: Memory, **places: Place
) -> None:
    def store(a: Lanes, *_: Lanes) -> Lanes:
        return cast(a, access.element)

    def store_some(a: Lanes, *others: Lanes) -> Lanes:
        *_, inside, address = others
        return active(inside, cast(a, access.element), address)

    arguments = ", ".join(f"{{{name}}}" for name in ("address", *reversed(places)))
    MVE_MEMORY.row(
        access.asm("{a}, {address}"),
        signature(memory, **places),
        store,
        plain,
        f"{plain}({arguments})",
    )
    MVE_MEMORY.row(
        access.asm("{a}, {address}", is_predicated=True),
        signature(memory, **places, inside=access.predicate, address=memory),
        store_some,
        masked,
        f"{masked}({arguments}, {{inside}})",
    )


_LOADS = (
    _Access("vldrb", "8", INT8, INT8),
    _Access("vldrb", "8", UINT8, UINT8),
    _Access("vldrb", "s16", INT8, INT16),
    _Access("vldrb", "u16", UINT8, UINT16),
    _Access("vldrb", "s32", INT8, INT32),
    _Access("vldrh", "16", INT16, INT16),
    _Access("vldrh", "u16", UINT16, UINT16),
    _Access("vldrh", "s32", INT16, INT32),
    _Access("vldrw", "u32", INT32, INT32),
    _Access("vldrw", "u32", UINT32, UINT32),
    _Access("vldrw", "u32", FLOAT32, FLOAT32),
)
_STORES = (
    _Access("vstrb", "8", INT8, INT8),
    _Access("vstrb", "8", UINT8, UINT8),
    _Access("vstrb", "16", INT8, INT16),
    _Access("vstrb", "16", UINT8, UINT16),
    _Access("vstrb", "32", INT8, INT32),
    _Access("vstrh", "16", INT16, INT16),
    _Access("vstrh", "16", UINT16, UINT16),
    _Access("vstrh", "32", INT16, INT32),
    _Access("vstrw", "32", INT32, INT32),
    _Access("vstrw", "32", UINT32, UINT32),
    _Access("vstrw", "32", FLOAT32, FLOAT32),
)
_GATHERS = (
    (_Access("vldrb", "u8", INT8, INT8), 0),
    (_Access("vldrb", "u8", UINT8, UINT8), 0),
    (_Access("vldrb", "u16", UINT8, UINT16), 0),
    (_Access("vldrb", "s16", INT8, INT16), 0),
    (_Access("vldrh", "u16", UINT16, UINT16), 1),
    (_Access("vldrh", "u32", UINT16, UINT32), 1),
    (_Access("vldrw", "u32", INT32, INT32), 2),
    (_Access("vldrw", "u32", UINT32, UINT32), 2),
)
_SCATTERS = (
    (_Access("vstrb", "8", INT8, INT8), 0),
    (_Access("vstrb", "16", UINT8, UINT16), 0),
    (_Access("vstrb", "32", INT8, INT32), 0),
    (_Access("vstrh", "16", UINT16, UINT16), 1),
    (_Access("vstrw", "32", UINT32, UINT32), 2),
    (_Access("vstrw", "32", FLOAT32, FLOAT32), 0),
)
"""Accesses, with the shift of their offsets."""

for _row in _LOADS:
    _load(_row)
for _row in _STORES:
    _store(_row)
for _row, _shift in _GATHERS:
    _gather(_row, _shift)
for _row, _shift in _SCATTERS:
    _scatter(_row, _shift)
