"""Example 12 on FreeRTOS in QEMU (FREERTOS_KERNEL_PATH) and on a stand-in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from firmwright.flows.export.package_export import export_model
from firmwright.flows.samples.reference_outputs import run_oracle_reference
from firmwright.pipeline import Compilation

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/12_freertos"
STAND_IN = Path(__file__).parent / "freertos_stand_in"
KERNEL = os.environ.get("FREERTOS_KERNEL_PATH", "")
COUNT = 40


def images() -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    return np.load(ROOT / "examples/01_digits/digits_test.npz")["input_1"][
        :COUNT
    ].astype(np.int8)


def answers(command: Sequence[object]) -> list[list[str]]:
    """Return the words of the program's answers to all images."""
    words = [str(word) for word in command]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        lines = []
        for image in images():
            program.stdin.write(image.tobytes())
            program.stdin.flush()
            lines.append(program.stdout.readline().decode().split())
        program.terminate()
    return lines


def expected(compiled: Compilation) -> list[int]:
    samples = [{"image": image} for image in images()]
    outputs = run_oracle_reference(compiled, samples, "litert").outputs
    return [int(np.argmax(one["digit"])) for one in outputs]


@pytest.mark.host_c
def test_tasks_classify_images_on_a_stand_in_for_freertos(
    compiled: Callable[..., Compilation], tmp_path: Path
) -> None:
    model = compiled("digits")
    export_model(model, "makefile", tmp_path)
    sources = [EXAMPLE / "main.c", STAND_IN / "board.c", tmp_path / "model/digits.c"]
    includes = [f"-I{folder}" for folder in (STAND_IN, EXAMPLE, tmp_path / "model")]
    warned = [
        "-O1",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Wno-unused-value",
        "-Werror",
        "-pthread",
    ]
    program = tmp_path / "program"
    subprocess.run(["cc", *warned, *includes, *sources, "-o", program], check=True)
    lines = answers(["timeout", "60", program])
    assert [int(words[1]) for words in lines] == expected(model)


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.skipif(
    not KERNEL, reason="needs FreeRTOS; FREERTOS_KERNEL_PATH names the kernel"
)
def test_tasks_classify_images_on_freertos(
    compiled: Callable[..., Compilation], tmp_path: Path
) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder)
    model = compiled("digits", board="mps2-an386")
    export_model(model, "makefile", folder / "digits")
    command = ["make", "-s", f"FREERTOS_KERNEL_PATH={KERNEL}"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    emulator = [
        "timeout",
        "60",
        "qemu-system-arm",
        "-machine",
        "mps2-an386",
        "-nographic",
    ]
    clock = ["-icount", "shift=6,align=off,sleep=off"]
    lines = answers([*emulator, *clock, "-kernel", folder / "firmware.elf"])
    assert [int(words[1]) for words in lines] == expected(model)
    assert all(words[2] == "preempted" and int(words[3]) > 0 for words in lines)
