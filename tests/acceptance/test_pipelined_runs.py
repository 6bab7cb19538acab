"""Pipelined runs: late outputs, concurrent stages, saved and rejected models."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.base.errors import UsageError
from firmwright.device.host_library import LibrarySession
from firmwright.flows.board.model_session import open_session
from firmwright.flows.export.package_export import export_model
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for, module_after
from firmwright.flows.model.model import Model
from firmwright.flows.predict.run_schedule import parallel_calls
from firmwright.flows.samples.reference_outputs import (
    compute_reference,
    run_numpy_reference,
)
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.first_divergence import locate_first_divergence
from firmwright.graph_builder import GraphBuilder
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.oracle.compare import compare_outputs
from firmwright.pipeline import Compilation

Compile = Callable[..., Compilation]
BOTH: dict[str, Any] = {"target": "vanilla", "pipeline_runs": True}


def branched(*, results: int = 1, state: bool = False) -> IRModule:
    """Return two engine and two core calls with a skip or the first's result."""
    rng = np.random.Generator(np.random.PCG64(5))
    g = GraphBuilder("net")
    at = {"scale": 12.0, "zero_point": -2}
    x = g.input("x", (1, 8, 8, 8), scale=12.0, zero_point=-2)

    def conv(source: Any, name: str) -> Any:
        weights = g.constant(rng.integers(-100, 100, (8, 3, 3, 8), np.int8), scale=0.01)
        biases = g.constant(rng.integers(-100, 100, (8,), np.int32), scale=0.12)
        shape = {"stride": (1, 1), "dilation": (1, 1), "padding": (1, 1, 1, 1)}
        return g.call(
            "conv2d",
            source,
            weights,
            biases,
            name=name,
            activation="none",
            **at,
            **shape,
        )

    a = conv(x, "a")
    b = g.call("add", a, a, name="b", activation="none", **at)
    c = conv(b, "c")
    if state:
        kept = g.state("kept", np.zeros((1, 8, 8, 8), np.int8), **at)
        b = g.call("add", b, kept, name="sum", activation="none", **at)
        g.set_next_state(kept, b)
    y = g.call("mul", c, b, name="y", activation="none", **at)
    return g.module(*(y, a)[:results])


def test_outputs_are_those_of_the_run_before_and_reset_empties_the_pipeline(
    compiled: Compile,
) -> None:
    done = compiled("digits", board="host", **BOTH)
    samples = generate_samples(done.module.io.inputs, 4, 0).samples
    expected = [
        row["digit"].ravel()
        for row in run_numpy_reference(done.imported, samples).outputs
    ]
    with open_session(done, in_process=True) as session:
        runner = session._runner
        assert isinstance(runner, LibrarySession)
        empty = runner.run(samples[0])["digit"]
        for sample, digit in zip(samples[1:], expected, strict=False):
            assert np.array_equal(runner.run(sample)["digit"], digit)
        runner._library.digits_reset(runner._pools)
        assert np.array_equal(runner.run(samples[1])["digit"], empty)
        assert np.array_equal(runner.run(samples[2])["digit"], expected[1])
    header = str(done.tree.files["model/digits.h"])
    assert "#define DIGITS_PIPELINE_RUNS 1" in header
    assert done.metadata["io"]["pipeline_runs"] == 1
    assert done.metadata["options"]["pipeline_runs"] is True


def test_operators_are_compared_with_those_of_the_same_input(compiled: Compile) -> None:
    done = compiled("digits", board="host", **BOTH)
    samples = generate_samples(done.module.io.inputs, 2, 0).samples
    reference = compute_reference(done, samples, layers=True)
    divergence, operators = locate_first_divergence(
        done, samples, reference, open_session
    )
    assert (divergence, operators) == (None, 8)


@pytest.mark.parametrize("stage", ["pipeline-runs", "final-dce"])
def test_saved_modules_have_late_outputs_too(stage: str) -> None:
    options = compile_for(branched(), **BOTH).options
    module = parse_module(print_module(module_after(Model(branched()), stage, options)))
    done = compile_for(module)
    samples = generate_samples(done.module.io.inputs, 3, 0).samples
    expected = run_numpy_reference(branched(), samples).outputs
    with open_session(done, in_process=True) as session:
        actual = session.run_all(samples)
    for outputs in (actual, compute_reference(done, samples).outputs):
        assert [row["y"].tolist() for row in outputs] == [
            row["y"].tolist() for row in expected
        ]


def test_the_cut_balances_core_and_engine_and_keeps_skip_connections() -> None:
    options = compile_for(branched(), **BOTH).options
    entry = module_after(Model(branched()), "pipeline-runs", options).entry
    assert isinstance(entry, Function)
    assert [state.next.name for state in entry.state] == ["b"]
    order = [call.outputs[0].name for call in entry.body]
    assert order.index("a") < order.index("b")
    assert order.index("c") < order.index("y")
    assert order[0] == "c", "the engine starts with the older run"


def test_selftest_of_a_package_repeats_the_last_input(
    compiled: Compile, tmp_path: Path
) -> None:
    export_model(compiled("digits", board="host", **BOTH), "makefile", tmp_path)
    words = ["make", "check", "CFLAGS=-O1 -Wall -Wextra -Wpedantic -Werror"]
    ran = subprocess.run(
        words, cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert "digits: self-test passed" in ran.stdout


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("model", "limit"),
    [
        ("digits", 0.98),
        pytest.param("kws", 0.7, marks=[pytest.mark.models, pytest.mark.deep]),
    ],
)
def test_runs_end_more_often_than_a_single_run_allows(
    model: str, limit: float, compiled: Compile
) -> None:
    """The calls of a single run form a chain: it takes the sum of their times."""
    target = "vanilla -macs-per-cycle=2"
    done = compiled(model, board="mps2-an521", target=target, pipeline_runs=True)
    samples = generate_samples(done.module.io.inputs, 3, 0).samples
    actual: list[Any] = []
    line = measure_instructions(
        done, after_run=lambda session: actual.extend(session.run_all(samples))
    ).timeline
    assert line is not None
    assert line.makespan < limit * line.parallel.sequential
    pairs = [{a.call.device, b.call.device} for a, b in parallel_calls(line.schedule)]
    assert {"", "vanilla0"} in pairs
    reference = compute_reference(done, samples)
    assert reference.name.startswith("LiteRT")
    assert compare_outputs(reference.outputs, actual).mismatches == 0


def loop() -> IRModule:
    kind = "i32[1]"
    text = (
        "firmwright ir 2\nmodule @net\n"
        f"graph @main(%x: {kind}) -> (%y) {{\n"
        f'  %y: {kind} = while(%x) {{cond="cond", body="body"}}\n}}\n'
        f"graph @cond(%x: {kind}) -> (%more) {{\n  %more: bool[1] = greater(%x, %x)\n}}\n"
        f"graph @body(%x: {kind}) -> (%n) {{\n"
        f'  %n: {kind} = add(%x, %x) {{activation="none"}}\n}}\n'
    )
    return parse_module(text, structure_only=True)


@pytest.mark.parametrize(
    ("module", "options", "said"),
    [
        (branched(state=True), {}, "the model keeps state between runs (kept)"),
        (loop(), {}, "the model has control flow or functions (while)"),
        (branched(), {"target": ""}, "no call is assigned to an accelerator"),
        (
            branched(),
            {"target": "", "devices": ("cpu0", "cpu1")},
            "no call is assigned to",
        ),
        (branched(results=2), {}, "an input or a result is used throughout the model"),
    ],
)
def test_models_without_two_stages_are_refused(
    module: IRModule, options: dict[str, Any], said: str
) -> None:
    message = re.escape(f"--pipeline-runs is not possible: {said}")
    with pytest.raises(UsageError, match=message):
        compile_for(module, **{**BOTH, **options})
