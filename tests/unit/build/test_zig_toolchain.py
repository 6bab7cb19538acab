"""Zig as a toolchain: the core it builds for, its products, the message if absent."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import firmwright as fw
from firmwright.artifacts import SourceTree
from firmwright.base.errors import DoesNotFitError, ToolMissingError, UsageError
from firmwright.boards import Board, list_boards, load_board
from firmwright.build import build_project
from firmwright.build import compiler_selection as compilers_module
from firmwright.build.compiler_flags import MODEL_OPTIMIZATION, WARNINGS, compile_flags
from firmwright.build.compiler_selection import choose_compiler, require_compiler
from firmwright.build.image_sizes import LinkedRegion, find_overflows
from firmwright.build.project_files import project_files
from firmwright.build.zig_toolchain import (
    zig_command,
    zig_flags,
    zig_library_target,
    zig_target,
)
from firmwright.cli.build import format_summary, image_to_json
from firmwright.device.process_transport import ProcessTransport
from firmwright.device.session import Session

ROOT = Path(__file__).resolve().parents[3]
BARE = [board for board in list_boards() if board.port in ("cortex_m", "riscv32")]
CORES = list({board.cpu_flags: board for board in BARE}.values())
HALF_PRECISION = 2  # of __ARM_FP: conversions alone, which gcc counts only on request
FACTS = (
    "__ARM_FP __ARM_FEATURE_DSP __ARM_FEATURE_MVE __ARM_ARCH __ARM_PCS_VFP __riscv_xlen"
)
UNKNOWN_TO_GCC = ("cortex-m52", "cortex-m85")  # of Debian 12
ELF_MACHINES = {"arm-none-eabi": 40, "riscv64-unknown-elf": 243}
Tree = Callable[..., SourceTree]


def facts_of(*compiler: str) -> dict[str, int]:
    """What a compiler says of its core: those of FACTS that it defines."""
    text = "\n".join(
        f'#ifdef {name}\n"{name}" {name}\n#endif' for name in FACTS.split()
    )
    done = subprocess.run(
        [*compiler, "-E", "-P", "-x", "c", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(
        line.split() for line in done.stdout.splitlines() if line.startswith('"')
    )
    facts = {name.strip('"'): int(value, 0) for name, value in found.items()}
    if "__ARM_FP" in facts:
        facts["__ARM_FP"] &= ~HALF_PRECISION
    return facts


@pytest.mark.zig
@pytest.mark.qemu("arm", "riscv32")
@pytest.mark.parametrize("board", CORES, ids=lambda board: board.name)
def test_zig_gets_the_same_core_as_gcc(board: Board) -> None:
    """A core that Debian's gcc does not know has the features of the Cortex-M55."""
    known = load_board("mps3-an547") if board.core in UNKNOWN_TO_GCC else board
    gcc = facts_of(f"{board.toolchain}-gcc", *compile_flags(known), "-fsyntax-only")
    assert facts_of(*zig_command(), "cc", *zig_target(board)) == gcc
    assert gcc


@pytest.mark.zig
@pytest.mark.parametrize("name", ["mps2-an386", "qemu-riscv32-virt"])
def test_zig_makes_objects_for_bare_boards_without_a_warning(
    name: str, twice: Tree, tmp_path: Path
) -> None:
    board = load_board(name)
    twice().merged(project_files(board)).write(tmp_path)
    command = [*zig_command(), "cc", *zig_flags(board), *WARNINGS, MODEL_OPTIMIZATION]
    paths = [f"-I{path}" for path in ("board", "runtime", "runtime/port", "model")]
    for file in (
        "model/twice.c",
        "runtime/fwr_server.c",
        f"runtime/port/{board.port}/port.c",
    ):
        subprocess.run(
            [*command, *paths, "-c", file, "-o", "made.o"], cwd=tmp_path, check=True
        )
        made = (tmp_path / "made.o").read_bytes()
        assert made[:5] == b"\x7fELF\x01"
        assert struct.unpack_from("<H", made, 18)[0] == ELF_MACHINES[board.toolchain]


def test_every_board_has_a_zig_core() -> None:
    for board in BARE:
        target = zig_target(board)
        assert target[0] == "-target"
        assert target[2].startswith("-mcpu=")
    assert zig_target(load_board("mps2-an386"))[2] == "-mcpu=cortex_m4+vfp4d16sp"
    assert zig_target(load_board("hifive1-revb"))[2] == "-mcpu=generic_rv32+m+a+c"


def test_objects_for_helium_are_linked_with_the_library_of_another_core() -> None:
    """Clang refuses to assemble musl for Armv8.1-M; the last -mcpu holds."""
    for name, core in (("mps3-an547", "m55"), ("mps3-an547-m85", "m85")):
        board = load_board(name)
        *target, library = zig_library_target(board)
        assert library == "-mcpu=cortex_m7+fp_armv8d16"
        assert zig_flags(board)[:3] == (
            *target,
            f"-mcpu=cortex_{core}+mve_fp+fp_armv8d16",
        )
    board = load_board("mps2-an386")
    assert zig_library_target(board) == zig_target(board)
    assert zig_library_target(load_board("qemu-xtensa-lx106")) == ()


def test_a_core_without_a_c_library_in_zig_is_refused(
    twice: Tree, tmp_path: Path
) -> None:
    twice().merged(project_files(load_board("microbit"))).write(tmp_path)
    with pytest.raises(UsageError, match="zig has no C library for this board's core"):
        build_project(tmp_path, compiler="zig")
    with pytest.raises(UsageError, match="zig has no C library for this board's core"):
        require_compiler("zig", "xtensa-esp32-elf", board="esp32", has_zig_flags=False)


def test_where_zig_is_absent_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compilers_module, "zig_command", lambda: ())
    with pytest.raises(ToolMissingError, match="zig is not installed") as caught:
        require_compiler("zig", "", board="host", has_zig_flags=True)
    assert "pip install 'firmwright[zig]'" in caught.value.hint


def test_where_gcc_is_absent_zig_is_offered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError) as caught:
        require_compiler("gcc", "", board="host", has_zig_flags=True)
    assert (
        caught.value.hint
        == "apt install gcc, or --toolchain zig (pip install 'firmwright[zig]')."
    )


def test_the_environment_variable_selects_the_toolchain() -> None:
    assert choose_compiler(None, {}) == "gcc"
    assert choose_compiler(None, {"FIRMWRIGHT_TOOLCHAIN": "zig"}) == "zig"
    assert choose_compiler("clang", {"FIRMWRIGHT_TOOLCHAIN": "zig"}) == "clang"
    with pytest.raises(UsageError, match="unknown toolchain 'icc'"):
        choose_compiler(None, {"FIRMWRIGHT_TOOLCHAIN": "icc"})


def test_zig_linker_messages_about_regions_are_parsed() -> None:
    said = "error: ld.lld: section '.text' will not fit in region 'flash': overflowed by 24 bytes"
    (over,) = find_overflows(said, (LinkedRegion("flash", 0, 100, "flash"),))
    assert (over.need_bytes, over.have_bytes) == (124, 100)


@pytest.mark.zig
@pytest.mark.deep
def test_the_hosts_firmware_links_for_macos(tmp_path: Path) -> None:
    digits = ROOT / "examples" / "01_digits" / "digits.tflite"
    fw.compile(fw.load(digits)).save(tmp_path)
    scons = [
        sys.executable,
        "-m",
        "SCons",
        "-Q",
        "compiler=zig",
        "target=aarch64-macos",
    ]
    subprocess.run(scons, cwd=tmp_path, check=True, capture_output=True)
    made = tmp_path / "build" / "release"
    for file in ("firmware.elf", "libmodel.so"):
        assert (made / file).read_bytes()[:4] == bytes.fromhex("cffaedfe")


@pytest.mark.zig
@pytest.mark.deep
def test_a_zig_build_runs_with_unknown_stack_use(twice: Tree, tmp_path: Path) -> None:
    twice().merged(project_files(load_board("host"))).write(tmp_path)
    image = build_project(tmp_path, compiler="zig")
    with Session(ProcessTransport([image.elf])) as session:
        assert session.info.board == "host"
    assert not image.stack_is_known
    assert "unknown" in format_summary(image)
    assert image_to_json(image)["stack_bytes"] is None


@pytest.mark.zig
@pytest.mark.deep
@pytest.mark.parametrize("name", ["bluepill-f103", "mps2-an386", "hifive1-revb"])
def test_zig_links_firmware_for_bare_boards(
    name: str, twice: Tree, tmp_path: Path
) -> None:
    board = load_board(name)
    twice().merged(project_files(board)).write(tmp_path)
    image = build_project(tmp_path, compiler="zig")
    assert image.bin is not None
    assert 0 < image.bin.stat().st_size <= image.sizes.flash_bytes + 64
    kept = image.sizes.bytes_of("stack")
    assert kept >= board.limits.stack_bytes


@pytest.mark.zig
@pytest.mark.deep
def test_zig_firmware_that_does_not_fit_is_an_error(
    twice: Tree, tmp_path: Path
) -> None:
    twice().merged(project_files(load_board("stm32vldiscovery"))).write(tmp_path)
    script = tmp_path / "board" / "link.ld"
    script.write_text(
        script.read_text().replace("LENGTH = 0x00020000", "LENGTH = 0x00001000")
    )
    with pytest.raises(DoesNotFitError, match="does not fit: flash needs"):
        build_project(tmp_path, compiler="zig")


def test_clang_makes_no_float_vectors_of_loops() -> None:
    """QEMU 7.2 ends at some of its conversions; kernels have their own vectors."""
    flags = zig_flags(load_board("qemu-riscv32-virt-vf"))
    assert {"-fno-vectorize", "-fno-slp-vectorize"} < {*flags}
    assert "-fno-vectorize" not in zig_flags(load_board("qemu-riscv32-virt-v"))
