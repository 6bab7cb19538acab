"""Bounds of small functions, known from their loops, in five cores' machine code."""

import re
import shutil
import subprocess
from functools import reduce
from pathlib import Path

import pytest

from firmwright.build.elf_reader import read_contents, read_sections_and_symbols
from firmwright.targets.block_cycle_bound import CycleBound
from firmwright.targets.core_timing import core_timings
from firmwright.targets.disassembly import read_disassembly, syntax_of
from firmwright.targets.machine_code import MachineCode, UnknownPathError, store
from firmwright.targets.path_analysis import PathAnalysis, WorstPath

SOURCE = r"""
#define NOPS(n) __asm__ volatile(".rept " #n "\n nop\n .endr")
volatile int data[8];
int kept[8];
__attribute__((noinline)) static void three(void) { NOPS(3); }
__attribute__((noinline)) static void five(void) { NOPS(5); }
static void (*const functions[])(void) = {three, five, three};
static const unsigned char sizes[] = {4, 0, 9};
__attribute__((noinline)) static void nops(int n) { while (n-- > 0) { NOPS(1); } }

const int numbers[] = {2256, 48, 4095, 100, 7, 9, -2256, -48};
void quotients(void)
{
    const int *p = numbers;
    __asm__("" : "+r"(p));
    for (int i = 0; i < 8; i += 2) { nops(p[i] / p[i + 1]); }
}
void straight(void) { NOPS(7); }
void counted(void) { for (int i = 0; i < 17; ++i) { NOPS(1); } }
void nested(void) { for (int i = 0; i < 5; ++i) { for (int j = 0; j <= i; ++j) { NOPS(1); } } }
#define SIDES(n) for (int i = 0; i < 10; ++i) { if (data[0] > i) { NOPS(n); } else { NOPS(2); } }
void slower(void) { SIDES(9) }
void faster(void) { SIDES(4) }
void ended(void) { for (int i = 0; i < 8; ++i) { NOPS(1); if (data[i] == 3) { break; } } }
void pointers(void) { functions[0](); functions[1](); }
void tables(void) { for (int i = 0; i < 3; ++i) { nops(sizes[i]); } }
void copied(void) { for (int *p = kept; p != kept + 8; ++p) { *p = *p > 3 ? *p : 3; NOPS(1); } }
void divided(void) { kept[0] = data[0] / data[1]; NOPS(1); }
void chosen(void)
{
    switch (data[0]) {
    case 0: NOPS(1); break;
    case 1: NOPS(2); break;
    case 2: NOPS(3); break;
    case 3: NOPS(4); break;
    case 4: NOPS(11); break;
    case 5: NOPS(5); break;
    default: break;
    }
}
float fraction[3];
void fractions(void) { fraction[0] = fraction[1] / fraction[2]; }
void long_loop(void) { for (int i = 0; i < 5000; ++i) { NOPS(1); } }
void sized(void) { for (int i = data[0]; i > 0; --i) { NOPS(1); } }
void endless(void) { while (data[0] != 0) { NOPS(1); } }
void scattered(void) { kept[data[0]] = 1; }
"""
NAMES = re.findall(r"^void (\w+)", SOURCE, re.MULTILINE)
PORT = Path(__file__).parents[3] / "runtime_c/port"
XTENSA_LIBRARY = [
    "-ffreestanding",
    f"-I{PORT}",
    *map(str, sorted((PORT / "xtensa").glob("gcc_*.c"))),
]
CORES = {
    "cortex-m0": ("arm-none-eabi-", ["-mcpu=cortex-m0", "-mthumb"]),
    "cortex-m4": ("arm-none-eabi-", ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=soft"]),
    "cortex-m33": ("arm-none-eabi-", ["-mcpu=cortex-m33", "-mthumb"]),
    "rv32imac": ("riscv64-unknown-elf-", ["-march=rv32imac", "-mabi=ilp32"]),
    "lx106": ("xtensa-lx106-elf-", ["-mtext-section-literals", *XTENSA_LIBRARY]),
}
# The NOPs that may be executed.
NOPS = {
    "straight": 7,
    "counted": 17,
    "nested": 15,
    "ended": 8,
    "pointers": 8,
    "tables": 13,
    "quotients": 47 + 40 + 0 + 47,
    "copied": 8,
    "divided": 1,
}


class Program:
    def __init__(self, core: str, folder: Path) -> None:
        prefix, flags = CORES[core]
        if shutil.which(f"{prefix}gcc") is None:
            pytest.skip(f"{prefix}gcc is not installed")
        callers = "".join(f"void call_{name}(void) {{ {name}(); }}\n" for name in NAMES)
        source = folder / "functions.c"
        source.write_text(SOURCE)
        (folder / "callers.c").write_text(
            "".join(f"void {name}(void);\n" for name in NAMES) + callers
        )
        elf = folder / "functions.elf"
        files = [str(source), str(folder / "callers.c")]
        link = [
            "-nostartfiles",
            "-nostdlib",
            "-Wl,-e,straight",
            "-o",
            str(elf),
            *files,
            "-lgcc",
        ]
        subprocess.run([f"{prefix}gcc", "-O2", *flags, *link], check=True)
        command = [f"{prefix}objdump", "-d", str(elf)]
        text = subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout
        syntax = syntax_of(core)
        _, symbols = read_sections_and_symbols(elf)
        functions = [
            (s.address & ~1, s.size_bytes, s.name) for s in symbols if s.kind == "text"
        ]
        self.starts = {name: start for start, _, name in functions}
        (self.data,) = [s.address for s in symbols if s.name == "data"]
        instructions = dict(read_disassembly(text, syntax))
        self.code = MachineCode(syntax, instructions, read_contents(elf), functions)
        self.core = core

    def analysis(self) -> PathAnalysis:
        return PathAnalysis(CycleBound(self.code, core_timings().get(self.core)))

    def worst(self, name: str) -> WorstPath:
        return self.analysis().run(self.starts[f"call_{name}"], self.starts[name])

    def nops(self, path: WorstPath) -> int:
        texts = (
            (self.code.instructions[a].text, n) for a, n in path.executions.items()
        )
        return sum(n for text, n in texts if text.startswith("nop"))


@pytest.fixture(scope="module", params=CORES)
def program(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Program:
    return Program(request.param, tmp_path_factory.mktemp("functions"))


def test_loops_of_known_counts_have_exact_bounds(program: Program):
    assert {name: program.nops(program.worst(name)) for name in NOPS} == NOPS


def test_the_slower_side_of_each_branch_counts(program: Program):
    slower, faster = program.worst("slower"), program.worst("faster")
    assert slower.instructions - faster.instructions == 10 * (9 - 4)
    if program.core in core_timings():
        assert slower.cycles - faster.cycles == 10 * (9 - 4)


def test_the_counts_of_the_worst_path_add_up_to_its_instructions(program: Program):
    for name in ("slower", "faster", "chosen", "nested", "ended", "fractions"):
        path = program.worst(name)
        assert sum(path.counts.values()) == path.instructions, name
        assert all(n <= path.executions[a] for a, n in path.counts.items())
    chosen = program.worst("chosen")
    counted = ((program.code.instructions[a].text, n) for a, n in chosen.counts.items())
    assert sum(n for text, n in counted if text.startswith("nop")) == 11


def test_known_words_in_memory_bound_loops(program: Program):
    analysis = program.analysis()
    starts = program.starts["call_sized"], program.starts["sized"]
    paths: list[WorstPath] = []
    for count in (5, 3, 8):
        memory = {program.data: count}
        paths.append(analysis.run(*starts, memory))
        assert program.nops(paths[-1]) == count
    assert reduce(WorstPath.joined, paths) == paths[-1]
    with pytest.raises(UnknownPathError, match="number of iterations"):
        program.worst("sized")


def test_a_word_is_unknown_after_a_store_to_one_of_its_bytes():
    memory = {0x2000_0000: 5, 0x2000_0004: 6}
    store(memory, 0x2000_0003, 7, 1)
    assert memory == {0x2000_0004: 6}


def test_jump_tables_are_read(program: Program):
    path = program.worst("chosen")
    assert program.nops(path) == 1 + 2 + 3 + 4 + 11 + 5  # each side once
    assert 11 < path.instructions < 11 + 16


def test_soft_float_divisions_have_bounds(program: Program):
    """The loops of libgcc's routines depend on the operands."""
    assert 60 < program.worst("fractions").instructions < 600


def test_a_bound_ends_after_its_time(program: Program):
    cycles = CycleBound(program.code)
    analysis = PathAnalysis(cycles, timeout_s=-1)
    starts = program.starts["call_long_loop"], program.starts["long_loop"]
    with pytest.raises(UnknownPathError, match=r"did not end within .*--timeout"):
        analysis.run(*starts)


def test_cycles_are_at_least_instructions(program: Program):
    path = program.worst("nested")
    assert path.cycles > path.instructions or program.core not in core_timings()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("endless", "number of iterations"), ("scattered", "a store goes to an address")],
)
def test_paths_without_a_bound_name_the_place(program: Program, name: str, reason: str):
    with pytest.raises(
        UnknownPathError, match=rf"{name}\+0x[0-9a-f]+ \(0x[0-9a-f]+\): .*{reason}"
    ):
        program.worst(name)
