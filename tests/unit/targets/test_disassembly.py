"""Instructions are read from lines of objdump and cover all code of real images."""

import re
from dataclasses import replace

import pytest

from firmwright.boards import load_board
from firmwright.build.disassembler import disassemble
from firmwright.build.elf_reader import read_contents
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.targets.core_timing import core_timings
from firmwright.targets.cycle_model import Executed, modeled_cycles
from firmwright.targets.disassembly import AssemblySyntax, Instruction, read_disassembly


def read(line: str, syntax: AssemblySyntax = AssemblySyntax.ARM) -> Instruction:
    ((_, instruction),) = read_disassembly(line, syntax)
    return instruction


def sets(*groups: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(group.split()) for group in groups)


ARM = [
    ("4024:\tb508      \tpush\t{r3, lr}", 2, "store_multiple", 2, ("", "r3 lr", "sp")),
    ("402a:\tbd08      \tpop\t{r3, pc}", 2, "load_multiple", 2, ("r3 pc", "", "sp")),
    (
        "4034:\tf502 4300 \tadd.w\tr3, r2, #32768\t@ 0x8000",
        4,
        "alu",
        1,
        ("r3", "r2", ""),
    ),
    ("15d6:\t3308      \tadds\tr3, #8", 2, "alu", 1, ("r3", "r3", "")),
    (
        "4030:\t4b18      \tldr\tr3, [pc, #96]\t@ (4094 <main+0x68>)",
        2,
        "load",
        1,
        ("r3", "", "pc"),
    ),
    ("4038:\tf802 3f01 \tstrb.w\tr3, [r2, #1]!", 4, "store", 1, ("r2", "r3", "r2")),
    ("2d56:\tf850 1b04 \tldr.w\tr1, [r0], #4", 4, "load", 1, ("r1 r0", "", "r0")),
    (
        "10:\te8b1 0005 \tldmia.w\tr1!, {r0, r2}",
        4,
        "load_multiple",
        2,
        ("r0 r2 r1", "", "r1"),
    ),
    ("14:\te9d1 2300 \tldrd\tr2, r3, [r1]", 4, "load_multiple", 2, ("r2 r3", "", "r1")),
    (
        "18:\tfb23 4105 \tsmlad\tr1, r3, r5, r4",
        4,
        "multiply_add",
        1,
        ("r1", "r3 r5 r4", ""),
    ),
    (
        "1c:\tfbc2 0103 \tsmlal\tr0, r1, r2, r3",
        4,
        "multiply_long",
        1,
        ("r0 r1", "r0 r1 r2 r3", ""),
    ),
    ("20:\tbf18      \tit\tne", 2, "if_then", 1, ("", "", "")),
    ("22:\t2001      \tmovne\tr0, #1", 2, "alu", 1, ("r0", "", "")),
    ("24:\tedd2 7a00 \tvldr\ts15, [r2]", 4, "load", 1, ("s15", "", "r2")),
    (
        "28:\teee7 7a26 \tvfma.f32\ts5, s4, s3",
        4,
        "float_multiply_add",
        1,
        ("s5", "s5 s4 s3", ""),
    ),
    ("2c:\tee20 0a29 \tvmul.f32\ts0, s0, s19", 4, "float", 1, ("s0", "s0 s19", "")),
    ("30:\td1ec      \tbne.n\t1ca2 <loop+0x8>", 2, "branch", 1, ("", "", "")),
    ("34:\tf7ff ffe2 \tbl\t39f4 <tvmgen_run>", 4, "call", 1, ("", "", "")),
    ("38:\tf00f c023 \tle\tlr, 4 <loop>", 4, "loop", 1, None),
    ("3c:\ted90 1e00 \tvldrb.8\tq0, [r0]", 4, "vector_load", 1, ("q0", "", "r0")),
    (
        "40:\teef2 2e00 \tvmladava.s8\tr2, q1, q0",
        4,
        "vector",
        1,
        ("r2", "r2 q1 q0", ""),
    ),
    (
        "40: f2 ee 00 2e  \tvmlava.s8\tr2, q1, q0",
        4,
        "vector",
        1,
        ("r2", "r2 q1 q0", ""),
    ),
]
RISCV = [
    ("80000120:\t4110                \tlw\ta2,0(a0)", 2, "load", ("a2", "", "a0")),
    ("80000122:\t00c5a023          \tsw\ta2,0(a1)", 4, "store", ("", "a2", "a1")),
    (
        "80000126:\t02b50533          \tmul\ta0,a0,a1",
        4,
        "multiply",
        ("a0", "a0 a1", ""),
    ),
    (
        "8000012a:\tfe0518e3          \tbnez\ta0,8000011a <loop>",
        4,
        "branch",
        ("", "a0", ""),
    ),
    ("8000012e:\t8082                \tret", 2, "branch", ("", "", "")),
]


@pytest.mark.parametrize(("line", "size_bytes", "kind", "words", "registers"), ARM)
def test_thumb(line, size_bytes, kind, words, registers):
    got = read(line)
    assert (got.size_bytes, got.kind, got.words) == (size_bytes, kind, words)
    if registers is not None:
        assert (got.writes, got.reads, got.address) == sets(*registers)


@pytest.mark.parametrize(("line", "size_bytes", "kind", "registers"), RISCV)
def test_riscv(line, size_bytes, kind, registers):
    got = read(line, AssemblySyntax.RISCV)
    assert (got.size_bytes, got.kind) == (size_bytes, kind)
    assert (got.writes, got.reads, got.address) == sets(*registers)


@pytest.mark.qemu
def test_no_byte_of_the_code_of_an_image_is_missing(digits_path):
    board = load_board("mps3-an547")
    image = build_image(compile_for(load_model(digits_path), board.name))
    found = disassemble(board, image.elf)
    symbols = [
        s
        for s in image.sizes.symbols
        if s.kind == "text" and s.name.startswith("digits_")
    ]
    assert symbols
    sections = read_contents(image.elf, only_code=True)
    # Every word that is not code is one of a literal that code reads relative to the pc.
    literals: set[int] = set()
    for address, instruction in found.items():
        read_of_pc = re.search(r"(\bd\d+, )?\[pc, #(-?\w+)\]", instruction.text)
        if read_of_pc:
            first = (address + 4 & ~3) + int(read_of_pc[2], 0)
            literals |= {first, first + 4} if read_of_pc[1] else {first}
    for symbol in symbols:
        at = symbol.address & ~1
        end = at + symbol.size_bytes
        while at < end:
            assert at in found or at in literals, f"{symbol.name}: {at:#x}"
            at += found[at].size_bytes if at in found else 4
    assert all(any(0 <= a - s < len(c) for s, c in sections) for a in list(found)[::97])


VARIANTS = [
    ("add.w\tr0, r1, r2, lsl #3", "shifted"),
    ("uxtb\tr0, r1", "bits"),
    ("adds\tr0, #4", "simple"),
    ("ldrsb.w\tr0, [r1]", "narrow"),
    ("vldr\ts0, [r1]", "float_access"),
    ("vmla.f32\ts0, s1, s2", "chained"),
    ("vmul.i32\tq0, q1, q2", "vector_multiply"),
    ("vqrdmulh.s32\tq0, q1, q2", "vector_multiply"),
    ("vrshl.s32\tq0, q1, q2", "vector_round"),
    ("vqmovnb.s32\tq0, q1", "vector_narrow"),
    ("vadd.i32\tq0, q1, q2", ""),
    ("wlstp.8\tlr, r7, 10c <f>", "loop_start"),
]


@pytest.mark.parametrize(("text", "variant"), VARIANTS)
def test_variants_refine_kinds(text, variant):
    assert read(f"10:\t0000 0000 \t{text}").variant == variant


def test_operands_have_stages():
    shifted = read("10:\tea4f 0000 \tadd.w\tr0, r1, r2, lsl #3")
    assert (shifted.reads, shifted.early) == sets("r1 r2", "r2")
    assert read("18:\tfb23 4105 \tsmlad\tr1, r3, r5, r4").late == {"r4"}
    assert read("18:\tfbc2 0103 \tsmlal\tr0, r1, r2, r3").late == {"r0", "r1"}
    assert read("18:\tfb80 0102 \tsmull\tr0, r1, r0, r2").late == set()
    assert read("38:\tf802 3f01 \tstrb.w\tr3, [r2, #1]!").base == {"r2"}
    assert read("30:\td1ec      \tbne.n\t1ca2 <loop+0x8>").target == 0x1CA2
    assert read("38:\tf00f c023 \tle\tlr, 0x4 <loop>").target == 4


def test_the_end_of_a_loop_of_xtensa_is_a_free_branch():
    """LOOP names the address behind the last instruction, which is none of its own."""
    text = """
  15:\t0a8876        \tloop\ta8, 22 <f+0x22>
  18:\t0a98      \tl32i.n\ta9, a10, 0
  1a:\t8299b0        \tmull\ta9, a9, a11
  1d:\tb299b0        \tmulsh\ta9, a9, a11
  20:\t229a      \tadd.n\ta2, a2, a9
  22:\tf01d      \tret.n
"""
    rows = dict(read_disassembly(text, AssemblySyntax.XTENSA))
    assert rows[0x15].kind == "loop"
    assert (rows[0x20].variant, rows[0x20].target) == ("loop_end", 0x18)
    assert rows[0x20].kind == "alu"
    assert rows[0x1D].kind == "multiply"
    assert rows[0x22].target == 0
    counts = {0x15: (1, 0), 0x22: (1, 1)}
    lx6 = core_timings()["lx6"]

    def cycles(is_marked: bool) -> float:
        steps = []
        for address, row in rows.items():
            count, branched = counts.get(address, (100, 99 * (address == 0x20)))
            kept = row if is_marked else replace(row, variant="")
            steps.append(Executed(address, kept, count, branched))
        return modeled_cycles(lx6, steps)

    assert cycles(is_marked=False) - cycles(is_marked=True) == 99 * lx6.refill
