"""Explains a firmware fault in terms of the model: operator, source line and stack use.

A profile image reports the operator. In a release image, the kernel at the program
counter, which several operators may share, indicates it.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from firmwright.artifacts import Image
from firmwright.base.c_identifiers import without_abi_hash
from firmwright.base.child_process import Word, run_program
from firmwright.base.errors import ToolFailedError, ToolMissingError
from firmwright.device.fault_report import Fault
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A source line; an address in inlined functions has several, innermost first."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


def find_source_lines(
    elf: Path, addresses: Iterable[int], *, toolchain: str = ""
) -> tuple[tuple[SourceLocation, ...], ...]:
    """Return the locations of each address; `toolchain` is the GNU tools' prefix."""
    arguments = [f"{address:#x}" for address in addresses]
    tool = f"{toolchain}-addr2line" if toolchain else "addr2line"
    command: list[Word] = [tool, "-a", "-f", "-i", "-e", elf, *arguments]
    failure = f"{tool} cannot read the image."
    try:
        _, output = run_program(command, tool, timeout_s=TIMEOUT_S, failure=failure)
    except (ToolFailedError, ToolMissingError) as error:
        log.info("%s cannot find the source line: %s", tool, error)
        return tuple(() for _ in arguments)
    return _read(output, len(arguments))


def _read(text: str, count: int) -> tuple[tuple[SourceLocation, ...], ...]:
    groups: list[list[SourceLocation]] = []
    function = ""
    for line in text.splitlines():
        if line.startswith("0x"):
            groups.append([])
            function = ""
        elif not function:
            function = without_abi_hash(line)
        else:
            place, *_ = line.split(" (discriminator")
            file, _, number = place.rpartition(":")
            if number.isdigit() and function != "??" and groups:
                path = file.removeprefix("./")
                groups[-1].append(SourceLocation(function, path, int(number)))
            function = ""
    groups += [[] for _ in range(count - len(groups))]
    return tuple(tuple(group) for group in groups)


def make_fault_explainer(
    compiled: Compilation, image: Image, prefix: str
) -> Callable[[Fault], str]:
    """Return a function that describes a fault; C functions start with `prefix`."""

    def explain(fault: Fault) -> str:
        at, caller = _places(compiled, image, fault)
        sentences = [_operator(compiled, fault, [*at, *caller], prefix)]
        if at:
            sentences.append(f"The program counter was in {_path(at)}.")
        if caller:
            sentences.append(f"The caller was {_path(caller)}.")
        sentences.append(_stack(image, fault))
        return " ".join(sentence for sentence in sentences if sentence)

    return explain


def _places(
    compiled: Compilation, image: Image, fault: Fault
) -> tuple[tuple[SourceLocation, ...], tuple[SourceLocation, ...]]:
    """Return the lines of the program counter, and of the caller if they differ."""
    counter = fault.register("pc", "mepc", "epc1")
    returns = fault.register("lr", "ra", "a0")
    if counter is None or returns is None:
        return (), ()
    # Bit 0 of a return address selects the instruction set; the call precedes it.
    addresses = (counter, max((returns & ~1) - 2, 0))
    toolchain = compiled.board.toolchain
    at, caller = find_source_lines(image.elf, addresses, toolchain=toolchain)
    return at, caller if caller != at else ()


def _path(places: Iterable[SourceLocation]) -> str:
    return ", inlined into ".join(map(str, places))


def _operator(
    compiled: Compilation, fault: Fault, places: Iterable[SourceLocation], prefix: str
) -> str:
    """Return the sentence with the operator, or those sharing a kernel of `places`."""
    operators = compiled.summary.operators
    index = fault.operator
    if index is not None:
        matches = [operator for operator in operators if operator.index == index]
    else:
        kernels = {place.function.removeprefix(f"{prefix}_") for place in places}
        matches = [operator for operator in operators if operator.kernel in kernels]
    if not matches:
        return ""
    names: list[str] = []
    for operator in matches:
        origin = operator.span or operator.tensor
        names.append(f"{operator.index}, {operator.name} ({operator.kind}, {origin})")
    return f"The operator is {', or '.join(names)}."


def _stack(image: Image, fault: Fault) -> str:
    reserve_bytes = image.sizes.bytes_of("stack")
    used_bytes = fault.stack_used_bytes
    if not reserve_bytes or not used_bytes:
        return ""
    full = ""
    if used_bytes >= reserve_bytes:
        full = " It is full, which is the most likely cause."
    return f"{used_bytes:,} of {reserve_bytes:,} bytes of stack were in use.{full}"
