"""Projects with a custom main: removed files, added files, compiled files."""

import json
import re
from pathlib import Path

import pytest

from firmwright.boards import load_board
from firmwright.build import build_project
from firmwright.build.project_files import project_files
from firmwright.cli.main import main
from firmwright.package.custom_main import MAIN_FILE, use_custom_main

MAIN = "int main(void) { return 0; }\n"


@pytest.mark.parametrize("board", ["mps2-an386", "host"])
def test_a_custom_main_replaces_loop_and_glue(board: str):
    plain = project_files(load_board(board))
    custom = use_custom_main(plain, MAIN)
    assert custom.files[MAIN_FILE] == MAIN
    assert not [file for file in custom.files if re.match(r"runtime/fwr_(main|loop).*\.c", file)]
    assert "runtime/port/fwr_port.h" in custom.files
    sources = json.loads(str(custom.files["board/board.json"]))["runtime_sources"]
    assert "firmware/fwr_stop.c" in sources
    assert MAIN_FILE not in sources  # the SConstruct names it, in the release and the profile image
    assert all(path in custom.files for path in sources)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--main", "main.c"], "--main needs -o DIR"),
        (["--main", "main.c", "-o", "out", "--firmware", "mlperf"], "excludes --firmware"),
        (["--main", "nowhere.c", "-o", "out"], "the main program cannot be read"),
    ],
)
def test_a_custom_main_is_refused_where_it_has_no_effect(
    words: list[str], what: str, digits_path: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
):  # fmt: skip
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
def test_a_product_adds_less_than_a_kilobyte_to_its_model(digits_path: Path, tmp_path: Path):
    source, out = tmp_path / "main.c", tmp_path / "out"
    source.write_text(PRODUCT)
    words = ["compile", str(digits_path), "--board", "mps2-an386", "--main", str(source)]
    assert main([*words, "-o", str(out)]) == 0
    image = build_project(out)
    assert image.sizes.flash_bytes - image.model_flash_bytes < 900
    assert image.sizes.bytes_of("data", "bss", "noinit") - image.model_ram_bytes <= 16
