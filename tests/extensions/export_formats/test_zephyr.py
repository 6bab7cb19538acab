"""The exported Zephyr module, built by Zephyr for emulated boards and run in QEMU.

ZEPHYR_BASE names a copy of Zephyr, and CMSIS_MODULE_PATH one of its module cmsis
(cmsis_6 for Zephyr 4.1 and later). ZEPHYR_PYTHON is a Python with Zephyr's requirements
(pyelftools, PyYAML, pykwalify, packaging), by default this one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from firmwright.flows.export.package_export import export_model
from firmwright.flows.samples.reference_outputs import run_oracle_reference
from firmwright.flows.samples.sample_batches import Tensors, generate_samples
from firmwright.pipeline import Compilation

BASE = os.environ.get("ZEPHYR_BASE", "")
PYTHON = os.environ.get("ZEPHYR_PYTHON", sys.executable)
BOARDS = {
    "qemu_cortex_m3": ("mps2-an385", "lm3s6965evb"),
    "mps2/an385": ("mps2-an385", "mps2-an385"),
    "mps2/an521/cpu0": ("mps2-an521", "mps2-an521"),
}
"""Zephyr's boards, each with our board of the same core and QEMU's machine."""
SAMPLES = 20
LOOP = """
/* A thread of higher priority interrupts the inferences. */
static volatile uint32_t switches;
static void tick(void *a, void *b, void *c)
{
    for (;;) {
        switches++;
        k_usleep(200);
    }
}
K_THREAD_DEFINE(ticker, 1024, tick, NULL, NULL, NULL, -1, 0, 0);

int main(void)
{
    struct sensor_outputs out;
    printk("self-test %d\\n", (int)check_sensor());
    for (uint32_t n = 0; n < sizeof samples / sizeof samples[0]; ++n) {
        const uint32_t before = switches;
        memcpy(sample, samples[n], sizeof sample);
        printk("run %d %d:", (int)infer_sensor(&out), (int)(switches - before));
        for (uint32_t i = 0; i < SENSOR_DIGIT_ELEMENTS; ++i) {
            printk(" %d", out.digit[i]);
        }
        printk("\\n");
    }
    printk("end\\n");
    return 0;
}
"""
pytestmark = [
    pytest.mark.deep,
    pytest.mark.qemu,
    pytest.mark.skipif(not BASE, reason="needs Zephyr; ZEPHYR_BASE names its folder"),
]


def run(*command: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def configure(sample: Path, build: Path, board: str) -> None:
    os.environ |= {"ZEPHYR_TOOLCHAIN_VARIANT": "gnuarmemb"}
    compiler = shutil.which("arm-none-eabi-gcc")
    assert compiler
    os.environ |= {"GNUARMEMB_TOOLCHAIN_PATH": str(Path(compiler).parents[1])}
    modules = os.environ.get("CMSIS_MODULE_PATH", "")
    facts = {"BOARD": board, "ZEPHYR_MODULES": modules, "Python3_EXECUTABLE": PYTHON}
    facts |= {"CONFIG_SYS_CLOCK_TICKS_PER_SEC": "5000"}
    given = [f"-D{name}={value}" for name, value in facts.items()]
    run("cmake", "-G", "Ninja", "-S", sample, "-B", build, *given)


def printed(build: Path, machine: str, last: str) -> list[str]:
    """Return the lines of the console up to one that begins with `last`."""
    elf = build / "zephyr" / "zephyr.elf"
    command = [
        "qemu-system-arm",
        "-machine",
        machine,
        "-nographic",
        "-kernel",
        str(elf),
    ]
    command += ["-icount", "shift=6,align=off,sleep=off", "-rtc", "clock=vm"]
    lines: list[str] = []
    with subprocess.Popen(
        ["timeout", "60", *command],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as emulator:
        assert emulator.stdout is not None
        for line in emulator.stdout:
            lines.append(line.rstrip())
            if line.startswith(last):
                emulator.terminate()
                break
    assert lines, "Zephyr printed nothing"
    assert lines[-1].startswith(last), lines
    return lines


def references(compiled: Compilation, samples: Sequence[Tensors]) -> list[list[int]]:
    outputs = run_oracle_reference(compiled, samples, "litert").outputs
    return [one["digit"].reshape(-1).tolist() for one in outputs]


@pytest.mark.parametrize("board", BOARDS)
def test_a_module_called_sensor_runs_in_zephyr(
    board: str, compiled: Callable[..., Compilation], tmp_path: Path
) -> None:
    similar, machine = BOARDS[board]
    model = compiled("digits", board=similar, name="sensor")
    _, package = export_model(model, "zephyr", tmp_path / "package")
    sample, build = package / "samples" / "sensor", tmp_path / "build"
    schema = Path(BASE) / "scripts/schemas/twister/testsuite-schema.yaml"
    run(PYTHON, "-m", "pykwalify.cli", "-d", sample / "sample.yaml", "-s", schema)
    configure(sample, build, board)
    config = (build / "zephyr/.config").read_text(encoding="utf-8").splitlines()
    assert {"CONFIG_FIRMWRIGHT_SENSOR=y", "# CONFIG_SENSOR is not set"} <= set(config)

    run("ninja", "-C", build)  # the sample as it was exported
    (zeros,) = references(model, [{"image": np.zeros((1, 8, 8, 1), np.int8)}])
    lines = printed(build, machine, "  digit")
    assert lines[-2:] == ["sensor: status 0", " ".join(["  digit", *map(str, zeros)])]

    samples = generate_samples(model.module.io.inputs, SAMPLES).samples
    write_loop(sample / "src" / "main.c", samples)
    assert "warning" not in run("ninja", "-C", build)
    runs = [
        line.split()
        for line in printed(build, machine, "end")
        if line.startswith("run")
    ]
    assert [[int(word) for word in words[3:]] for words in runs] == references(
        model, samples
    )
    assert {words[1] for words in runs} == {"0"}
    assert "sensor: self-test passed" in lines
    preempted = [int(words[2].rstrip(":")) for words in runs]
    assert min(preempted) > 0, "an inference was not preempted"


def write_loop(main: Path, samples: Sequence[Tensors]) -> None:
    """Give the sample a main that runs `samples` while another thread preempts."""
    text = main.read_text(encoding="utf-8")
    rows = [
        "{" + ", ".join(map(str, one["image"].reshape(-1))) + "}," for one in samples
    ]
    data = ["static const int8_t samples[][SENSOR_IMAGE_SIZE] = {", *rows, "};"]
    given = "static int8_t sample[SENSOR_IMAGE_SIZE];\n\n/* Run one inference on"
    text = text.split("/* Test sensor")[0].replace("/* Run one inference on", given)
    text = text.replace("memset(in.image, 0,", "memcpy(in.image, sample,")
    head = "#include <zephyr/kernel.h>\n"
    main.write_text(head + text + "\n".join(data) + LOOP, encoding="utf-8")
