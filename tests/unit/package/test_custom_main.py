"""Projects with a custom main: removed files, added files, compiled files."""

import json
import re
from pathlib import Path

import pytest

from firmwright.base.errors import DoesNotFitError
from firmwright.boards import load_board
from firmwright.build import build_project
from firmwright.build.project_files import project_files
from firmwright.cli.main import main
from firmwright.device.transport_selection import open_transport
from firmwright.package.custom_main import MAIN_FILE, use_custom_main

MAIN = "int main(void) { return 0; }\n"


@pytest.mark.parametrize("board", ["mps2-an386", "host"])
def test_a_custom_main_replaces_loop_and_glue(board: str):
    plain = project_files(load_board(board))
    custom = use_custom_main(plain, MAIN)
    assert custom.files[MAIN_FILE] == MAIN
    assert not [
        file for file in custom.files if re.match(r"runtime/fwr_(main|loop).*\.c", file)
    ]
    assert "runtime/port/fwr_port.h" in custom.files
    sources = json.loads(str(custom.files["board/board.json"]))["runtime_sources"]
    assert "firmware/fwr_stop.c" in sources
    assert (
        MAIN_FILE not in sources
    )  # the SConstruct names it, in the release and the profile image
    assert all(path in custom.files for path in sources)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--main", "main.c"], "--main needs -o DIR"),
        (
            ["--main", "main.c", "-o", "out", "--firmware", "mlperf"],
            "excludes --firmware",
        ),
        (["--main", "nowhere.c", "-o", "out"], "the main program cannot be read"),
    ],
)
def test_a_custom_main_is_refused_where_it_has_no_effect(
    words: list[str],
    what: str,
    digits_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    assert main(["compile", str(digits_path), *words]) == 2
    assert what in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


PRODUCT = """
#include "digits.h"
#include "port/fwr_port.h"

static uint8_t sram[DIGITS_SRAM_SIZE] __attribute__((aligned(DIGITS_SRAM_ALIGN)));

int main(void)
{
    const struct digits_workspace_pools pools = { .sram = sram };
    struct digits_inputs in;
    struct digits_outputs out;
    fwr_port_init();
    digits_map_io(&pools, &in, &out);
    for (;;) {
        (void)digits_run(&in, &out, &pools);
    }
}
"""


@pytest.mark.qemu("arm")
def test_a_product_adds_little_more_than_a_kilobyte_to_its_model(
    digits_path: Path, tmp_path: Path
):
    source, out = tmp_path / "main.c", tmp_path / "out"
    source.write_text(PRODUCT)
    words = [
        "compile",
        str(digits_path),
        "--board",
        "mps2-an386",
        "--main",
        str(source),
    ]
    assert main([*words, "-o", str(out)]) == 0
    image = build_project(out)
    assert image.sizes.flash_bytes - image.model_flash_bytes < 1200
    assert image.sizes.bytes_of("data", "bss", "noinit") - image.model_ram_bytes <= 16


RECURSIVE = """
#include <string.h>

volatile int sink;

static void deep(int n)
{
    volatile char big[256];
    memset((void *)big, n, sizeof big);
    if (n > 0) {
        deep(n - 1);
    }
    sink += big[3];
}

int main(void)
{
    deep(200);
    for (;;) {}
}
"""
VARIABLE = """
static volatile int length = 4;

int main(void)
{
    volatile char text[length];
    text[0] = 0;
    return text[0];
}
"""
POINTER = """
static void stop(void) {}
void (*volatile hook)(void) = stop;
static volatile int hook_count = 4;

int main(void)
{
    const char warned = (char)1 + hook_count;
    hook();
    return warned;
}
"""
"""The conversion of `warned` is a warning of -Wconversion, and no error."""
LIBRARY = """
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

int main(void)
{
    int values[] = {3, 1, 2};
    qsort(values, 3, sizeof values[0], compare);
    return values[0];
}
"""


def custom_project(board: str, text: str, folder: Path) -> Path:
    """Write a project whose main program calls no model."""
    use_custom_main(project_files(load_board(board)), text).write(folder)
    return folder


@pytest.mark.qemu("arm", "riscv32")
@pytest.mark.parametrize("board", ["mps2-an386", "qemu-riscv32-virt"])
def test_a_stack_overflow_of_a_custom_main_is_printed(board: str, tmp_path: Path):
    folder = custom_project(board, RECURSIVE, tmp_path)
    image = build_project(folder, allow_stack=True)
    line = open_transport(load_board(board), image.elf)
    text = b""
    try:
        # A read returns what has arrived, which may be one character.
        for _ in range(400):
            text += line.read(1000, 0.5)
            if b"fault" in text and text.partition(b"fault")[2].endswith(b"\r\n"):
                break
    finally:
        line.close()
    assert text.startswith(b"\r\nfault: stack overflow, ")
    assert (b" mtval=" if "riscv" in board else b" cfsr=") in text


@pytest.mark.qemu("arm", "riscv32")
@pytest.mark.parametrize("board", ["mps2-an386", "qemu-riscv32-virt"])
def test_recursion_of_a_custom_main_fails_the_build_with_its_cycle(
    board: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = str(custom_project(board, RECURSIVE, tmp_path))
    assert main(["build", folder, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["error"]["code"] == "does_not_fit"
    assert "the stack is unbounded: deep calls itself" in found["error"]["what"]
    assert (found["stack_bytes"], found["firmware_stack_bytes"]) == (None, None)
    assert found["stack_unbounded"] == {
        "reason": "recursion",
        "cycle": ["deep", "deep"],
    }
    assert main(["build", folder, "--json", "--allow-stack"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["allow_stack"], found["stack_bytes"]) == (True, None)
    assert "deep calls itself" in found["warnings"][0]


@pytest.mark.qemu("arm")
def test_an_array_of_variable_length_fails_the_build(tmp_path: Path):
    text = VARIABLE.replace("[length]", "[(unsigned)length]")
    with pytest.raises(DoesNotFitError, match="main has a frame of variable size"):
        build_project(custom_project("mps2-an386", text, tmp_path))


@pytest.mark.sampled(2)
@pytest.mark.qemu("arm", "riscv32")
@pytest.mark.parametrize("board", ["mps2-an386", "qemu-riscv32-virt"])
@pytest.mark.parametrize(
    ("text", "function"), [(POINTER, "main"), (LIBRARY, "qsort")], ids=["hook", "qsort"]
)
def test_a_call_through_a_pointer_is_a_warning_that_names_its_function(
    board: str,
    text: str,
    function: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    folder = str(custom_project(board, text, tmp_path))
    assert main(["build", folder, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert f"{function} calls through a pointer" in found["warnings"][0]
    assert found["stack_bytes"] is None
    assert main(["build", folder]) == 0
    assert "firmwright: warning: the stack is unbounded: " in capsys.readouterr().err


@pytest.mark.qemu("arm")
def test_a_path_above_the_reserve_fails_the_build(tmp_path: Path, capfd):
    text = RECURSIVE.replace("deep(n - 1)", "sink++").replace("256", "8000")
    folder = custom_project("mps2-an386", text, tmp_path)
    with pytest.raises(
        DoesNotFitError, match=r"needs 8,\d+ bytes and has 4,096: fwr_reset_handler"
    ) as caught:
        build_project(folder)
    assert "firmwright boards new NAME --from mps2-an386" in caught.value.hint
    assert build_project(folder, allow_stack=True).firmware_stack.unbounded == ()
