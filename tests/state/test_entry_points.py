"""Signatures of one file as entry points that share state in one firmware."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import UnsupportedError, UsageError
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model
from firmwright.flows.verify.verification import verify
from firmwright.pipeline import Compilation, bundle, load_module_bytes
from tests.state.model_writer import GraphFile, ModelFile

KIND = ("int8", (1, 4), 0.5, 3)


def add_and_ask() -> bytes:
    """Build a file: `add` adds x to the variable `sum`, `ask` is max(sum, y)."""
    file = ModelFile()
    first, second = file.graph("add"), file.graph("ask")
    x, result = _entry(first, "x", "ADD", "AddOptions", assigns=True)
    y, larger = _entry(second, "y", "MAXIMUM", "MaximumMinimumOptions", assigns=False)
    file.signature("add", 0, {"x": x}, {"sum": result})
    file.signature("ask", 1, {"y": y}, {"larger": larger})
    return file.data()


def _entry(
    graph: GraphFile, name: str, op: str, table: str, *, assigns: bool
) -> tuple[int, int]:
    x, handle = graph.input(name, *KIND), graph.handle("sum")
    result = graph.tensor(f"{name}/made", *KIND)
    graph.op(op, [graph.read(handle, f"{name}/before", *KIND), x], [result], table)
    if assigns:
        graph.assign(handle, result)
    graph.outputs(result)
    return x, result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "calc.tflite"
    file.write_bytes(add_and_ask())
    return file


def entry_points(path: Path, board: str) -> list[Compilation]:
    models = [load_model(f"{path}:{key}") for key in ("add", "ask")]
    return [compile_for(model, board, numerics="tflm") for model in models]


def test_file_with_several_entry_points_needs_a_selection(path: Path) -> None:
    with pytest.raises(
        UnsupportedError, match=r"\(add, ask\): select one, as calc.tflite:ask"
    ):
        load_model(path)
    with pytest.raises(UsageError, match="no signature 'sub'"):
        load_model(f"{path}:sub")
    model = load_model(f"{path}:ask")
    assert model.name == "calc_ask"
    assert model.module.origin.subgraph == 1


@pytest.mark.host_c
def test_entry_point_is_verified_against_its_own_subgraph(path: Path) -> None:
    _, ask = entry_points(path, "host")
    assert verify(ask, samples=4).exact


def test_entry_points_of_one_file_share_variables(path: Path) -> None:
    parts = bundle(entry_points(path, "mps2-an386")).parts
    placed = [part.module.plan.placements["sum"] for part in parts if part.module.plan]
    assert placed[0] == placed[1]


_MAIN = """
#include <stdio.h>
#include <string.h>
#include "model/calc_add.h"
#include "model/calc_ask.h"

#define LARGER(a, b) ((a) > (b) ? (a) : (b))
static uint8_t sram[LARGER(CALC_ADD_SRAM_SIZE, CALC_ASK_SRAM_SIZE)] __attribute__((aligned(16)));
static const struct calc_add_workspace_pools add = {sram};
static const struct calc_ask_workspace_pools ask = {sram};

int main(void)
{
    struct calc_add_inputs x;
    struct calc_add_outputs sum;
    struct calc_ask_inputs y;
    struct calc_ask_outputs larger;

    calc_add_map_io(&add, &x, &sum);
    calc_ask_map_io(&ask, &y, &larger);
    calc_add_reset(&add);
    for (int round = 0; round < 3; ++round) {
        memset(x.x, 13, CALC_ADD_X_SIZE);
        if (calc_add_run(&x, &sum, &add) != 0) {
            return 1;
        }
        memset(y.y, 21, CALC_ASK_Y_SIZE);
        if (calc_ask_run(&y, &larger, &ask) != 0) {
            return 1;
        }
        printf("%d ", larger.y_made[0]);
    }
    return 0;
}
"""


@pytest.mark.host_c
def test_entry_point_reads_state_of_the_other(path: Path, tmp_path: Path) -> None:
    compilation = bundle(entry_points(path, "host"))
    compilation.tree.write(tmp_path)
    (tmp_path / "main.c").write_text(_MAIN)
    sources = ["main.c", *map(str, sorted((tmp_path / "model").glob("*.c")))]
    command = [
        "cc",
        "-std=c99",
        "-fsanitize=address,undefined",
        "-I.",
        "-o",
        "main",
        *sources,
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        ["./main"], cwd=tmp_path, capture_output=True, check=True, text=True
    )
    # A stored 13 is the value 5: the sums 5, 10 and 15 are stored as 13, 23 and 33.
    assert done.stdout == "21 23 33 "


def test_an_entry_point_given_twice_has_two_variables(path: Path) -> None:
    """Two copies of a model are two models, each with the entry points after it."""
    named = [("add", "first_add"), ("ask", "first_ask"), ("add", "second_add")]
    parts: list[Compilation] = []
    for key, name in named:
        model = load_model(f"{path}:{key}", name=name)
        parts.append(compile_for(model, "host", numerics="tflm"))
    both = bundle(parts)
    offsets: list[int] = []
    for part in both.parts:
        (state,) = part.module.io.state
        offsets.append(part.module.memory_plan.placements[state.buffer].offset)
    assert offsets[0] == offsets[1] != offsets[2]


def test_different_initial_values_of_a_variable_are_rejected(path: Path) -> None:
    add, ask = entry_points(path, "host")
    (state,) = ask.module.io.state
    other = replace(ask.module.constants[state.initial], data=b"\1\2\3\4")
    changed = replace(
        ask.module, constants={**ask.module.constants, state.initial: other}
    )
    with pytest.raises(
        UsageError, match="initialize the shared variable sum differently"
    ):
        bundle([add, replace(ask, module=changed)])


def test_path_with_a_colon_can_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "odd.tflite:name"
    model = ModelFile()
    graph = model.graph("main")
    x, y = graph.input("x", *KIND), graph.tensor("y", *KIND)
    graph.op("RELU", [x], [y])
    graph.outputs(y)
    file.write_bytes(model.data())
    loaded = load_model(file)
    assert isinstance(loaded, Model)
    np.testing.assert_equal(loaded.module, load_module_bytes(model.data(), file.name))
