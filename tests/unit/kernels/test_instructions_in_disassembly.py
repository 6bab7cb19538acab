"""What timing reads from disassembly agrees with the tables of instructions.

The kind and the registers of an instruction follow from its text in both: here from the
semantics and the places of operands, there from patterns of mnemonics. Cores without a
board have no patterns.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from firmwright.ir import tir
from firmwright.ir.tir.traversal import walk
from firmwright.kernels.isa.instruction import (
    Instr,
    InstrOperand,
    InstructionSet,
    Memory,
    RegisterClass,
    RegisterPlace,
)
from firmwright.kernels.isa.thumb2 import mul
from firmwright.targets.disassembly import (
    AssemblySyntax,
    Instruction,
    Registers,
    read_disassembly,
)
from tests.unit.kernels.cores import CORES, Core
from tests.unit.kernels.trials import Trial, members, trials_of

TABLES = [
    pytest.param(table, core, table.syntax, id=f"{table.name}-{name}")
    for name, core in CORES.items()
    for table in core.sets
    if core.machine_without_board is None
    if any(instr.asm for instr in table)
]
PRODUCTS = {"float", "vector", "multiply", "multiply_add", "multiply_long"}
QUOTIENTS = {"float", "divide"}


def read(trial: Trial, syntax: AssemblySyntax) -> list[Instruction]:
    """Return the instructions of a trial as the disassembler's output is read."""
    lines = []
    for number, text in enumerate(trial.text.split("\n\t")):
        mnemonic, _, operands = text.partition(" ")
        lines.append(f"{4 * number:x}:\t00000000 \t{mnemonic}\t{operands}")
    found = read_disassembly("\n".join(lines), syntax)
    return [instruction for _, instruction in found]


def registers_of(trial: Trial, operands: Sequence[InstrOperand]) -> Registers:
    """Return registers except the predicate of Helium, which timing does not track."""
    names: set[str] = set()
    for operand in operands:
        place = operand.place
        if (
            isinstance(place, RegisterPlace)
            and place.kind is not RegisterClass.PREDICATE
        ):
            names |= set(members(trial.registers[operand.name]))
    return frozenset(names)


def expected_kinds(instr: Instr) -> set[str]:
    """Return the words of which one is in the kind of an instruction; {""} for all."""
    for operands, kind in ((instr.results, "store"), (instr.operands, "load")):
        if any(isinstance(operand.place, Memory) for operand in operands):
            return {kind}
    numbers = {
        operand.name: values[0]
        for operand in instr.operands
        if (values := getattr(operand.place, "values", None))
    }
    operators = {
        node.op
        for lanes in instr.expressions(numbers)
        for lane in lanes
        for node in walk(lane)
        if isinstance(node, tir.Binary)
    }
    if "div" in operators or "mod" in operators:
        return QUOTIENTS
    return PRODUCTS if "mul" in operators else {""}


def written_and_read(trial: Trial) -> tuple[Registers, Registers]:
    """Return the registers of results and operands, and those of the address."""
    writes = registers_of(trial, trial.instr.results)
    reads = registers_of(trial, trial.instr.operands)
    address = trial.address
    if address is None:
        return writes, reads
    base = frozenset({address.base})
    reads |= base | {address.index} - {""}
    return (writes | base if address.advance else writes), reads


def rows(table: InstructionSet) -> list[Instr]:
    return [instr for instr in table if instr.asm]


@pytest.mark.parametrize(("table", "core", "syntax"), TABLES)
def test_registers_are_those_of_the_operands(
    table: InstructionSet, core: Core, syntax: AssemblySyntax
) -> None:
    wrong = []
    for trial in (trial for instr in rows(table) for trial in trials_of(instr, core)):
        parts = read(trial, syntax)
        writes, reads = written_and_read(trial)
        found = frozenset[str]().union(*(part.writes for part in parts))
        used = frozenset[str]().union(*(part.reads | part.address for part in parts))
        if trial.instr.is_sequence or trial.instr.is_predicated:
            # Parts read what earlier ones write, or lanes stay as they were.
            used, reads = used - writes, reads - writes
        if (found, used) != (writes, reads):
            wrong.append((trial.text, sorted(found ^ writes), sorted(used ^ reads)))
    assert wrong == []


@pytest.mark.parametrize(("table", "core", "syntax"), TABLES)
def test_kinds_follow_from_the_semantics(
    table: InstructionSet, core: Core, syntax: AssemblySyntax
) -> None:
    wrong = []
    for instr in rows(table):
        kinds = {part.kind for part in read(trials_of(instr, core)[0], syntax)}
        words = expected_kinds(instr)
        if not any(word in kind for word in words for kind in kinds):
            wrong.append((instr.name, kinds, words))
    assert wrong == []


@pytest.mark.parametrize("asm", ["add {d}, {a}, {b}", "ldr {d}, [{a}, {b}]"])
def test_a_planted_mnemonic_is_found(asm: str) -> None:
    table = InstructionSet("planted", frozenset())
    table.row(asm, mul.signature, mul.semantics)
    with pytest.raises(AssertionError, match="multiply"):
        test_kinds_follow_from_the_semantics(
            table, CORES["cortex-m4"], AssemblySyntax.ARM
        )


def test_planted_registers_are_found() -> None:
    table = InstructionSet("planted", frozenset())
    table.row("cmp {a}, {b}", mul.signature, mul.semantics)
    with pytest.raises(AssertionError, match="cmp"):
        test_registers_are_those_of_the_operands(
            table, CORES["cortex-m4"], AssemblySyntax.ARM
        )
