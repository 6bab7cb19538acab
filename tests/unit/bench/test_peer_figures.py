"""The figures of peers are read with their origin."""

import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.bench.peer_figures import REFERENCE_PEER, find_figure, read_peers

ROOT = Path(__file__).parents[3]


def test_every_peer_figure_has_its_origin():
    figures = read_peers()
    assert figures
    assert all(
        figure.obtained and figure.unit and figure.value >= 0 for figure in figures
    )
    for figure in figures:
        assert figure.source, figure
        if figure.script not in ("by hand", "published"):
            assert (ROOT / figure.script).is_file(), figure
            assert figure.commit, figure
            assert date.fromisoformat(figure.date) >= date(2026, 11, 23)


def test_peer_figure_is_found_by_model_core_and_metric():
    figures = read_peers()
    expected_entries = {"model": "kws_ref_model.tflite", "core": "cortex-m4"}
    assert find_figure(figures, metric="instructions", **expected_entries) == 7226660
    assert find_figure(figures, metric="nonsense", **expected_entries) is None
    assert any(figure.peer == REFERENCE_PEER for figure in figures)


def test_a_broken_table_is_a_clear_error(tmp_path: Path):
    file = tmp_path / "peers.csv"
    file.write_text("peer,core\nx,y\n")
    with pytest.raises(UsageError, match="the peers' figures cannot be read"):
        read_peers(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read_peers(tmp_path / "absent.csv")


# Calls root twice, the second time with more instructions, and ends by semihosting.
IMAGE = """
#include <stdint.h>
static volatile int32_t sink;
__attribute__((noinline, used)) void root(int32_t times)
{
    for (int32_t i = 0; i < times; ++i) {
        sink = i;
    }
}
static void start(void)
{
    root(1);
    root(1000);
    register int32_t operation __asm("r0") = 0x18;
    register int32_t reason __asm("r1") = 0x20026;
    __asm volatile("bkpt 0xab" : : "r"(operation), "r"(reason));
    for (;;) {
    }
}
__attribute__((section(".first"), used)) static void *const vectors[] = {
    (void *)0x20010000, (void *)start
};
"""
FLAGS = [
    "-mcpu=cortex-m4",
    "-O1",
    "-nostdlib",
    "-Wl,-Ttext=0x100,--section-start=.first=0,-e,start",
]


@pytest.mark.qemu
def test_the_script_writes_the_row_of_an_image(tmp_path: Path):
    source, table = tmp_path / "image.c", tmp_path / "peers.csv"
    source.write_text(IMAGE)
    elf = source.with_suffix(".elf")
    subprocess.run(["arm-none-eabi-gcc", *FLAGS, source, "-o", elf], check=True)
    lines = (ROOT / "benchmarks/peers.csv").read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:3]))
    script = ROOT / "benchmarks/peers/measure_image.py"
    words = "--peer theirs --core cortex-m4 --model m.tflite --source a/b --commit c --how told"
    command = [sys.executable, script, elf, "--table", table, *words.split()]
    for _ in range(2):  # the second run replaces the row of the first
        subprocess.run(
            command,
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "toolchain")},
        )
    *others, row = read_peers(table)
    assert len(others) == 2
    assert (row.peer, row.source, row.commit, row.obtained) == (
        "theirs",
        "a/b",
        "c",
        "told",
    )
    assert 3000 <= row.value <= 6010
