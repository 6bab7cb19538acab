"""Projects become firmware that runs, or a clear error."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from firmwright.artifacts import Image, SourceTree, Variant
from firmwright.base.errors import (
    DeviceError,
    DoesNotFitError,
    ToolFailedError,
    ToolMissingError,
    UsageError,
)
from firmwright.base.resources import boards_dir
from firmwright.boards import Board, load_board
from firmwright.boards.schema import STACK_BYTES_MIN
from firmwright.build import build_project
from firmwright.build.compiler_selection import choose_compiler
from firmwright.build.project_files import project_files
from firmwright.device.process_transport import ProcessTransport
from firmwright.device.qemu_process import QemuCommand, start_qemu
from firmwright.device.session import Session

Tree = Callable[..., SourceTree]

X = np.array([1, -3, 64, 63, -64, -65, 0, 127], np.int8)
TWICE_X = [2, -6, 127, 126, -128, -128, 0, 127]

ARM_BOARDS = [
    "microbit",
    "mps2-an385",
    "mps2-an386",
    "mps2-an500",
    "mps2-an505",
    "mps3-an547",
    "stm32vldiscovery",
]
EMULATED = [
    *(pytest.param(name, marks=pytest.mark.qemu) for name in ARM_BOARDS),
    pytest.param("qemu-riscv32-virt", marks=pytest.mark.qemu("riscv32")),
]
COUNT = 2_000_000
TICKS_WRAP = 1_400_000_000  # instructions: more than 2**24 ticks on every board

# What the model does before it multiplies is chosen by its first input.
PLAIN, LOOP, LONG_LOOP, UNDEFINED, OVERFLOW, FRAME = range(10, 16)
ASM = {
    "cortex_m": {
        "loop": r'".syntax unified\n1: subs %0, #1\n\tbne 1b" : "+l"(turns)::"cc"',
        "undefined": '".2byte 0xde00"',
        "overflow": r'"1: push {r0-r7}\n\tb 1b"',
    },
    "riscv32": {
        "loop": r'"1: addi %0, %0, -1\n\tbnez %0, 1b" : "+r"(turns)',
        "undefined": '".2byte 0, 0"',
        "overflow": '"1: addi sp, sp, -32; sw a0, 0(sp); j 1b"',
    },
}
BEHAVIOUR = """
    int8_t first = inputs->input_1[0];
    uint32_t turns = first == {long_loop} ? {wrap}u : {turns}u;
    if (first == {loop} || first == {long_loop}) {{ __asm__ volatile({asm[loop]}); }}
    if (first == {undefined}) {{ __asm__ volatile({asm[undefined]}); }}
    if (first == {overflow}) {{ __asm__ volatile({asm[overflow]}); }}
    if (first == {frame}) {{
        volatile uint8_t frame[1000];
        for (uint32_t i = 0; i < 1000; i++) {{ frame[i] = 1; }}
        (void)frame[1];
    }}
"""

Built = tuple[Board, Image]


def behaviour(board: Board) -> str:
    return BEHAVIOUR.format(
        asm=ASM[board.port],
        loop=LOOP,
        long_loop=LONG_LOOP,
        undefined=UNDEFINED,
        overflow=OVERFLOW,
        frame=FRAME,
        turns=COUNT // 2,
        wrap=TICKS_WRAP // 2,
    )


def build(
    board: Board, tree: SourceTree, directory: Path, variant: Variant = "release"
) -> Image:
    tree.merged(project_files(board)).write(directory)
    return build_project(directory, variant)


@pytest.fixture(scope="module", params=EMULATED)
def built(
    request: pytest.FixtureRequest,
    twice: Tree,
    tmp_path_factory: pytest.TempPathFactory,
) -> Built:
    """A board and its firmware, whose model obeys its first input; built once."""
    board = load_board(request.param)
    return board, build(
        board, twice(behaviour(board)), tmp_path_factory.mktemp(board.name)
    )


def session(board: Board, image: Image) -> Session:
    if board.is_host:
        return Session(ProcessTransport([image.elf]))
    command = QemuCommand(
        board.run.machine, image.elf, board.run.program, board.run.args
    )
    return Session(start_qemu(command))


def first(value: int) -> dict[str, np.ndarray]:
    return {"input_1": np.array([value, *X[1:]], np.int8)}


def test_the_firmware_of_every_board_runs_the_model_also_after_reset(
    built: Built,
) -> None:
    board, image = built
    with session(board, image) as link:
        assert link.info.board == board.name
        assert link.run(first(PLAIN))["output_1"].tolist() == [2 * PLAIN, *TWICE_X[1:]]
        link.reset()
        assert link.run(first(PLAIN))["output_1"].tolist() == [2 * PLAIN, *TWICE_X[1:]]


def test_the_counter_reads_a_loop_of_known_length(built: Built) -> None:
    board, image = built
    tick = board.counter.scale[0] / board.counter.scale[1]
    with session(board, image) as link:
        extra = link.measure(first(LOOP)) - link.measure(first(PLAIN)) - COUNT
    assert abs(extra) <= 2 * tick + 16


@pytest.mark.deep
def test_the_counter_goes_on_after_its_register_wraps(built: Built) -> None:
    board, image = built
    with session(board, image) as link:
        link.write_inputs(first(LONG_LOOP))
        counted = link.execute().total
    assert 0 <= counted - TICKS_WRAP <= 1000


@pytest.mark.parametrize(
    "cause", [UNDEFINED, OVERFLOW], ids=["undefined", "stack overflow"]
)
def test_a_fault_is_reported_with_its_registers(built: Built, cause: int) -> None:
    board, image = built
    with session(board, image) as link:
        with pytest.raises(DeviceError) as caught:
            link.run(first(cause))
        assert ("mepc" if board.port == "riscv32" else "xpsr") in str(caught.value)
        link.reset()
        assert link.info.board == board.name


def test_the_stack_in_use_stays_below_the_worst_case(built: Built) -> None:
    board, image = built
    assert 1000 <= image.stack.size_bytes < 1100
    assert (image.firmware_stack.unknown, image.firmware_stack.unbounded) == ((), ())
    with session(board, image) as link:
        link.run(first(FRAME))
        assert 1000 < link.stack_bytes() <= image.firmware_stack.size_bytes


@pytest.mark.qemu
def test_a_fitted_stack_is_the_worst_path_and_stays_when_nothing_changes(
    twice: Tree, tmp_path: Path
) -> None:
    board = load_board("stm32vldiscovery")
    image = build(board, twice(behaviour(board)), tmp_path)
    reserve = image.sizes.bytes_of("stack")
    assert 0 <= reserve - image.firmware_stack.size_bytes < 16
    linked = image.elf.stat().st_mtime_ns
    again = build_project(tmp_path)
    assert again.elf.stat().st_mtime_ns == linked
    assert again.sizes == image.sizes


@pytest.mark.qemu
def test_a_build_reuses_cached_objects(twice: Tree, tmp_path: Path) -> None:
    board, objects = load_board("stm32vldiscovery"), tmp_path / "objects"
    images = []
    for place in ("first", "second"):
        twice(behaviour(board)).merged(project_files(board)).write(tmp_path / place)
        images.append(build_project(tmp_path / place, objects=objects))
    first, second = images
    assert first.elf.read_bytes() == second.elf.read_bytes()
    assert (first.sizes, first.stack) == (second.sizes, second.stack)
    shared = {file.stat().st_size for file in objects.rglob("*") if file.is_file()}
    assert {file.stat().st_size for file in second.directory.rglob("*.o")} <= shared
    source = second.directory / "runtime" / "fwr_server.c"
    source.write_text(
        source.read_text("utf-8") + 'const char fwr_new[] = "new";\n', "utf-8"
    )
    changed = build_project(second.directory, objects=objects)
    assert b"fwr_new" in (changed.elf.parent / "runtime" / "fwr_server.o").read_bytes()


@pytest.mark.qemu("riscv32")
def test_a_fitted_stack_holds_a_fault_report_in_either_half(
    twice: Tree, tmp_path: Path
) -> None:
    image = build(load_board("hifive1-revb"), twice(), tmp_path)
    assert (
        image.sizes.bytes_of("stack")
        >= STACK_BYTES_MIN
        > image.firmware_stack.size_bytes
    )


@pytest.mark.qemu
def test_an_image_fits_when_its_fitted_stack_does(twice: Tree, tmp_path: Path) -> None:
    text = (boards_dir() / "stm32vldiscovery" / "board.toml").read_text(
        encoding="utf-8"
    )
    (tmp_path / "tight").mkdir()
    text = (
        text.replace('"stm32vldiscovery"', '"tight"', 1) + "\n[limits]\nstack = 2048\n"
    )
    (tmp_path / "tight" / "board.toml").write_text(text, encoding="utf-8")
    board = load_board("tight", (tmp_path,))
    array = "    static uint8_t big[{size}];\n    big[0]++;\n"
    image = build(board, twice(array.format(size=7000)), tmp_path / "fits")
    assert image.sizes.bytes_of("stack") < 400
    with pytest.raises(DoesNotFitError) as caught:
        build(board, twice(array.format(size=8000)), tmp_path / "too_large")
    stack = dict(caught.value.peak)["the stack"]
    assert stack == image.sizes.bytes_of("stack"), (
        "what is missing is what the fitted stack leaves"
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
    ],
)
def test_the_profile_image_counts_each_operator(
    name: str, twice: Tree, tmp_path: Path
) -> None:
    board = load_board(name)
    with session(board, build(board, twice(), tmp_path, "profile")) as link:
        assert link.run({"input_1": X})["output_1"].tolist() == TWICE_X
        assert [operator.calls for operator in link.profile()] == [1]


@pytest.mark.qemu
def test_a_build_twice_gives_equal_bytes_anywhere(twice: Tree, tmp_path: Path) -> None:
    board = load_board("mps2-an386")
    images = [
        build(board, twice(), tmp_path / name) for name in ("a", "some/where/else")
    ]
    assert images[0].elf.read_bytes() == images[1].elf.read_bytes()


@pytest.mark.qemu
def test_the_model_costs_what_it_adds_to_the_empty_firmware(
    twice: Tree, tmp_path: Path
) -> None:
    board = load_board("mps2-an386")
    plain = build(board, twice(), tmp_path / "plain")
    text = str(twice().files["model/twice.c"])
    tables = text.replace("{2, 2,", "{2, [1000] = 1, [1] = 2,").replace(
        "[TWICE_INPUT_1_SIZE]", "[1001]"
    )
    tree = SourceTree({**twice().files, "model/twice.c": tables})
    larger = build(board, tree, tmp_path / "larger")
    assert 992 <= larger.model_flash_bytes - plain.model_flash_bytes <= 1000
    assert larger.model_ram_bytes == plain.model_ram_bytes
    assert larger.sizes.largest("rodata", count=1)[0].name == "factor"
    assert larger.sizes.ram_bytes < 16384
    assert larger.bin is not None
    assert larger.bin.stat().st_size == larger.sizes.flash_bytes


@pytest.mark.qemu
def test_an_image_too_large_names_region_and_contributors(
    twice: Tree, tmp_path: Path
) -> None:
    text = (boards_dir() / "microbit" / "board.toml").read_text(encoding="utf-8")
    small = """
[[memory]]
name = "flash"
start = 0
size = 0xA00
kind = "flash"
[[memory]]
name = "sram"
start = 0x2000_0000
size = 0x1000
kind = "ram"
pool = "sram"
"""
    (tmp_path / "tiny").mkdir()
    text = text.replace('"microbit"', '"tiny"', 1) + small
    (tmp_path / "tiny" / "board.toml").write_text(text, encoding="utf-8")
    board = load_board("tiny", (tmp_path,))
    with pytest.raises(DoesNotFitError) as caught:
        build(
            board,
            twice("    static uint8_t big[4096];\n    big[0]++;\n"),
            tmp_path / "project",
        )
    regions = {r.name: r for r in caught.value.regions}
    assert set(regions) == {"flash", "sram"}
    assert regions["sram"].need_bytes > regions["sram"].have_bytes == 0x1000
    assert dict(caught.value.peak)["big.0"] == 4096
    assert "flash needs" in caught.value.what


@pytest.mark.host_c
def test_a_header_of_a_model_hides_none_of_the_c_library(
    twice: Tree, tmp_path: Path
) -> None:
    hidden: dict[str, str | bytes] = {
        f"{folder}/{name}.h": "#error hidden\n"
        for folder in ("model", "runtime", "board", "firmware")
        for name in ("features", "stdint")
    }
    assert not set(hidden) & set(twice().files)
    tree = twice("    (void)SIZE_MAX;\n").merged(SourceTree(hidden))
    assert build(load_board("host"), tree, tmp_path).elf.is_file()


@pytest.mark.host_c
def test_a_compile_error_shows_the_compilers_message(
    twice: Tree, tmp_path: Path
) -> None:
    with pytest.raises(ToolFailedError) as caught:
        build(load_board("host"), twice("    no_such_thing = 1;\n"), tmp_path)
    said = str(caught.value)
    assert (
        "'no_such_thing' undeclared" in said
        or "undeclared identifier 'no_such_thing'" in said
    )
    assert "-Wconversion" not in str(caught.value)


def test_a_missing_compiler_names_its_packages(
    twice: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("FIRMWRIGHT_TOOLCHAIN", raising=False)
    with pytest.raises(ToolMissingError) as caught:
        build(load_board("mps2-an386"), twice(), tmp_path / "project")
    assert str(caught.value) == (
        "mps2-an386: the compiler arm-none-eabi-gcc is not installed. "
        "Try: apt install gcc-arm-none-eabi libnewlib-arm-none-eabi, "
        "or --toolchain zig (pip install 'firmwright[zig]')."
    )


def test_a_folder_without_a_project_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        build_project(tmp_path)


@pytest.mark.host_c
def test_scons_alone_builds_a_project_once_in_a_folder_of_any_name(
    twice: Tree, tmp_path: Path
) -> None:
    planted = tmp_path / "planted"
    folder = (
        tmp_path
        / """${__import__("os").system("touch planted")} `touch planted`; '$(x"""
    )
    folder.mkdir()
    twice().merged(project_files(load_board("host"))).write(folder)
    command = [
        sys.executable,
        "-I",
        "-m",
        "SCons",
        "-Q",
        f"compiler={choose_compiler(None)}",
    ]
    for words in ("firmware.elf", "is up to date"):
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True
        )
        assert words in done.stdout
    assert (folder / "build" / "release" / "libmodel.so").is_file()
    assert not (folder / "build" / "library").exists(), "models are compiled once"
    assert not planted.exists()
    assert not (folder / "planted").exists()


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("name", "triple"),
    [
        ("microbit", "thumbv6m-none-eabi"),
        ("mps2-an505", "thumbv8m.main-none-eabi"),
        ("stm32vldiscovery", "thumbv7m-none-eabi"),
    ],
)
def test_the_ports_compile_without_a_warning_under_clang(
    name: str, triple: str, twice: Tree, tmp_path: Path
) -> None:
    board = load_board(name)
    twice().merged(project_files(board)).write(tmp_path)
    for file in sorted((tmp_path / "runtime" / "port" / board.port).glob("*.c")):
        command = f"clang --target={triple} -std=c99 -ffreestanding -fsyntax-only -Wall -Wextra"
        warnings = "-Wconversion -Wshadow -Wdouble-promotion -Werror"
        paths = "-Iboard -Iruntime -Iruntime/port"
        words = f"{command} {warnings} {paths}".split()
        subprocess.run([*words, str(file)], cwd=tmp_path, check=True)
