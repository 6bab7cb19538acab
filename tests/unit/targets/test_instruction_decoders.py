"""The decoders agree with the disassembler on all code of real images."""

import re
import subprocess
from pathlib import Path

import pytest

from firmwright.boards import load_board
from firmwright.build.compiler_flags import gnu_tool
from firmwright.build.elf_reader import read_code_sections
from firmwright.flows.compilation import compile_for
from firmwright.flows.firmware_images import build_image
from firmwright.flows.model import load_model
from firmwright.targets import instruction_decoders
from firmwright.targets.instruction_decoders import Instruction

# The first pattern that matches the whole mnemonic (without width suffix) names the kind.
ARM_KINDS = (
    (r"v(ld|st)r(eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)?", "float_memory"),
    (r"vld(m.*|r[bhwd].*|[24]\d)|vstm.*|vstr[bhwd].*|vst[24]\d|vpop|vpush", "memory_block"),
    (r"v.*", "float_or_vector"),
    (r"ldr(|b|h|sb|sh|t|bt|ht|ex.?)|lda.?(ex.?)?", "load"),
    (r"str(|b|h|t|bt|ht|ex.?)|stl.?(ex.?)?", "store"),
    (r"ldrd|ldm.*|pop", "load_multiple"),
    (r"strd|stm.*|push", "store_multiple"),
    (r"[su]div", "divide"),
    (r"[us]ml[as]l.*|[us]mull|umaal|sml[as]ld.*", "multiply_long"),
    (r"muls?|ml[as]|sml.*|smm.*|smu.*|usad.*", "multiply"),
    (r"blx?", "call"),
    (r"b|bx|bxns|cbn?z|tb[bh]|b(eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)", "branch"),
    # Armv8.1-M instructions that the disassembler decodes as older ones.
    (r"bfcsel", "loop"),
    (r"ldc.*", "vector_load"),
    (r"stc.*", "vector_store"),
    (r"cdp.*|mcr.*|mrc.*", "float_or_vector"),
    (r"le(tp)?|wls.*|dls.*|lctp", "loop"),
    (r".*", "alu"),
)
RISCV_KINDS = (
    (r"l[bhw]u?|lr\.w|amo.*|sc\.w.*|lr\.w.*", "load"),
    (r"s[bhw]", "store"),
    (r"mul", "multiply"),
    (r"mulh.*", "multiply_long"),
    (r"div.*|rem.*", "divide"),
    (r"jal|jalr", "call"),
    (r"b(eq|ne|lt|ge|gt|le)u?z?|j|jr|ret|tail", "branch"),
    (r".*", "alu"),
)
GROUPS = {
    "float_memory": {"load", "store", "load_multiple", "store_multiple", "vector_load"}
    | {"vector_store"},
    "memory_block": {"load_multiple", "store_multiple", "vector_load", "vector_store"},
    "float_or_vector": {"float", "float_multiply_add", "float_divide", "vector"},
}
SUFFIX = re.compile(r"\.(n|w)$")
LINE = re.compile(r"^\s*([0-9a-f]+):\t((?:[0-9a-f]{4,8} ?)+)\s*\t([a-z][a-z0-9.]*)(.*)$")


def disassembled(image, board_name: str):
    """Yield address, size, mnemonic and operands of every instruction."""
    command = [gnu_tool(load_board(board_name), "objdump"), "-d", str(image.elf)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        match = LINE.match(line)
        if match:
            address, code, mnemonic, rest = match.groups()
            yield int(address, 16), len(code.replace(" ", "")) // 2, mnemonic, rest.strip()


def expected(mnemonic: str, operands: str, table) -> set[str]:
    plain = SUFFIX.sub("", mnemonic)
    kind = next(kind for pattern, kind in table if re.fullmatch(pattern, plain))
    if plain == "jalr" and operands.startswith("zero"):
        kind = "branch"
    return GROUPS.get(kind, {kind})


def check(path: Path, board: str, decode, table, conditional: bool) -> int:
    image = build_image(compile_for(load_model(path), board))
    sections = read_code_sections(image.elf)

    def code_at(address: int) -> bytes:
        start, code = next((s, c) for s, c in sections if 0 <= address - s < len(c))
        return code[address - start : address - start + 4]

    seen, wrong = 0, []
    for address, size, mnemonic, operands in disassembled(image, board):
        if mnemonic in ("udf", "unimp") or not any(0 <= address - s < len(c) for s, c in sections):
            continue
        got: Instruction = decode(code_at(address))
        kinds = expected(mnemonic, operands, table)
        if conditional and "alu" in kinds | {got.kind}:
            # A mnemonic inside an IT block ends in its condition: try it without.
            kinds = kinds | expected(
                re.sub(r"(eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)(\.[nw])?$", "", mnemonic),
                operands,
                table,
            )
        if "pc," in operands[:3] and got.kind in ("branch", "load", "load_multiple"):
            continue
        seen += 1
        if got.size_bytes != size or got.kind not in kinds:
            wrong.append((hex(address), mnemonic, operands, got, kinds))
    assert not wrong, wrong[:12]
    return seen


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547", "microbit"])
@pytest.mark.parametrize("model", ["digits.tflite", "digits_float.tflite"])
def test_thumb_decoder_agrees_with_the_disassembler(board: str, model: str, digits_path):
    assert (
        check(
            digits_path.with_name(model), board, instruction_decoders.decode_thumb, ARM_KINDS, True
        )
        > 1000
    )


@pytest.mark.qemu("riscv32")
def test_riscv_decoder_agrees_with_the_disassembler(digits_path):
    assert (
        check(
            digits_path, "qemu-riscv32-virt", instruction_decoders.decode_rv32, RISCV_KINDS, False
        )
        > 1000
    )
