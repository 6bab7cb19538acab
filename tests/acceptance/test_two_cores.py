"""A model over two cores: equal on mps2-an521, on threads and after a failure."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.errors import DeviceError, UsageError
from firmwright.codegen.multi_model_firmware import check_models_combine
from firmwright.device.session import Session
from firmwright.device.transport_selection import open_transport
from firmwright.flows.board.model_session import ModelSession
from firmwright.flows.export.package_export import export_model
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.predict.run_schedule import parallel_calls
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.verification import verify
from firmwright.ir.core import Constant
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module
from firmwright.pipeline import Compilation, Options, compile_model

Compile = Callable[..., Compilation]
CORES = ("cpu0", "cpu1")
HARNESS = Path(__file__).parents[1] / "devices" / "second_core.c"


def stand_in(done: Compilation, folder: Path, *flags: str) -> Callable[[str], str]:
    """Build the harness for a model; return a function that runs it in a mode."""
    done.save(folder)
    name, io = done.c_prefix, done.module.io
    assert done.module.plan is not None
    macros = {
        "NAME": name,
        "HEADER": f'"{name}.h"',
        "SRAM": done.module.plan.pool_bytes["sram"],
        "INPUT": io.inputs[0].buffer,
        "INPUT_BYTES": io.inputs[0].type.size_bytes,
        "OUTPUT": io.outputs[0].buffer,
        "OUTPUT_BYTES": io.outputs[0].type.size_bytes,
    }
    program = folder / "second_core"
    words = [
        "gcc",
        "-std=c99",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
        *flags,
    ]
    words += [f"-D{macro}={value}" for macro, value in macros.items()]
    words += [
        "-I",
        str(folder / "model"),
        str(HARNESS),
        str(folder / "model" / f"{name}.c"),
    ]
    subprocess.run([*words, "-o", str(program), "-lm"], check=True)

    def said(mode: str) -> str:
        ran = subprocess.run(
            [str(program), mode], capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout.strip()

    return said


@pytest.mark.host_c
@pytest.mark.parametrize(
    "model",
    ["digits", pytest.param("kws", marks=[pytest.mark.models, pytest.mark.deep])],
)
def test_thread_as_second_core_has_no_data_races(
    model: str, compiled: Compile, tmp_path: Path
) -> None:
    done = compiled(model, board="host", devices=CORES)
    life, status, outputs = stand_in(done, tmp_path, "-fsanitize=thread")(
        "thread"
    ).split()
    assert (status, outputs) == ("0", "same")
    assert re.fullmatch(r"A(o(s+w+)+c)+D", life), life
    assert life.count("s") == life.count("w") > 0


@pytest.mark.host_c
def test_failing_device_ends_the_run_or_falls_back(
    compiled: Compile, tmp_path: Path
) -> None:
    alone = stand_in(
        compiled("digits", board="host", devices=CORES), tmp_path / "alone"
    )
    assert alone("refuse").split()[:2] == ["AosD", "-6"]
    assert alone("asleep").split()[:2] == ["AD", "-6"]
    assert re.fullmatch(r"Aos+wD -6 \w+", alone("break"))
    both = stand_in(
        compiled("digits", board="host", devices=CORES, fallback=True), tmp_path / "b"
    )
    for mode in ("thread", "refuse", "asleep", "break"):
        life, *rest = both(mode).split()
        assert (rest, life[0], life[-1]) == (["0", "same"], "A", "D"), mode


def layers() -> IRModule:
    """Return a convolution followed by a fully connected layer, with random weights."""
    text = (
        "firmwright ir 2\nmodule @net\n"
        "graph @main(%x: i8[1, 10, 8, 8] quant(0.5, 1)) -> (%y) {\n"
        "  %a: i8[1, 10, 8, 8] quant(12.0, -2) = conv2d(%x, %w: i8[8, 3, 3, 8] quant(0.1, 0) "
        "const @w, %b: i32[8] quant(0.05, 0) const @b) {stride=[1, 1], dilation=[1, 1], "
        'padding=[1, 1, 1, 1], activation="none"}\n'
        "  %f: i8[1, 640] quant(12.0, -2) = reshape(%a)\n"
        "  %y: i8[1, 64] quant(900.0, 3) = fully_connected(%f, %v: i8[64, 640] quant(0.1, 0) "
        'const @v, %c: i32[64] quant(1.2, 0) const @c) {activation="none", keep_dims=false}\n}\n'
    )
    rng = np.random.Generator(np.random.PCG64(3))
    shapes = {"w": (8, 3, 3, 8), "b": (8,), "v": (64, 640), "c": (64,)}
    constants = {
        name: Constant.from_array(
            name, rng.integers(-100, 100, shape), INT32 if name in "bc" else INT8
        )
        for name, shape in shapes.items()
    }
    declared = "\n".join(
        f"const @{c.name} = {c.dtype.short}[{', '.join(map(str, c.shape))}] sha256.{c.digest}"
        for c in constants.values()
    )
    head, _, rest = text.partition("graph")
    module = parse_module(f"{head}{declared}\ngraph{rest}", structure_only=True)
    return replace(module, constants=constants)


@pytest.mark.qemu
@pytest.mark.deep
def test_cores_share_the_work_in_parallel() -> None:
    one, two = (
        compile_model(layers(), Options(board="mps2-an521", devices=devices))
        for devices in ((), CORES)
    )
    sample = generate_samples(one.module.io.inputs, 1, 5).samples[0]
    outputs: list[Any] = []

    def ask(session: ModelSession) -> None:
        outputs.append(session.run(sample)["y"])

    alone, both = (
        measure_instructions(one, after_run=ask),
        measure_instructions(two, after_run=ask),
    )
    assert np.array_equal(*outputs)
    line = both.timeline
    assert line is not None
    assert max(line.executed) <= 0.6 * alone.total.instructions
    assert max(line.executed) <= line.makespan <= 0.6 * alone.total.instructions
    kinds = {row["index"]: row["kind"] for row in two.metadata["operators"]}
    whole = {
        row["kind"]: alone.operators[row["index"]] for row in one.metadata["operators"]
    }
    for kind in ("conv2d", "fully_connected"):
        parts = [item for item in line.schedule if kinds[item.call.op] == kind]
        assert {item.call.device for item in parts} == {"", "cpu1"}
        assert (
            max(item.end - item.begin for item in parts)
            <= 0.6 * whole[kind].instructions
        )
        pairs = [
            (a, b)
            for a, b in parallel_calls(line.schedule)
            if a in parts and b in parts
        ]
        assert pairs, "the cores work on it at the same time"


@pytest.mark.models
@pytest.mark.qemu
def test_two_cores_compute_what_one_does(compiled: Compile) -> None:
    found = verify(compiled("kws", board="mps2-an521", devices=CORES), samples=2)
    assert (found.samples, found.mismatches) == (2, 0)


@pytest.mark.qemu
def test_cores_with_different_instructions_and_unlinked_constants(
    compiled: Compile,
) -> None:
    devices = ("cpu0", "cpu1=cortex-m -mcpu=cortex-m33")
    given: dict[str, Any] = {"devices": devices, "link_params": False}
    done = compiled("digits", board="mps2-an521", **given)
    assert "dsp.conv2d" in str(done.tree.files["backend/cpu1/digits_cpu1.c"])
    assert "dsp.conv2d" not in str(done.tree.files["model/digits.c"])
    found = verify(done, samples=2)
    assert (found.samples, found.mismatches) == (2, 0)


@pytest.mark.deep
@pytest.mark.qemu
def test_unlinked_constants_are_copied_to_the_bank_of_an_accelerator(
    compiled: Compile,
) -> None:
    given: dict[str, Any] = {"target": "vanilla", "link_params": False}
    done = compiled("digits", board="mps2-an521", **given)
    assert "pools->params->" in str(done.tree.files["model/digits.c"])
    assert verify(done, samples=2).exact


@pytest.mark.deep
@pytest.mark.models
@pytest.mark.qemu
@pytest.mark.parametrize(
    ("model", "speed"), [("kws", 0), ("kws", 1), ("kws", 2), ("ic", 1)]
)
def test_core_and_accelerator_are_faster_than_one_of_them(
    model: str, speed: int, compiled: Compile
) -> None:
    given = {"board": "mps2-an521", "target": f"vanilla -macs-per-cycle={speed}"}
    alone = measure_instructions(compiled(model, board="mps2-an521")).total.instructions
    both = compiled(model, **given, devices=("cpu0", "vanilla0"))
    lines = [
        measure_instructions(done).timeline for done in (compiled(model, **given), both)
    ]
    assert lines[0] is not None
    assert lines[1] is not None
    assert lines[1].makespan < 0.98 * min(alone, lines[0].makespan)
    assert verify(both, samples=2).exact


def test_single_core_model_has_no_multi_core_code(compiled: Compile) -> None:
    done = compiled("digits", board="host")
    text = str(done.tree.files[f"model/{done.c_prefix}.c"])
    assert "device" not in text


@pytest.mark.qemu
def test_a_fault_of_the_second_core_ends_the_run_with_a_status(
    compiled: Compile, tmp_path: Path
) -> None:
    done = compiled("digits", board="mps2-an521", devices=CORES)
    done.save(tmp_path)
    source = tmp_path / "model" / f"{done.c_prefix}.c"
    text = source.read_text(encoding="utf-8")
    planted = text.replace(
        "switch (call) {", '__asm__ volatile("udf #0");\n    switch (call) {'
    )
    assert planted.count("udf") == 1
    source.write_text(planted, encoding="utf-8")
    words = [sys.executable, "-m", "SCons", "-Q", "build/release/firmware.elf"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    elf = tmp_path / "build" / "release" / "firmware.elf"
    session = Session(
        open_transport(done.board, elf), model_id=bytes.fromhex(done.model_id)
    )
    with (
        ModelSession(done, session, None) as running,
        pytest.raises(DeviceError, match="-6"),
    ):
        running.run_all(generate_samples(done.module.io.inputs, 1, 0).samples)


@pytest.mark.qemu
@pytest.mark.deep
def test_second_core_simulates_an_accelerator(compiled: Compile) -> None:
    done = compiled("digits", board="mps2-an521", target="vanilla")
    rows = [row for row in done.metadata["operators"] if row["schedule"] == "vanilla"]
    assert {row["kind"] for row in rows} == {"conv2d", "fully_connected"}
    assert "The second core acts as vanilla0" in str(
        done.tree.files["firmware/fwr_app.c"]
    )
    assert verify(done, samples=1).mismatches == 0


@pytest.mark.models
@pytest.mark.qemu
@pytest.mark.deep
def test_dma_transfers_tiles_to_the_accelerator(compiled: Compile) -> None:
    """On mps2-an521 only a PL081 copies from SSRAM 2 to the engine's SSRAM 3."""
    done = compiled("kws", board="mps2-an521", target="vanilla")
    text = str(done.tree.files[f"model/{done.c_prefix}.c"])
    assert "device_copy_" not in text
    assert verify(done, samples=2).mismatches == 0
    line = measure_instructions(done).timeline
    assert line is not None
    assert {item.call.device for item in line.schedule} == {
        "",
        "vanilla0",
        "dma0",
        "dma1",
    }
    assert 0 < line.parallel.transfers < line.makespan < line.parallel.sequential


@pytest.mark.deep
@pytest.mark.host_c
def test_partial_results_are_compared_as_a_whole(compiled: Compile) -> None:
    found = verify(
        compiled("digits", board="host", devices=CORES),
        samples=1,
        find_first_divergence=True,
    )
    assert found.exact
    assert found.layer is None
    assert found.layers_compared


@pytest.mark.host_c
def test_package_exposes_replaceable_devices(compiled: Compile, tmp_path: Path) -> None:
    done = compiled("digits", board="host", devices=(*CORES, "dma0"))
    export_model(done, "makefile", tmp_path)
    words = ["make", "check", "CFLAGS=-O1 -Wall -Wextra -Wpedantic -Werror"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    example = (tmp_path / "example" / "main.c").read_text(encoding="utf-8")
    assert "digits_on_cpu1(call, memory);" in example


def test_several_models_in_one_firmware_have_one_core(compiled: Compile) -> None:
    module = compiled("digits", board="host", devices=CORES).module
    with pytest.raises(
        UsageError, match=r"digits: several models do not support multiple devices\."
    ):
        check_models_combine([module, replace(module, name="b")])


@pytest.mark.parametrize(
    ("board", "options", "said"),
    [
        (
            "mps2-an386",
            {"devices": CORES},
            "there is no device cpu1: the board has one core, cpu0",
        ),
        ("host", {"devices": ("cpu1", "cpu0")}, "the first must be cpu0"),
        ("host", {"devices": ("cpu0", "2")}, "'2' is not a device name"),
        ("host", {"devices": ("cpu0", "cpu0")}, "cpu0 is named twice"),
        ("host", {"fallback": True}, "--fallback requires other devices"),
        (
            "host",
            {"devices": CORES, "io_buffers": "caller"},
            "--io-buffers caller and further devices",
        ),
        (
            "host",
            {"devices": CORES, "stream_input_rows": True},
            "--stream-input-rows and further devices",
        ),
    ],
)
def test_unsupported_combinations_are_usage_errors(
    board: str, options: dict[str, Any], said: str, compiled: Compile
) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        compiled("digits", board=board, **options)
