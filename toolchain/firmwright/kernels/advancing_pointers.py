"""Pointers that advance by their accesses, in loops of programs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from firmwright.base.errors import InternalError
from firmwright.kernels.program import (
    Address,
    Argument,
    Index,
    Loop,
    PointerOperand,
    Step,
)


def advance_pointers(loop: Loop) -> tuple[Step, ...]:
    """Return the steps of a loop with pointers that advance.

    An access without an offset advances its pointer to the element of the next access,
    or to the next repetition. Raises InternalError if the last access to a pointer
    cannot do so.
    """
    following: dict[PointerOperand, list[Index]] = {}
    for address in _read_addresses(loop.body):
        following.setdefault(address.pointer, []).append(address.index)
    for pointer, elements in loop.pointers().items():
        following[pointer].append(Index(0, elements))
    places = dict.fromkeys(following, 0)

    def advanced(address: Address) -> Address:
        pointer, at = address.pointer, address.index
        place = places[pointer]
        following[pointer].pop(0)
        target = following[pointer][0]
        is_known = not (at.distance.factor or target.distance.factor)
        advance = target.offset - place if is_known and at.offset == place else 0
        places[pointer] += advance
        return Address(pointer, Index(0, at.offset - place, at.distance), advance)

    steps = []
    for step in loop.body:
        operands: list[Argument] = []
        for operand in step.operands:
            if isinstance(operand, Address):
                operand = advanced(operand)
            operands.append(operand)
        steps.append(replace(step, operands=tuple(operands)))
    for pointer, elements in loop.pointers().items():
        if places[pointer] != elements:
            raise InternalError(
                f"the last access of a repetition to {pointer.name} has an offset or a "
                "distance, so it cannot advance the pointer to the next repetition"
            )
    return tuple(steps)


def _read_addresses(body: Sequence[Step]) -> Iterator[Address]:
    for step in body:
        for operand in step.operands:
            if isinstance(operand, Address):
                yield operand
