"""What a crash of a compilation's firmware means: the operator, the line, the stack.

In: a `Compilation` and the image that runs. Out: sentences for a fault report. The operator is the
one
that the probes of a profile image name; in a release image it is found by the kernel in which the
processor was, which may serve several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from firmwright.artifacts import Image
from firmwright.device import Fault
from firmwright.device.source_lines import SourceLocation, find_source_lines
from firmwright.pipeline import Compilation


def make_fault_explainer(
    compiled: Compilation, image: Image, prefix: str
) -> Callable[[Fault], str]:
    """Says of a fault what the image and the model know; `prefix` begins the model's functions."""

    def explain(fault: Fault) -> str:
        at, caller = _places(compiled, image, fault)
        said = [
            _operator(compiled, fault, [*at, *caller], prefix),
            f"It stood in {_path(at)}." if at else "",
            f"That was called from {_path(caller)}." if caller else "",
            _stack(image, fault),
        ]
        return " ".join(filter(None, said))

    return explain


def _places(
    compiled: Compilation, image: Image, fault: Fault
) -> tuple[tuple[SourceLocation, ...], tuple[SourceLocation, ...]]:
    """Where the program counter points, and the call before the return address."""
    counter = fault.register("pc", "mepc")
    returns = fault.register("lr", "ra")
    if counter is None or returns is None:
        return (), ()
    # Bit 0 of a return address is the instruction set's; the call stands before it.
    addresses = (counter, max((returns & ~1) - 2, 0))
    at, caller = find_source_lines(image.elf, addresses, toolchain=compiled.board.toolchain)
    return at, caller if caller != at else ()


def _path(places: Iterable[SourceLocation]) -> str:
    return ", inlined into ".join(map(str, places))


def _operator(
    compiled: Compilation, fault: Fault, places: Iterable[SourceLocation], prefix: str
) -> str:
    rows = compiled.metadata["operators"]
    if fault.operator is not None:
        found = [row for row in rows if row["index"] == fault.operator]
    else:
        kernels = {place.function.removeprefix(f"{prefix}_") for place in places}
        found = [row for row in rows if row["kernel"] in kernels]
    if not found:
        return ""
    names = ", or ".join(_named(row) for row in found)
    return f"The operator is {names}."


def _named(row: dict[str, Any]) -> str:
    return f"{row['index']}, {row['name']} ({row['kind']}, {row['span'] or row['tensor']})"


def _stack(image: Image, fault: Fault) -> str:
    reserve = image.sizes.bytes_of("stack")
    used = fault.stack_used_bytes
    if not reserve or not used:
        return ""
    full = " It is full: most likely that is the cause." if used >= reserve else ""
    return f"Of {reserve:,} bytes of stack {used:,} were used.{full}"
