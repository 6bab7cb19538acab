"""Whole models with access checks against the plan, and with poisoned memory."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firmwright.base.errors import DeviceError
from firmwright.device.session import Session
from firmwright.device.transport_selection import open_transport
from firmwright.flows.board.model_session import ModelSession
from firmwright.flows.samples.reference_outputs import run_oracle_reference
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.access_checking import open_checked_session
from firmwright.flows.verify.operand_checks import format_operand_checks
from firmwright.flows.verify.verification import verify
from firmwright.oracle.compare import compare_outputs
from firmwright.pipeline import Compilation

Compile = Callable[..., Compilation]
MODELS = ("ad", "ic", "kws", "vww", "ww")
CORES = ("cortex-m4", "cortex-m55", "cortex-m0")
GOALS = ("balanced", "ram", "speed")
ALWAYS = {("kws", "cortex-m4", "ram"), ("ww", "cortex-m55", "balanced")}
CASES = [
    pytest.param(*case, marks=[] if case in ALWAYS else [pytest.mark.deep])
    for case in (
        (model, core, goal) for model in MODELS for core in CORES for goal in GOALS
    )
]


@pytest.mark.sampled(2)
@pytest.mark.models
@pytest.mark.host_c
@pytest.mark.parametrize(("model", "core", "goal"), CASES)
def test_every_byte_read_belongs_to_its_buffer(
    model: str, core: str, goal: str, compiled: Compile
) -> None:
    done = compiled(model, board="host", target=f"cortex-m -mcpu={core}", optimize=goal)
    found = verify(done, samples=2, open_with=open_checked_session)
    assert (found.samples, found.mismatches) == (2, 0)


def poisoned(done: Compilation, folder: Path, *, planted: str = "") -> Path:
    """Firmware whose operators may touch only their arguments.

    `planted` begins a kernel.
    """
    name = done.c_prefix
    done.save(folder)
    (folder / "model" / f"{name}_operands.h").write_text(
        format_operand_checks(done.module, name)
    )
    source = folder / "model" / f"{name}.c"
    text = source.read_text()
    kernel = re.compile(r"(_KERNEL void \w+\([^)]*\)\n\{\n)")
    assert kernel.search(text)
    source.write_text(
        kernel.sub(rf"\1    {planted}\n", text, count=1) if planted else text
    )
    header = f'-D{name.upper()}_PROBE_HEADER=\\"{name}_operands.h\\"'
    flags = f"extra=-fsanitize=address {header}"
    words = [sys.executable, "-m", "SCons", "-Q", "build/release/firmware.elf", flags]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return folder / "build" / "release" / "firmware.elf"


def outputs(done: Compilation, elf: Path) -> tuple[dict[str, Any], ...]:
    session = Session(
        open_transport(done.board, elf), model_id=bytes.fromhex(done.model_id)
    )
    with ModelSession(done, session, None) as running:
        return running.run_all(generate_samples(done.module.io.inputs, 2).samples)


@pytest.mark.host_c
@pytest.mark.parametrize(
    ("model", "goal", "by_rows"),
    [
        ("digits", "ram", False),
        *(
            pytest.param(
                model, goal, by_rows, marks=[pytest.mark.models, pytest.mark.deep]
            )
            for model in MODELS
            for goal, by_rows in (("balanced", False), ("ram", False), ("ram", True))
            if not (by_rows and model in ("ad", "ww"))
        ),
    ],
)
def test_operators_access_only_their_arguments(
    model: str, goal: str, by_rows: bool, compiled: Compile, tmp_path: Path
) -> None:
    target = "cortex-m -mcpu=cortex-m4"
    done = compiled(
        model, board="host", target=target, optimize=goal, stream_input_rows=by_rows
    )
    found = outputs(done, poisoned(done, tmp_path))
    samples = generate_samples(done.module.io.inputs, 2).samples
    expected = run_oracle_reference(done, samples, "litert").outputs
    assert compare_outputs(expected, found).mismatches == 0


@pytest.mark.host_c
def test_write_outside_of_the_arguments_ends_the_run(
    compiled: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the legend, the message comes last.
    monkeypatch.setenv("ASAN_OPTIONS", "print_legend=0")
    done = compiled("digits", board="host", target="cortex-m -mcpu=cortex-m4")
    plan = done.module.plan
    assert plan is not None
    given = ("image", "conv_2d_1", "conv2d_0.columns")
    sizes = {buffer.name: buffer.size_bytes for buffer in plan.buffers}
    end = max(plan.placements[name].offset + sizes[name] for name in given)
    assert end < plan.workspace_bytes  # the write stays inside of the pool
    beyond = end - plan.placements["conv_2d_1"].offset
    elf = poisoned(done, tmp_path, planted=f"y[{beyond}] = 0;")
    with pytest.raises(DeviceError, match=r"use-after-poison .* in digits_conv2d_0"):
        outputs(done, elf)
