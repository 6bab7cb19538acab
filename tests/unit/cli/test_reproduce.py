"""Comparison of a project's folder with a new compilation."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from firmwright.artifacts import MARKER
from firmwright.base.errors import ModelError, UsageError
from firmwright.cli.main import main
from firmwright.cli.reproduce import reproduce
from firmwright.ir.core import PoolInfo
from firmwright.package.option_serialization import (
    MACHINE_OPTIONS,
    deserialize_options,
    serialize_options,
)
from firmwright.pipeline import Options

EVERYTHING = Options(
    board="mps2-an386",
    target="cortex-m -mcpu=cortex-m4",
    numerics="tflm",
    optimize="ram",
    planner="hill_climb",
    io_buffers="caller",
    preserve_input=True,
    stream_input_rows=True,
    recompute=True,
    compress_weights=True,
    link_params=False,
    inline_asm=False,
    constant_channels=False,
    analysis_hints=True,
    emit_step_api=True,
    emit_probe_callback=True,
    emit_descriptor=True,
    c_api="tvm",
    name="other",
    ram_bytes=10_000,
    flash_bytes=20_000,
    pools=(PoolInfo("fast", 400, targets=("cpu",)), PoolInfo("slow", read_latency=3)),
    pool_assignments=(("x", "fast"),),
    const_pools=(PoolInfo("ext", access="ro", scope="port"),),
    devices=("cpu0", "cpu1"),
    fallback=True,
    pipeline_runs=True,
    offload=(("y", "npu1"),),
    device_assignments=(("w", "cpu1", "sram"),),
    c_standard="c11",
    sections=(("code", ".fast"),),
    license="MIT",
    constants_in_header=True,
    weight_independent=True,
    no_nan=True,
    harden=True,
)


@pytest.fixture
def project(tmp_path: Path, digits_path: Path) -> Path:
    options = [
        "--board",
        "mps2-an386",
        "--io-buffers",
        "caller",
        "--preserve-input",
        "--name",
        "ten",
    ]
    assert (
        main(["compile", str(digits_path), *options, "-o", str(tmp_path / "out")]) == 0
    )
    return tmp_path / "out"


def test_serialized_options_are_those_that_differ_from_defaults() -> None:
    assert serialize_options(Options()) == {}
    written = serialize_options(EVERYTHING)
    assert set(written) == {
        field.name for field in fields(Options)
    } - MACHINE_OPTIONS - {
        "tuning",
        "update_of",
        "passes",
    }
    read = deserialize_options(
        json.loads(json.dumps(written)), Options, Path("metadata.json")
    )
    assert Options(**read) == EVERYTHING


def test_the_same_models_give_the_same_files(
    project: Path, digits_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", str(project), str(digits_path)]) == 0
    assert "files are identical" in capsys.readouterr().out


def test_changed_and_missing_files_are_named(
    project: Path, digits_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = project / "model" / "ten.c"
    source.write_text(source.read_text() + "\n")
    (project / "runtime" / "fwr.h").unlink()
    assert main(["reproduce", str(project), str(digits_path)]) == 1
    said = capsys.readouterr().err
    assert "1 differ (model/ten.c) and 1 are missing (runtime/fwr.h)" in said


@pytest.mark.deep
def test_bundle_is_reproduced(tmp_path: Path, digits_path: Path, project: Path) -> None:
    other = tmp_path / "other.tflite"
    other.write_bytes(digits_path.read_bytes())
    out = tmp_path / "both"
    words = ["compile", str(digits_path), str(other), "--board", "host", "-o", str(out)]
    assert main(words) == 0
    assert reproduce(out, [digits_path, other]).exact
    with pytest.raises(UsageError, match="compiled from 2 models, but 1 were given"):
        reproduce(out, [digits_path])


def test_other_model_version_or_log_is_refused(
    project: Path, digits_path: Path, tmp_path: Path
) -> None:
    keyword = digits_path.parents[1] / "02_keyword" / "keyword.tflite"
    with pytest.raises(UsageError, match="not the file that ten was compiled from"):
        reproduce(project, [keyword])
    facts = json.loads((project / MARKER).read_text())
    for changes, error, said in (
        ({"tool_version": "9.9"}, UsageError, "written by version 9.9"),
        (
            {"options": {"tuning": "abc"}},
            UsageError,
            "compiled with other measurements",
        ),
        ({"options": {"spell": 1}}, ModelError, "the option 'spell'"),
        ({"options": {"pools": [7]}}, ModelError, "cannot be read"),
        ({"options": 3}, ModelError, "has the options 3, which is not an object"),
    ):
        (project / MARKER).write_text(json.dumps({**facts, **changes}))
        with pytest.raises(error, match=said):
            reproduce(project, [digits_path])
    (project / MARKER).write_text("[")
    with pytest.raises(ModelError, match=r"metadata\.json cannot be read"):
        reproduce(project, [digits_path])
    with pytest.raises(UsageError, match="not a project folder"):
        reproduce(tmp_path, [digits_path])
