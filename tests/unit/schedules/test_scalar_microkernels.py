"""Scalar micro-kernels: numpy, portable C and assembly agree for every shape."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT16, INT32, UINT8, UINT32
from firmwright.build.compiler_flags import WARNINGS
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.expr_printer import ExprPrinter
from firmwright.codegen.used_helpers import UsedHelpers
from firmwright.ir.core import Constant
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.scalar import (
    conv2d_fully_connected,
    depthwise_conv2d,
    microkernels,
    packed_depthwise_conv2d,
    swar_conv2d,
    thumb1_conv2d_fully_connected,
)
from firmwright.schedules.scalar.conv2d_fully_connected import fits_address_offsets
from firmwright.schedules.scalar.microkernels import (
    MLA_FAMILY,
    RV32_PACKED_FAMILY,
    RV32M_FAMILY,
)
from tests.unit.kernels.cores import LX106, SPIKE, Machine
from tests.unit.kernels.images import build_image, run_image

THUMB1_BLOCKS = {
    item.name: item
    for item in thumb1_conv2d_fully_connected.INTRINSICS
    if item.name.startswith("thumb1")
}
FAMILIES = {item.name: item for item in microkernels.FAMILIES}
SIGNED = ("mla_bytes_2x4_1", "mla_tiles_2x4_1")
UNSIGNED = ("xtensa_unsigned_4x1_1",)
WORDS = ("rvp_words_4x1_1",)
DATA = {"mla": SIGNED, "rvm": SIGNED, "rvp": WORDS, "xtensa": UNSIGNED}
"""Kernels with the arrays of a family."""
STEPS = 24
"""A multiple of every tested unroll factor."""
PIXEL = 31
SEED = 5
LIMITS = {
    INT8: (-128, 127),
    INT16: (-9000, 9000),
    UINT8: (0, 255),
    UINT32: (0x80808080, 0x7F80FF01),
}


def blocks(family: str) -> list[Intrinsic]:
    """Return the shapes of a family with the unroll factor 3 and the greatest one."""
    ends = ("_3", f"_{FAMILIES[family].most_unrolled}")
    return [
        INTRINSICS[name]
        for name in microkernels.INTRINSIC_MAKERS
        if name.startswith(family) and name.endswith(ends)
    ]


def arrays(block: Intrinsic, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return w, x and start with extreme values."""
    rng = np.random.default_rng(seed)
    limits = LIMITS[block.operands[0].dtype]
    starts = rng.integers(-(1 << 20), 1 << 20, 16).astype(np.int32)
    size = (STEPS * 16, STEPS * 4 + 3 * PIXEL)
    w, x = (
        rng.choice([*limits, 0, 7], n).astype(block.operands[0].dtype.np) for n in size
    )
    return w, x, starts


def pixel_of(block: Intrinsic) -> int:
    return PIXEL if re.search("_(bytes|words)_", block.name) else 1


def expected(block: Intrinsic, seed: int) -> list[int]:
    w, x, start = (array[:, None] for array in arrays(block, seed))
    return [int(s[0]) for s in block.meaning(w, x, start, pixel_of(block), STEPS)]


def data(names: tuple[str, ...] = SIGNED) -> str:
    """Return the arrays of layouts in C."""
    lines = ["#include <stdint.h>", "extern int32_t out[16];", "int32_t out[16];"]
    for name in names:
        kind = INTRINSICS[name].operands[0].dtype.c_type
        for letter, array in zip("wxs", arrays(INTRINSICS[name], SEED), strict=True):
            values = ", ".join(map(str, array.tolist()))
            c_type = "int32_t" if letter == "s" else kind
            lines.append(f"static const {c_type} {letter}_{kind}[] = {{{values}}};")
    return "\n".join([*lines, ""])


def function(block: Intrinsic, body: str) -> str:
    """Return the micro-kernel as a C function, and a function that calls it."""
    sums = [operand.name for operand in block.operands if operand.kind == "out"]
    kind = block.operands[0].dtype.c_type
    return f"""
static inline __attribute__((always_inline)) void {block.name}(const {kind} *w, const {kind} *x,
    const int32_t *start, int32_t pixel, int32_t steps)
{{
    int32_t {", ".join(sums)};
{body}
    {" ".join(f"out[{i}] = {name};" for i, name in enumerate(sums))}
}}
void run_{block.name}(void);
void run_{block.name}(void)
{{
    {block.name}(w_{kind}, x_{kind}, s_{kind}, {pixel_of(block)}, {STEPS});
}}
"""


def called_functions(blocks: Sequence[Intrinsic]) -> str:
    """Return the instructions that portable C calls, as C functions."""
    lines = []
    for name in sorted({name for block in blocks for name in block.calls}):
        item = INTRINSICS[name]
        assert item.value is not None
        assert item.result is not None
        params = [f"{item.dtype.c_type} {item.name}" for item in item.operands]
        printer = ExprPrinter(ModelNames("m"), INTRINSICS, UsedHelpers())
        printer.variables = {operand.name: operand.name for operand in item.operands}
        text = printer.as_type(item.value, item.result).text
        head = f"static inline {item.result.c_type} m_{name}({', '.join(params)})"
        lines.append(f"{head}\n{{\n    return {text};\n}}")
    return "\n".join([*lines, ""])


def portable(block: Intrinsic) -> str:
    return re.sub(r"@(\w+)", r"m_\1", block.portable)


def definitions(blocks: Sequence[Intrinsic]) -> str:
    """Return the macros of the assembly, each once."""
    texts = dict.fromkeys(text for block in blocks for text in block.definitions)
    return "\n".join([*texts, ""])


def compiled(compiler: list[str], source: str, folder: Path, *flags: str) -> Path:
    """Compile without warnings and return the result."""
    file, result = folder / "blocks.c", folder / "blocks"
    file.write_text(source)
    command = [*compiler, "-std=gnu99", *WARNINGS, *flags, str(file), "-o", str(result)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return result


def test_a_microkernel_adds_every_product_to_its_start() -> None:
    block = INTRINSICS["mla_bytes_2x3_1"]
    w, x = (
        np.array([[1], [-2], [3], [4]]),
        np.array([[5], [6], [0], [7], [-8], [0], [9], [1]]),
    )
    start = np.array([[100], [1000]])
    assert [int(s[0]) for s in block.meaning(w, x, start, 3, 2)] == [
        100 + 5 + 18,
        100 + 7 - 24,
        100 + 9 + 3,
        1000 - 10 + 24,
        1000 - 14 - 32,
        1000 - 18 + 4,
    ]


@pytest.mark.host_c
def test_portable_c_matches_the_meaning_under_sanitizers(tmp_path: Path) -> None:
    chosen = [block for family in FAMILIES for block in blocks(family)]
    calls = "".join(
        f"run_{b.name}(); for (i = 0; i < {len(expected(b, SEED))}; ++i) "
        'printf("%ld ", (long)out[i]); puts("");\n'
        for b in chosen
    )
    source = (
        "#include <stdio.h>\n"
        + data((*SIGNED, *WORDS, *UNSIGNED))
        + called_functions(chosen)
    )
    source += "".join(function(b, portable(b)) for b in chosen)
    source += f"int main(void) {{ int i;\n{calls}return 0; }}\n"
    flags = ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    program = compiled(["gcc"], source, tmp_path, *flags)
    printed = subprocess.run(
        [program], capture_output=True, text=True, check=True
    ).stdout
    sums = [[int(v) for v in line.split()] for line in printed.splitlines()]
    assert sums == [expected(b, SEED) for b in chosen]


ARM = ["-mcpu=cortex-m3", "-mthumb"]
RISCV = ["-march=rv32imac", "-mabi=ilp32"]
LX106_GCC = ["xtensa-lx106-elf-gcc"]
COMPILERS = [
    pytest.param("xtensa", LX106_GCC, marks=pytest.mark.qemu("xtensa")),
    pytest.param("mla", ["arm-none-eabi-gcc", *ARM], marks=pytest.mark.qemu("arm")),
    pytest.param(
        "mla", ["clang", "--target=thumb-none-eabi", *ARM], marks=pytest.mark.host_c
    ),
    pytest.param(
        "rvm", ["riscv64-unknown-elf-gcc", *RISCV], marks=pytest.mark.qemu("riscv32")
    ),
    pytest.param(
        "rvm", ["clang", "--target=riscv32", *RISCV], marks=pytest.mark.host_c
    ),
    pytest.param(
        "rvp", ["riscv64-unknown-elf-gcc", *RISCV], marks=pytest.mark.qemu("riscv32")
    ),
    pytest.param(
        "rvp", ["clang", "--target=riscv32", *RISCV], marks=pytest.mark.host_c
    ),
]


@pytest.mark.parametrize(("family", "compiler"), COMPILERS)
@pytest.mark.parametrize("level", ["-O2", "-Os"])
def test_compilers_allocate_registers_for_every_microkernel(
    family: str, compiler: list[str], level: str, tmp_path: Path
) -> None:
    chosen = [
        INTRINSICS[name]
        for name in microkernels.INTRINSIC_MAKERS
        if name.startswith(family)
    ]
    source = data(DATA[family]) + definitions(chosen)
    source += "".join(function(b, b.text["gnu"]) for b in chosen)
    flags = (level, "-ffreestanding", "-fomit-frame-pointer", "-c")
    assert compiled(compiler, source, tmp_path, *flags).exists()


ON_LX106 = "xtensa", LX106, "lx106_start.h"
ON_SPIKE = "rvp", SPIKE, "spike_start.h"
MACHINES = [
    pytest.param(*ON_LX106, "-O0", marks=pytest.mark.qemu("xtensa"), id="lx106 -O0"),
    pytest.param(*ON_LX106, "-O2", marks=pytest.mark.qemu("xtensa"), id="lx106 -O2"),
    pytest.param(*ON_SPIKE, "-O2", marks=pytest.mark.spike, id="spike -O2"),
    pytest.param(*ON_SPIKE, "-Os", marks=pytest.mark.spike, id="spike -Os"),
]


@pytest.mark.parametrize(("family", "machine", "start", "level"), MACHINES)
def test_assembly_matches_the_meaning_on_its_machine(
    family: str, machine: Machine, start: str, level: str, tmp_path: Path
) -> None:
    chosen = blocks(family)
    source = data(DATA[family]) + definitions(chosen)
    source += "".join(function(b, b.text["gnu"]) for b in chosen)
    calls = "".join(f"    run_{b.name}(); keep({i});\n" for i, b in enumerate(chosen))
    source += f"""
#include "{start}"
static int32_t kept[{len(chosen)}][16];
static void keep(int32_t block)
{{
    for (int32_t i = 0; i < 16; ++i) {{
        kept[block][i] = out[i];
    }}
}}
void fault(void) {{ leave(1); }}
void run_all(void)
{{
{calls}    write_output(kept, sizeof kept);
    leave(0);
}}
"""
    (tmp_path / "blocks.c").write_text(source)
    build_image(machine, ["blocks.c"], tmp_path, level)
    sums = run_image(machine, tmp_path).view(np.int32).reshape(len(chosen), 16).tolist()
    for block, found in zip(chosen, sums, strict=True):
        total = expected(block, SEED)
        assert found[: len(total)] == total


def with_dead_channels(call: OpCall, seed: int) -> OpCall:
    """Give about half of the channels a bias that no input can outweigh."""
    rng = np.random.default_rng(seed)
    bias = call.constants[2].array().copy()
    dead = rng.random(len(bias)) < 0.5
    bias[dead] = rng.choice([-(1 << 26), 1 << 26], int(dead.sum()))
    return replace(
        call, constants=(*call.constants[:2], Constant.from_array("b", bias, INT32))
    )


def thumb1_source(text: str, before: str) -> str:
    """Return a micro-kernel and one call with extreme values."""
    return (
        data(("mla_bytes_2x4_1",))
        + before
        + f"""
void run(int32_t *sums);
static inline __attribute__((always_inline)) void block(const uint8_t *w, const int8_t *x,
    const int32_t *start, int32_t *sums, int32_t steps)
{{
{text}
}}
void run(int32_t *sums)
{{
    block((const uint8_t *)w_int8_t, x_int8_t, s_int8_t, sums, {STEPS});
}}
"""
    )


@pytest.mark.host_c
def test_portable_thumb1_c_matches_its_meaning_under_sanitizers(tmp_path: Path) -> None:
    block = THUMB1_BLOCKS["thumb1_8x1_3"]
    source = "#include <stdio.h>\n" + thumb1_source(
        portable(block), called_functions([block])
    )
    source += "int main(void) { int32_t sums[8]; run(sums);\n"
    source += (
        'for (int i = 0; i < 8; ++i) printf("%ld ", (long)sums[i]);\nreturn 0; }\n'
    )
    flags = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    program = compiled(["gcc"], source, tmp_path, *flags)
    printed = subprocess.run(
        [program], capture_output=True, text=True, check=True
    ).stdout
    w, x, start = (
        array[:, None] for array in arrays(INTRINSICS["mla_bytes_2x4_1"], SEED)
    )
    expected_sums = block.meaning(w.view(np.uint8), x, start, None, STEPS)
    assert [int(v) for v in printed.split()] == expected_sums[:, 0].tolist()


THUMB1_COMPILERS = [
    pytest.param(["arm-none-eabi-gcc"], marks=pytest.mark.qemu("arm")),
    pytest.param(["clang", "--target=thumb-none-eabi"], marks=pytest.mark.host_c),
]


@pytest.mark.parametrize("command", THUMB1_COMPILERS)
@pytest.mark.parametrize("level", ["-O2", "-Os"])
@pytest.mark.parametrize("name", THUMB1_BLOCKS)
def test_compilers_allocate_registers_for_thumb1_microkernels(
    name: str, level: str, command: list[str], tmp_path: Path
) -> None:
    block = THUMB1_BLOCKS[name]
    source = thumb1_source(block.text["gnu"], definitions([block]))
    compiler = [*command, "-mcpu=cortex-m0", "-mthumb"]
    flags = (level, "-ffreestanding", "-fomit-frame-pointer", "-c")
    assert compiled(compiler, source, tmp_path, *flags).exists()


@pytest.mark.parametrize("seed", range(6))
def test_layers_with_constant_channels_match_the_reference(
    seed: int, judge, random_convolution
) -> None:
    call = with_dead_channels(random_convolution(seed, depthwise=False), seed)
    for schedule in (
        *conv2d_fully_connected.SCHEDULES[:4],
        thumb1_conv2d_fully_connected.SCHEDULES[0],
        *swar_conv2d.SCHEDULES[:2],
    ):
        for config in schedule.configs(call):
            judge(call, schedule, config)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", ["xtensa", "rvp"])
def test_layers_of_other_layouts_match_the_reference(
    seed: int, family: str, judge, random_convolution, random_fully_connected
) -> None:
    for call in (
        random_convolution(seed, depthwise=False),
        random_fully_connected(seed),
    ):
        for schedule in conv2d_fully_connected.SCHEDULES:
            if schedule.op == call.op and family in schedule.requires:
                configs = schedule.configs(call)
                assert configs
                for config in configs:
                    judge(call, schedule, config)


@pytest.mark.parametrize("seed", range(4))
def test_fully_connected_layers_match_the_reference(
    seed: int, judge, random_fully_connected
) -> None:
    call = with_dead_channels(random_fully_connected(seed), seed)
    schedules = [
        schedule
        for schedule in conv2d_fully_connected.SCHEDULES
        if schedule.op == call.op
    ]
    for schedule in (*schedules, thumb1_conv2d_fully_connected.SCHEDULES[1]):
        for config in schedule.configs(call):
            judge(call, schedule, config)


@pytest.mark.parametrize("seed", range(6))
def test_depthwise_layers_with_constant_channels_match_the_reference(
    seed: int, judge, random_convolution
) -> None:
    call = with_dead_channels(random_convolution(seed, depthwise=True), seed)
    for schedule in (*depthwise_conv2d.SCHEDULES, *packed_depthwise_conv2d.SCHEDULES):
        for config in schedule.configs(call):
            judge(call, schedule, config)


@pytest.mark.parametrize("seed", range(6, 14))
def test_packed_depthwise_layers_match_the_reference(
    seed: int, judge, random_convolution
) -> None:
    call = random_convolution(seed, depthwise=True)
    (schedule,) = packed_depthwise_conv2d.SCHEDULES
    for config in schedule.configs(call):
        judge(call, schedule, config)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_packed_depthwise_strips_end_anywhere(
    size: int, judge, narrow_depthwise
) -> None:
    (schedule,) = packed_depthwise_conv2d.SCHEDULES
    for width in (1, 3, 5, 8):
        call = narrow_depthwise(width, size)
        (config,) = schedule.configs(call)
        judge(call, schedule, config)


def test_packed_depthwise_windows_are_in_a_word(narrow_depthwise) -> None:
    (schedule,) = packed_depthwise_conv2d.SCHEDULES
    assert not schedule.configs(narrow_depthwise(9, 4))


@pytest.mark.parametrize("family", [MLA_FAMILY, RV32M_FAMILY, RV32_PACKED_FAMILY])
def test_distant_columns_require_smaller_blocks(family) -> None:
    assert fits_address_offsets(family, 500, 4)
    assert not fits_address_offsets(family, 1400, 4)
    assert fits_address_offsets(family, 100_000, 1)
