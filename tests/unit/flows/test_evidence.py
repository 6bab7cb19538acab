"""Evidence: what is written is confirmed, and each damaged statement is found."""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.base.errors import ModelError, ToolMissingError, UsageError
from firmwright.boards import load_board
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.evidence import firmware_checks, output_checks
from firmwright.flows.evidence.checking import (
    check_evidence,
    compare_evidence,
    find_model_file,
)
from firmwright.flows.evidence.collection import recompile
from firmwright.flows.evidence.findings import Finding, Verdict
from firmwright.flows.evidence.firmware_checks import (
    FirmwareRebuild,
    check_device,
    check_firmware,
    rebuild_firmware,
)
from firmwright.flows.evidence.output_checks import read_samples
from firmwright.flows.evidence.record import (
    EVIDENCE_BYTES_MAX,
    DeviceIdentity,
    Evidence,
    ModeledCycles,
    OutputValues,
    evidence_to_json,
    hash_tensors,
    parse_evidence,
    read_evidence,
    record_outputs,
    to_array,
)
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.reference_outputs import (
    ReferenceOutputs,
    compute_reference,
)
from tests.runtime.flashed_emulator import FLASH_PROGRAM

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "evidence"
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
FILE = FOLDER / "digits-mps2-an386.json"
OF_THE_SENDER = {"date", "wall_seconds"}
NOT_COMPARED = ("model.file", "tools.", "date", "wall_seconds")
"""Values that no computation gives, or that decide how others are checked."""


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return read_evidence(FILE)


def verdicts(findings: tuple[Finding, ...]) -> dict[str, Verdict]:
    return {finding.statement: finding.verdict for finding in findings}


# ---- files ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
        pytest.param("qemu-riscv32-virt", marks=pytest.mark.qemu("riscv32")),
    ],
)
def test_the_evidence_of_emulators_is_confirmed(
    board: str, request: pytest.FixtureRequest, fw: Callable
) -> None:
    """--update-golden writes the files anew."""
    file = FOLDER / f"digits-{board}.json"
    if request.config.getoption("--update-golden"):
        written = fw("verify", DIGITS, "--board", board, "--evidence", file)
        assert written.status == 0, written.err
    said = fw("evidence", "check", file, DIGITS, "--json")
    findings = said.json["findings"]
    assert [row for row in findings if row["verdict"] == "differs"] == []
    assert said.status == 0
    unchecked = {row["statement"] for row in findings if row["reason"]}
    recorded = read_evidence(file)
    assert recorded.board == board
    if not any("It was made with" in row["reason"] for row in findings):
        assert unchecked <= OF_THE_SENDER | {"reference.name"}
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"`{file.name}`" in listed


def test_every_file_is_in_the_table_and_is_data_of_nobody() -> None:
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    files = sorted(FOLDER.glob("*.json"))
    assert re.findall(r"^\| `(.*\.json)`", listed, re.M) == [f.name for f in files]
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert str(Path.home()) not in text
        assert "/dev/" not in text


# ---- damage --------------------------------------------------------------------------


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, list[str | int]]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        name = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}".lstrip(".")
        if isinstance(item, dict | list):
            for more, keys in leaves(item, name):
                yield more, [key, *keys]
        else:
            yield name, [key]


def other(value: object, name: str) -> object:
    """Return a value of the same kind that a reader accepts."""
    choices = {
        "image.variant": "profile",
        "image.compiler": "clang",
        "device.transport": "port",
        "inputs.origin": "file",
        "cost.unit": "ns",
        "outputs[0].dtype": "uint8",
    }
    if name in choices:
        return choices[name]
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value + 0.5
    assert isinstance(value, str)
    if re.fullmatch(r"(0x)?[0-9a-f]{8,}", value):
        return value[:-1] + ("0" if value[-1] != "0" else "1")
    return value.replace("2", "3") if name == "date" else f"{value}x"


@pytest.fixture(scope="module")
def rebuilt(evidence: Evidence) -> tuple[Any, FirmwareRebuild]:
    compiled = recompile(load_model(DIGITS), evidence.board, evidence.options, ())
    batch = read_samples(evidence, compiled, "")
    return compiled, rebuild_firmware(evidence, compiled, batch)


@pytest.mark.qemu
def test_each_damaged_statement_is_found(
    evidence: Evidence,
    rebuilt: tuple[Any, FirmwareRebuild],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled, here = rebuilt
    references: dict[str, ReferenceOutputs] = {}

    def reference_of(compiled: Any, samples: Any) -> ReferenceOutputs:
        key = hash_tensors(samples, list(samples[0]))
        if key not in references:
            references[key] = compute_reference(compiled, samples)
        return references[key]

    monkeypatch.setattr(output_checks, "compute_reference", reference_of)
    if here.image is None:
        pytest.skip(here.reason)
    facts = json.loads(json.dumps(evidence_to_json(evidence)))
    names = []
    for name, keys in leaves(facts):
        if name in ("schema", "board") or name.startswith(NOT_COMPARED):
            continue
        if name == "model.sha256":  # compared before everything else
            continue
        damaged = copy.deepcopy(facts)
        holder: Any = damaged
        for key in keys[:-1]:
            holder = holder[key]
        holder[keys[-1]] = other(holder[keys[-1]], name)
        record = parse_evidence(damaged, "damaged")
        batch = read_samples(record, compiled, "")
        # Other inputs were not run again.
        made = replace(here, outputs=()) if name.startswith("inputs") else here
        findings = compare_evidence(record, compiled, batch, made)
        found = verdicts(findings)
        expected = Verdict.DIFFERS
        if name in ("reference.name", "inputs.origin"):
            expected = Verdict.UNCHECKED
        statement = name.partition("[")[0].partition(".values")[0].split(".")[0]
        related = {v for s, v in found.items() if s.startswith(statement)}
        assert expected in related, name
        names.append(name)
    assert len(names) > 100


def test_damage_of_what_decides_the_firmware_is_found(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code differs, so that no image needs to be built."""

    def no_compiler(*_: object) -> None:
        raise ToolMissingError("there is no compiler.")

    monkeypatch.setattr(firmware_checks, "describe_image", no_compiler)
    model = load_model(DIGITS)
    for record, statement in (
        (replace(evidence, board="mps2-an385"), "image.model_id"),
        (replace(evidence, options={"optimize": "size"}), "image.model_id"),
        (replace(evidence, options={"optimize": "fast"}), "options"),
        (replace(evidence, options={"optimise": "size"}), "options"),
        (
            replace(evidence, model=replace(evidence.model, sha256="0" * 64)),
            "model.sha256",
        ),
    ):
        found = verdicts(check_evidence(record, model))
        assert found[statement] is Verdict.DIFFERS
    unknown = check_evidence(replace(evidence, board="my-board"), model)
    assert verdicts(unknown)["all others"] is Verdict.UNCHECKED


def test_evidence_of_other_tools_is_checked_as_far_as_possible(
    evidence: Evidence,
) -> None:
    for tools in (
        replace(evidence.tools, firmwright="99.0"),
        replace(evidence.tools, compiler="arm-none-eabi-gcc 99.1.0"),
        replace(evidence.tools, c_library="newlib 99"),
    ):
        record = replace(evidence, tools=tools)
        found = check_evidence(record, load_model(DIGITS))
        assert verdicts(found)["image"] is Verdict.UNCHECKED
        (reason,) = [row.reason for row in found if row.statement == "image"]
        assert "99" in reason
        (output,) = evidence.outputs
        assert verdicts(found)[f"outputs[{output.name}].sha256"] is Verdict.CONFIRMED


def test_what_is_not_confirmed_is_named_and_fails_with_strict(
    evidence: Evidence, tmp_path: Path, fw: Callable
) -> None:
    """A forged cost passes only in a file of tools that are not installed."""
    facts = json.loads(json.dumps(evidence_to_json(evidence)))
    facts["tools"]["firmwright"] = "99.0"
    facts["cost"]["total"] = 5
    file = tmp_path / "forged.json"
    file.write_text(json.dumps(facts))
    said = fw("evidence", "check", file, DIGITS)
    assert said.status == 0
    assert said.out.splitlines()[-1] == "NOT CONFIRMED: image, modeled, cost, device"
    assert "Only the sender has the device" not in said.out
    strict = fw("evidence", "check", file, DIGITS, "--strict", "--json")
    assert strict.status == 1
    assert strict.json["ok"] is False
    assert strict.json["not_confirmed"] == ["image", "modeled", "cost", "device"]


# ---- chips and floats ----------------------------------------------------------------


def test_cycles_of_a_chip_are_judged_by_the_modeled_range(evidence: Evidence) -> None:
    cost = replace(evidence.cost, unit="cycles", total=1000, least=990)
    device = replace(evidence.device, transport="port")
    modeled = ModeledCycles(cycles=1000, least=900, most=1100)
    record = replace(evidence, cost=cost, device=device, modeled=modeled)
    compiled = recompile(load_model(DIGITS), evidence.board, evidence.options, ())

    def verdict(least: int, most: int) -> Verdict:
        here = FirmwareRebuild(
            image=record.image, modeled=replace(modeled, least=least, most=most)
        )
        found = tuple(check_firmware(record, compiled, here))
        return verdicts(found).get("cost.total") or verdicts(found)["cost"]

    assert verdict(900, 1100) is Verdict.CONFIRMED
    assert verdict(1001, 1100) is Verdict.DIFFERS
    assert verdict(0, 0) is Verdict.UNCHECKED


@pytest.mark.parametrize(
    ("cpuid", "verdict"),
    [("0x410fc241", Verdict.CONFIRMED), ("0x411fc271", Verdict.DIFFERS)],
)
def test_the_cpuid_of_a_chip_is_that_of_the_boards_core(
    cpuid: str, verdict: Verdict, evidence: Evidence
) -> None:
    board = load_board("nucleo-l4r5zi")
    device = DeviceIdentity("port", board.name, "", {"cpuid": cpuid})
    record = replace(evidence, device=device)
    found = verdicts(tuple(check_device(record, board, FirmwareRebuild())))
    assert found["device.registers"] is verdict
    assert found["device"] is Verdict.UNCHECKED


def test_values_of_floats_are_recorded_exactly() -> None:
    values = np.array([0.1, -1e-30, np.nan, np.inf, 3e38], np.float32)
    (row,) = record_outputs([{"y": values}])
    text = json.dumps(row.values, allow_nan=False)
    again = to_array(replace(row, values=tuple(json.loads(text))))
    assert again.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("dtype", "values"), [("int8", (300,)), ("int8", (1.5,)), ("uint8", ("nan",))]
)
def test_values_of_another_type_are_refused(dtype: str, values: Any) -> None:
    with pytest.raises(ValueError, match=r"^has "):
        to_array(OutputValues("y", dtype, (1,), "0" * 64, values))


@pytest.mark.deep
@pytest.mark.host_c
def test_floats_on_this_computer_are_within_the_tolerance(
    fw: Callable, tmp_path: Path
) -> None:
    from tests.onnx.onnx_models import Net

    net = Net(3)
    x = net.input("x", (1, 2, 6, 6))
    model = tmp_path / "net.onnx"
    model.write_bytes(net.model(net.conv(x, 2, 3, (3, 3), pads=[1, 1, 1, 1])))
    arrays = tmp_path / "in.npz"
    np.savez(arrays, x=np.linspace(-1, 1, 144, dtype=np.float32).reshape(2, 1, 2, 6, 6))
    file = tmp_path / "evidence.json"
    written = fw("verify", model, "--input", arrays, "--evidence", file)
    assert written.status == 0, written.err
    said = fw("evidence", "check", file, "--json")
    found = {row["statement"]: row for row in said.json["findings"]}
    assert "give it with --input" in found["inputs"]["reason"]
    said = fw("evidence", "check", file, "--input", arrays, "--json")
    found = {row["statement"]: row["verdict"] for row in said.json["findings"]}
    assert found["inputs.sha256"] == "confirmed"
    assert "differs" not in found.values()
    facts = json.loads(file.read_text())
    facts["outputs"][0]["values"][5] += 0.01
    file.write_text(json.dumps(facts))
    said = fw("evidence", "check", file, "--input", arrays, "--json")
    assert said.status == 1
    assert said.json["error"]["code"] == "mismatch"


# ---- reading -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "has the schema 2; it must be 1"),
        ({"date": "yesterday"}, "has the date 'yesterday', which is not a time"),
        ({"more": 1}, "has the unknown key 'more'"),
        ({"model": 1}, "has the model 1, which is not an object"),
        ({"outputs": {}}, "has the outputs {}, which is not a list"),
        ({"wall_seconds": float("nan")}, "has the wall_seconds nan"),
        ({"board": "../x"}, "has the board '../x', which is not a name"),
    ],
)
def test_a_wrong_value_is_named_with_its_kind(
    change: dict[str, object], message: str, evidence: Evidence, tmp_path: Path
) -> None:
    file = tmp_path / "evidence.json"
    file.write_text(json.dumps({**evidence_to_json(evidence), **change}))
    with pytest.raises(ModelError, match=re.escape(message)):
        read_evidence(file)


@pytest.mark.parametrize(
    "name", ["../digits.tflite", "/etc/passwd", "..", "a\\b", "a\nb", ""]
)
def test_the_models_file_is_a_name_without_folders(
    name: str, evidence: Evidence
) -> None:
    facts = json.loads(json.dumps(evidence_to_json(evidence)))
    facts["model"]["file"] = name
    with pytest.raises(ModelError, match=r"the model\.file"):
        parse_evidence(facts, "evidence.json")


def test_broken_and_large_files_are_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "evidence.json"
    for data in (b"", b"[1]", b"{", b"\xff", b"[" * 100_000, b'"' * EVIDENCE_BYTES_MAX):
        file.write_bytes(data + b" ")
        with pytest.raises(ModelError, match="Try: ask the sender"):
            read_evidence(file)


def test_the_model_is_found_by_its_hash(evidence: Evidence, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no model in this folder has the hash"):
        find_model_file(evidence, tmp_path)
    (tmp_path / "digits.tflite").write_bytes(b"another model")
    (tmp_path / "renamed.tflite").write_bytes(DIGITS.read_bytes())
    assert find_model_file(evidence, tmp_path).name == "renamed.tflite"


# ---- writing -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["--check-plan"], ["--in-process"], ["--variant", "profile"]]
)
def test_options_that_evidence_does_not_record_are_refused(
    words: list[str], fw: Callable, tmp_path: Path
) -> None:
    said = fw("verify", DIGITS, "--evidence", tmp_path / "e.json", *words)
    assert said.status == 2
    assert f"--evidence excludes {words[0]}" in said.err


def test_evidence_that_nobody_could_check_is_not_written(
    fw: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "renaming.py").write_text(
        "from dataclasses import replace\n"
        "def rename(module):\n    return replace(module, name='other')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "evidence.json"
    said = fw("verify", DIGITS, "--pass", "renaming:rename@import", "--evidence", file)
    assert said.status == 2
    assert "omit --tuning, --pass" in said.err
    assert not file.exists()


@pytest.mark.deep
@pytest.mark.qemu
def test_evidence_of_a_board_at_a_port_is_of_its_profile_image(
    fw: Callable, tmp_path: Path
) -> None:
    compiled = compile_for(load_model(DIGITS), "mps2-an386")
    image = build_image(compiled, "profile")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pid = tmp_path / "pid"
    words = [sys.executable, "-c", FLASH_PROGRAM, str(image.elf), str(port), str(pid)]
    subprocess.run(words, check=True)
    try:
        file = tmp_path / "evidence.json"
        url = f"socket://127.0.0.1:{port}"
        words = ["--board", "mps2-an386", "--port", url, "--evidence", str(file)]
        said = fw("verify", DIGITS, "--samples", 3, *words)
        assert said.status == 0, said.err
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)
    written = read_evidence(file)
    assert written.device.transport == "port"
    assert written.image.variant == "profile"
    assert written.device.registers == {"cpuid": "0x410fc240"}
    assert str(port) not in file.read_text()
    found = verdicts(check_evidence(written, load_model(DIGITS)))
    assert found["image.sha256"] is Verdict.CONFIRMED
    assert found["device.registers"] is Verdict.CONFIRMED
    assert found["cost"] is Verdict.UNCHECKED
    assert Verdict.DIFFERS not in found.values()
