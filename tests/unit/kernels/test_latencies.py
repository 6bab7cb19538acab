"""Latencies of instructions in the timing of cores agree with LLVM's scheduling models.

A chain of one instruction, each of which needs the result of the one before, takes the
latency per instruction. Both models predict it. LLVM's are written by others, so each
difference is either an error on one side or has a reason.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.targets.core_timing import CoreTiming, core_timings
from firmwright.targets.cycle_model import repeated_cycles
from firmwright.targets.disassembly import AssemblySyntax
from tests.unit.kernels.cores import CORES
from tests.unit.kernels.test_instructions_in_disassembly import read, rows
from tests.unit.kernels.trials import Trial, trials_of

PROGRAMS = ("llvm-mca-19", "llvm-mca")
UNITS = {"cortex-m4": "M4Unit", "cortex-m7": "M7Unit", "cortex-m55": "M55Unit"}
"""Resources of the models. LLVM before 19 has none of Cortex-M55."""
REGISTERS = {
    RegisterClass.CORE: [f"r{number}" for number in range(8)],
    RegisterClass.EVEN: [f"r{number}" for number in range(0, 13, 2)],
    RegisterClass.FLOAT: [f"s{number}" for number in range(8)],
    RegisterClass.VECTOR: [f"q{number}" for number in range(8)],
}
ITERATIONS = 100
ONE_CYCLE = "the Technical Reference Manual states one cycle"
STALL = "LLVM has no stall of an instruction that needs the result at once"
MEASURED = "the table of the core states the source of its measurement"
OPEN = "LLVM alone states it, and nobody has measured it for the table"
DIFFERENCES = {
    ("cortex-m4", "multiply", 1, 2): ONE_CYCLE,
    ("cortex-m4", "multiply_add", 1, 2): ONE_CYCLE,
    ("cortex-m4", "multiply_long", 1, 2): ONE_CYCLE,
    ("cortex-m4", "divide", 6, 2): "2 to 12 cycles by the operands",
    ("cortex-m4", "float", 2, 1): STALL,
    ("cortex-m4", "chained", 4, 3): STALL,
    ("cortex-m4", "float_divide", 15, 14): STALL,
    ("cortex-m7", "divide", 7, 6): MEASURED,
    ("cortex-m7", "float_divide", 16, 13): MEASURED,
    ("cortex-m7", "chained", 4, 3): MEASURED,
    ("cortex-m7", "bits", 2, 1): "the operand of REV and RBIT is needed early",
    ("cortex-m7", "bits", 1, 2): OPEN,  # saturation
    ("cortex-m7", "bits", 1, 3): OPEN,  # QDADD
    ("cortex-m55", "divide", 7, 2): "the table assumes that of Cortex-M7",
    ("cortex-m55", "bits", 2, 1): OPEN,  # CLZ, REV, BFI, extensions
    ("cortex-m55", "vector", 2, 1): OPEN,  # writes of single lanes
}
"""Why latencies differ, by core, kind or variant, our latency and LLVM's."""


@dataclass(frozen=True)
class Chain:
    """An instruction whose first result is its operand `name`, or its address."""

    name: str
    trial: Trial


def chains_of(trial: Trial) -> Iterator[Chain]:
    """Yield a chain for each operand that can be the first result.

    LLVM knows nothing of how many registers a multiple access has.
    """
    instr = trial.instr
    first = instr.results[0]
    is_single = not (instr.is_sequence or instr.is_predicated)
    places = {part.name: part.place for part in (*instr.results, *instr.operands)}
    has_unknown = any(
        isinstance(place, RegisterPlace)
        and (place.kind not in REGISTERS or "-" in trial.registers[name])
        for name, place in places.items()
    )
    memory = instr.memory
    is_multiple = memory is not None and len(instr.results) > 1
    if not is_single or has_unknown or is_multiple:
        return
    kinds = {n: p.kind for n, p in places.items() if isinstance(p, RegisterPlace)}
    if trial.address is not None and memory is not None:
        kinds["base"] = RegisterClass.CORE
        if trial.address.index and not memory.index:
            kinds["index"] = RegisterClass.CORE
    for name, kind in kinds.items():
        # An updated result is a chain of its own, gathers exclude their indexes.
        is_read = (name == first.name) == (first.name in instr.updated)
        is_gather = memory is not None and memory.index == name
        is_other = any(result.name == name for result in instr.results[1:])
        can_be = kinds.get(first.name) is kind and not (is_gather or is_other)
        if can_be and is_read:
            yield Chain(name, _chained(trial, kinds, name))


def _chained(trial: Trial, kinds: Mapping[str, RegisterClass], name: str) -> Trial:
    first = trial.instr.results[0].name
    names = [first, *(other for other in kinds if other not in (first, name))]
    registers = {item: REGISTERS[kinds[item]][at] for at, item in enumerate(names)}
    registers[name] = registers[first]
    address, memory = trial.address, trial.instr.memory
    if address is None or memory is None:
        return replace(trial, registers=registers)
    index = registers[memory.index or "index"] if address.index else ""
    address = replace(address, base=registers["base"], index=index)
    return replace(trial, registers=registers, address=address)


def chains(core: str) -> list[Chain]:
    found: list[Chain] = []
    for name, entry in CORES.items():
        if name.split()[0] == core:
            for instr in (instr for table in entry.sets for instr in rows(table)):
                found += chains_of(trials_of(instr, entry)[0])
    return found


def latencies_by_llvm(program: str, core: str, texts: Sequence[str]) -> list[int]:
    """Return the latencies of instructions, [] if LLVM has no model of the core."""
    regions = [f"# LLVM-MCA-BEGIN\n{text}\n# LLVM-MCA-END\n" for text in texts]
    command = [program, "-mtriple=thumbv8.1m.main-none-eabi", f"-mcpu={core}"]
    command += [f"-iterations={ITERATIONS}", "-instruction-info=0"]
    if core == "cortex-m55":
        command.append("-mattr=+mve.fp")
    done = subprocess.run(
        command, input="".join(regions), capture_output=True, text=True
    )
    if "unsupported instruction" in done.stderr:
        return []
    assert done.returncode == 0, done.stderr
    if UNITS[core] not in done.stdout:
        return []
    cycles = re.findall(r"^Total Cycles: +(\d+)$", done.stdout, re.M)
    assert len(cycles) == len(texts), done.stderr
    return [round(int(number) / ITERATIONS) for number in cycles]


@dataclass(frozen=True)
class Comparison:
    """Differences without a reason, with the operands of chains, and those with one."""

    unexplained: Mapping[tuple[str, str, int, int], Sequence[str]]
    explained: frozenset[tuple[str, str, int, int]]


def own_latencies(timing: CoreTiming, measured: Sequence[Chain]) -> list[int]:
    latencies = []
    for chain in measured:
        (part,) = read(chain.trial, AssemblySyntax.ARM)
        latencies.append(round(repeated_cycles(timing, [part])))
    return latencies


def compare(
    core: str, timing: CoreTiming, measured: Sequence[Chain], others: Sequence[int]
) -> Comparison:
    unexplained: dict[tuple[str, str, int, int], list[str]] = {}
    explained = set()
    owns = own_latencies(timing, measured)
    for chain, own, other in zip(measured, owns, others, strict=True):
        (part,) = read(chain.trial, AssemblySyntax.ARM)
        key = (core, part.variant or part.kind, own, other)
        if own != other and key in DIFFERENCES:
            explained.add(key)
        elif own != other:
            named = f"{chain.trial.instr.name}.{chain.name}"
            unexplained.setdefault(key, []).append(named)
    return Comparison(unexplained, frozenset(explained))


@pytest.mark.deep
@pytest.mark.parametrize("core", UNITS)
def test_latencies_are_those_of_llvm(core: str) -> None:
    program = next((name for name in PROGRAMS if shutil.which(name)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(PROGRAMS)} is installed")
    measured = chains(core)
    texts = [chain.trial.text for chain in measured]
    others = latencies_by_llvm(program, core, texts)
    if not others:
        pytest.skip(f"{program} has no model of {core}")
    found = compare(core, core_timings()[core], measured, others)
    assert found.unexplained == {}
    assert found.explained == {key for key in DIFFERENCES if key[0] == core}


def test_a_wrong_latency_is_named() -> None:
    core = "cortex-m7"
    timing = core_timings()[core]
    measured = chains(core)
    right = own_latencies(timing, measured)
    assert compare(core, timing, measured, right).unexplained == {}
    wrong = replace(timing, latency={**timing.latency, "narrow": 4})
    found = compare(core, wrong, measured, right).unexplained
    names = {name for named in found.values() for name in named}
    assert "ldrsb_indexed.index" in names
    assert not names & {"ldr_indexed.index", "smlad.acc"}
