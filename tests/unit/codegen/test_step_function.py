"""An inference in steps computes what a run computes, wherever it is left."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from firmwright.base.errors import UsageError
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model

GCC = "gcc" if shutil.which("gcc") else "cc"

WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")
MAIN = """
#include <stdio.h>
#include <string.h>
#include "digits.h"

static uint8_t sram[2][DIGITS_SRAM_SIZE] __attribute__((aligned(DIGITS_SRAM_ALIGN)));
static struct digits_workspace_pools pools[2];
static struct digits_inputs in[2];
static struct digits_outputs out[2];

static void fill(int which, int seed)
{
    for (int i = 0; i < DIGITS_IMAGE_ELEMENTS; i++) {
        in[which].image[i] = (int8_t)((i * 37 + seed) % 255 - 127);
    }
}

int main(void)
{
    for (int i = 0; i < 2; i++) {
        pools[i].sram = sram[i];
        digits_map_io(&pools[i], &in[i], &out[i]);
    }
    for (int seed = 0; seed < 20; seed++) {
        struct digits_progress at = {0, 0};
        int calls = 1;
        fill(0, seed);
        fill(1, seed);
        if (digits_run(&in[0], &out[0], &pools[0]) != DIGITS_OK) {
            return 1;
        }
        if (seed % 3 == 1) { /* given up in the middle */
            for (int i = 0; i < seed % 9; i++) {
                (void)digits_step(&at, &in[1], &out[1], &pools[1]);
            }
            memset(&at, 0, sizeof at);
            fill(1, seed);
        }
        while (digits_step(&at, &in[1], &out[1], &pools[1]) == DIGITS_MORE) {
            calls++;
        }
        if (at.part != 0 || at.row != 0 || memcmp(out[0].digit, out[1].digit, DIGITS_DIGIT_SIZE)) {
            return 2;
        }
        if (seed == 0) {
            printf("%d", calls);
        }
    }
    struct digits_progress nowhere = {1000, 0};
    return digits_step(&nowhere, &in[0], &out[0], &pools[0]) != DIGITS_E_PROGRESS;
}
"""


def steps_taken(model: Path, folder: Path, **options: Any) -> int:
    """The calls that one inference takes, if all answers are those of the run."""
    compiled = compile_for(load_model(model), "host", emit_step_api=True, **options)
    compiled.save(folder)
    (folder / "main.c").write_text(MAIN)
    command = [
        GCC,
        "-std=c99",
        "-O1",
        *WARNINGS,
        f"-I{folder}/model",
        str(folder / "main.c"),
    ]
    command += [str(folder / "model/digits.c"), "-lm", "-o", str(folder / "main")]
    subprocess.run(command, check=True)
    return int(subprocess.run([str(folder / "main")], check=True, stdout=-1).stdout)


@pytest.mark.host_c
def test_each_operator_is_a_step(digits_path: Path, tmp_path: Path) -> None:
    assert steps_taken(digits_path, tmp_path) == 9


@pytest.mark.host_c
def test_each_row_of_operators_that_go_row_by_row_is_a_step(
    digits_path: Path, tmp_path: Path
) -> None:
    assert steps_taken(digits_path, tmp_path, ram_bytes=1800) == 9 - 2 + 8


def test_row_streaming_excludes_the_step_function(digits_path: Path) -> None:
    with pytest.raises(
        UsageError, match="--stream-input-rows and --emit-step-api do not go together"
    ):
        compile_for(
            load_model(digits_path), "host", emit_step_api=True, stream_input_rows=True
        )


def test_without_the_option_no_step_function_is_generated(digits_path: Path) -> None:
    files = compile_for(load_model(digits_path), "host").tree.files
    text = str(files["model/digits.c"]) + str(files["model/digits.h"])
    assert "digits_step" not in text
    assert "MORE" not in text
