"""The table of networks beside TFLM, its page, and the programs that it is measured with."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "benchmarks/peers"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that imports a script of the folder by its name."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)  # dataclasses look it up
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def table(script: Any) -> Any:
    return script("side_by_side")


def test_the_page_has_the_tables_of_the_file(table: Any) -> None:
    text = table.PAGE.read_text(encoding="utf-8")
    assert table.make_page(text, table.read_rows()) == text


def test_every_row_is_of_a_listed_network_with_equal_outputs(table: Any) -> None:
    names = {network.name for network in table.read_networks()}
    for row in table.read_rows():
        assert row.network in names
        assert row.outputs in {"=", "tflm", "CMSIS-NN"}


def test_a_row_that_is_behind_is_named(table: Any) -> None:
    rows = table.read_rows()[:3]
    behind = replace(rows[0], flash_bytes=rows[0].peer_flash_bytes + 1)
    text = table.make_summary({behind.core: [behind, *rows[1:]]})
    assert f"| {behind.network} |" in text
    ahead = replace(rows[0], flash_bytes=rows[0].peer_flash_bytes)
    assert not ahead.is_behind


def test_networks_without_a_row_are_named(table: Any) -> None:
    first, *others = table.read_rows()
    rows = [row for row in others if row.core == first.core]
    assert first.network in table.make_list_of_missing({first.core: rows})
    every = [replace(first, network=item.name) for item in table.read_networks()]
    assert table.make_list_of_missing({first.core: every}) == ""


def test_the_medians_are_those_of_the_ratios_shown(table: Any) -> None:
    rows = [row for row in table.read_rows() if row.core == "cortex-m4"]
    told = _cells(table.make_summary({"cortex-m4": rows}))[2]
    lines = _cells(table.make_table("cortex-m4", rows))[4:]
    assert len(lines) == len(rows) == int(told[2])
    for value, column in zip(told[3:6], (4, 7, 10), strict=True):
        shown = [float(line[column].strip("*")) for line in lines]
        assert float(value) == pytest.approx(np.median(shown), abs=0.006)


def test_the_floor_of_flash_counts_the_weights_alone(table: Any) -> None:
    row = replace(table.read_rows()[0], peer_flash_bytes=1000)
    assert replace(row, weights_bytes=400, flash_bytes=450).flash_floor == 0.4
    without_constant_channels = replace(row, weights_bytes=400, flash_bytes=100)
    assert without_constant_channels.flash_floor == 0.1
    rows = [replace(row, weights_bytes=bytes_, flash_bytes=900) for bytes_ in (1, 250)]
    assert _cells(table.make_summary({"cortex-m4": rows}))[2][6] == "0.13"


def _cells(text: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in text.splitlines()]


def test_a_row_is_written_in_the_place_of_the_earlier_one(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = table.read_rows()
    copy = tmp_path / "rows.csv"
    copy.write_bytes(table.TABLE.read_bytes())
    monkeypatch.setattr(table, "TABLE", copy)
    changed = replace(recorded[1], instructions=7)
    table.write_row(changed)
    assert table.read_rows() == (recorded[0], changed, *recorded[2:])


def test_the_program_registers_the_kernels_of_the_types(script: Any) -> None:
    harness = script("tflm_harness")
    text = harness.make_main(ROOT / "examples/01_digits/digits.tflite")
    assert "resolver.AddConv2D(tflite::Register_CONV_2D_INT8());" in text
    assert "$" not in text.replace("__global_pointer$", "")
    assert harness.make_main(None).count("#if 1") == 1
