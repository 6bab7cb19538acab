"""Assignment of the temporaries of a program to registers, by linear scan.

Compilers leave a kernel few registers: gcc reloads operands of an assembly statement
into r0 to r7 only, which the sums of a GEMM kernel take, so all others have fixed
registers above; clang allocates operands itself, but reserves one. What remains for
temporaries is a list of names, of which a temporary takes the first that is free from
its definition to its last use:

    v  p q  u         the temporaries of a step, in the order of their definition
    |  | |            ldr v; ldrd p, q
    |  | |  |         sxtb16 u, v
    |     .  |        (v, p and q are free after their last use)
"""

from collections.abc import Sequence
from typing import TypeGuard

from firmwright.base.errors import InternalError
from firmwright.kernels.program import Argument, Program, Step, Value, steps


def assign_registers(program: Program, free: Sequence[str]) -> dict[Value, str]:
    """Return the register of each temporary of `program`, one of `free`.

    Temporaries live within a repetition of their block. Raises InternalError, which
    names the program, if it needs more registers than there are.
    """
    order = list(steps(program.body))
    last_use: dict[Value, int] = {}
    for place, step in enumerate(order):
        for operand in (*step.operands, *step.results):
            if _is_temporary(operand):
                last_use[operand] = place
    available = list(free)
    assigned: dict[Value, str] = {}
    for place, step in enumerate(order):
        ended = [value for value in _temporaries(step) if last_use[value] == place]
        for value in ended:
            if value in assigned:
                available.append(assigned[value])
        available.sort(key=free.index)
        for result in step.results:
            if not _is_temporary(result) or result in assigned:
                continue
            if not available:
                raise InternalError(
                    f"{program.name} needs more than {len(free)} temporaries at "
                    f"step {place}, {step.instr.name}"
                )
            assigned[result] = available.pop(0)
            if last_use[result] == place:
                available.insert(0, assigned[result])
    return assigned


def _temporaries(step: Step) -> list[Value]:
    return [value for value in dict.fromkeys(step.operands) if _is_temporary(value)]


def _is_temporary(given: Argument) -> TypeGuard[Value]:
    return isinstance(given, Value) and not given.name
