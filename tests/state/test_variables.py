"""Variables that persist between runs, in both runtimes and the C interface."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import ModelError, UnsupportedError
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.verify.verification import verify
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.verify import verify_graph
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ops.registry import op_table
from firmwright.pipeline import Compilation, Options, compile_model, load_module_bytes
from tests.state.model_writer import ModelFile

KIND = ("int8", (1, 4), 0.5, 3)
FIRST = np.array([[1, -2, 3, 4]], np.int8)


def running_sum_and_history() -> bytes:
    """Build `sum` of x from FIRST, `history` of three x, and swapped `a` and `b`."""
    file = ModelFile()
    main, once = file.graph("main"), file.graph("once")
    x = main.input("x", *KIND)
    main.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
    handle = main.handle("sum")
    total = main.tensor("total", *KIND)
    main.op("ADD", [main.read(handle, "before", *KIND), x], [total], "AddOptions")
    main.assign(handle, total)

    handle = main.handle("history")
    old = main.read(handle, "old", "int8", (1, 3, 4), 0.5, 3)
    row = main.tensor("row", "int8", (1, 1, 4), 0.5, 3)
    main.op("RESHAPE", [x, main.constant("rows", np.array([1, 1, 4], np.int32))], [row])
    ends = [("from", (0, 1, 0)), ("to", (1, 3, 4)), ("by", (1, 1, 1))]
    slices = [main.constant(name, np.array(at, np.int32)) for name, at in ends]
    tail = main.tensor("tail", "int8", (1, 2, 4), 0.5, 3)
    main.op("STRIDED_SLICE", [old, *slices], [tail], "StridedSliceOptions")
    new = main.tensor("new", "int8", (1, 3, 4), 0.5, 3)
    main.op("CONCATENATION", [tail, row], [new], "ConcatenationOptions", axis=1)
    main.assign(handle, new)

    a, b = main.handle("a"), main.handle("b")
    was_a, was_b = main.read(a, "was_a", *KIND), main.read(b, "was_b", *KIND)
    main.assign(a, was_b)
    main.assign(b, was_a)
    main.outputs(total, new, was_a)

    once.assign(once.handle("sum"), once.constant("first", FIRST, 0.5, 3))
    zeros = once.constant("zeros", np.full((1, 3, 4), 3, np.int8), 0.5, 3)
    once.assign(once.handle("history"), zeros)
    once.assign(once.handle("a"), once.constant("one", FIRST, 0.5, 3))
    once.assign(once.handle("b"), once.constant("other", -FIRST, 0.5, 3))
    return file.data()


@pytest.fixture(scope="module")
def compiled() -> Compilation:
    data = running_sum_and_history()
    return compile_for(Model(load_module_bytes(data, "kept.tflite"), data), "host")


def test_assigned_variables_become_state_with_initial_values(
    compiled: Compilation,
) -> None:
    main = compiled.imported.entry
    assert isinstance(main, Function)
    states = {state.value.name: state for state in main.state}
    assert list(states) == ["sum", "history", "a", "b"]
    constants = compiled.imported.constants
    np.testing.assert_array_equal(constants[states["sum"].initial].array(), FIRST)
    assert states["sum"].next.name == "total"
    assert {call.op for call in main.body} == {
        "add",
        "reshape",
        "strided_slice",
        "concatenation",
    }
    assert parse_module(print_module(compiled.imported)) == compiled.imported


def test_state_updates_are_copied_only_if_needed(compiled: Compilation) -> None:
    module = compiled.module
    assert [state.buffer for state in module.io.state] == ["sum", "history", "a", "b"]
    assert module.plan is not None
    kinds = {buffer.name: buffer.kind for buffer in module.plan.buffers}
    assert kinds["history"] == kinds["sum"] == "state"
    text = compiled.tree.files["model/kept.c"]
    assert isinstance(text, str)
    assert "keep_4_int8(total, sum)" in text  # the sum is an output too
    assert "keep_12_int8" in text  # so is the history
    assert parse_module(print_module(module)) == module


@pytest.mark.sampled(2)
@pytest.mark.host_c
@pytest.mark.parametrize("numerics", ["litert", "tflm"])
def test_samples_in_sequence_match_the_runtimes(numerics: str) -> None:
    data = running_sum_and_history()
    model = Model(load_module_bytes(data, "kept.tflite"), data)
    verification = verify(
        compile_for(model, "host", numerics=numerics),
        samples=5,
        find_first_divergence=True,
    )
    assert verification.values == 5 * (4 + 12 + 4)
    assert verification.exact
    assert verification.layer is None


_MAIN = """
#include <stdio.h>
#include <string.h>
#include "model/kept.h"

static uint8_t sram[KEPT_SRAM_SIZE] __attribute__((aligned(KEPT_SRAM_ALIGN)));
static const struct kept_workspace_pools pools = {sram};
static struct kept_inputs in;
static struct kept_outputs out;

static void show(void)
{
    memset(in.x, 5, KEPT_X_SIZE);
    if (kept_run(&in, &out, &pools) != 0) {
        printf("failed ");
    }
    printf("%d ", out.total[0]);
}

int main(void)
{
    struct kept_state state;

    kept_map_io(&pools, &in, &out);
    kept_reset(&pools);
    show();
    kept_save_state(&pools, &state);
    show();
    show();
    kept_load_state(&pools, &state);
    show();
    kept_reset(&pools);
    show();
    printf("%d", state.sum[0]);
    return 0;
}
"""


@pytest.mark.host_c
def test_c_interface_saves_loads_and_resets_state(
    compiled: Compilation, tmp_path: Path
) -> None:
    compiled.tree.write(tmp_path)
    (tmp_path / "main.c").write_text(_MAIN)
    flags = [
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsanitize=address,undefined",
        "-I.",
    ]
    command = ["cc", *flags, "main.c", "model/kept.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        ["./main"], cwd=tmp_path, capture_output=True, check=True, text=True
    )
    # Each run adds a stored 5, the value 1: two steps of 0.5 above the zero point 3.
    assert done.stdout == "3 5 7 5 3 3"


@pytest.mark.gcc
def test_plan_with_state_passes_access_tracing(compiled: Compilation) -> None:
    from firmwright.flows.verify.access_checking import open_checked_session

    verification = verify(compiled, samples=3, open_with=open_checked_session)
    assert verification.exact


def test_variable_with_two_shapes_is_reported() -> None:
    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", *KIND)
    handle = main.handle("v")
    main.read(handle, "wide", "int8", (1, 8), 0.5, 3)
    main.assign(handle, x)
    main.outputs(x)
    with pytest.raises(
        UnsupportedError, match=r"the variable v as int8 \[1, 4\], which is int8"
    ):
        load_module_bytes(file.data(), "v.tflite")


STATEFUL = """firmwright ir 2
module @m
attrs {entry="main"}
const @zeros = i8[4] [0, 0, 0, 0]
graph @main(%x: i8[4]) -> (%y) state(%kept: i8[4] = @zeros -> %y, %b: i8[4] = @zeros -> %kept) {
  %y: i8[4] = maximum(%x, %kept)
}
"""


def _checked(text: str) -> IRModule:
    module = parse_module(text)
    entry = module.entry
    assert isinstance(entry, Function)
    verify_graph(entry, module, op_table())
    return module


def test_state_needs_one_type_and_a_constant_initial_value() -> None:
    assert _checked(STATEFUL)
    with pytest.raises(
        ModelError, match=r"the state b has the unknown initial constant 'ones'"
    ):
        _checked(STATEFUL.replace("%b: i8[4] = @zeros", "%b: i8[4] = @ones"))
    with pytest.raises(
        ModelError, match=r"the state b is i8\[2\], its initial constant is i8\[4\]"
    ):
        _checked(STATEFUL.replace("%b: i8[4]", "%b: i8[2]"))


def test_state_assigned_from_another_state_needs_a_copy() -> None:
    with pytest.raises(ModelError, match="the next value of state b is the state kept"):
        compile_model(_checked(STATEFUL), Options())
