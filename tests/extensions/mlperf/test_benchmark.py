"""The benchmark's firmware in QEMU on a pseudo terminal: its protocol and score."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.device.serial_port import SerialTransport
from firmwright.device.transport import Transport
from firmwright.extensions.mlperf.benchmark import (
    read_dataset,
    run_benchmark,
    serve_on_pty,
    with_benchmark_firmware,
)
from firmwright.extensions.mlperf.firmware import TASKS, MlperfTask
from firmwright.flows.samples.reference_outputs import compute_reference
from firmwright.pipeline import Compilation

pytestmark = [pytest.mark.qemu, pytest.mark.models]

BOARD = "mps2-an386"
SAMPLES = 4
RUNNER = os.environ.get("MLPERF_TINY_PATH", "")
"""A copy of github.com/mlcommons/tiny, for its own runner."""
SLOW_HZ = 10_000_000


def synthetic_set(folder: Path, task: MlperfTask) -> None:
    """Random samples; classes come twice, so that top-1 is neither none nor all."""
    rng = np.random.default_rng(7)
    lines = []
    for index in range(SAMPLES):
        if task.sample == "float32":
            values = rng.normal(-10, 20, task.elements).astype("<f4")
            (folder / f"{index}.bin").write_bytes(values.tobytes())
        else:
            (folder / f"{index}.bin").write_bytes(rng.bytes(task.elements))
        lines.append(f"{index}.bin, {task.results}, {index % 2}")
    (folder / "y_labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def as_input(
    task: MlperfTask, window: bytes, scale: float, zero_point: int
) -> np.ndarray[Any, Any]:
    """Convert a sample as the protocol specifies, in doubles, value by value."""
    if task.sample == "int8":
        return np.frombuffer(window, np.int8)
    if task.sample == "uint8":
        return (np.frombuffer(window, np.uint8).astype(np.int16) - 128).astype(np.int8)
    scaled = (np.frombuffer(window, "<f4") / np.float32(scale)).astype(np.float64)
    rounded = np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)
    return np.clip(rounded + zero_point, -128, 127).astype(np.int8)


def litert_results(
    compiled: Compilation, task: MlperfTask, windows: list[bytes]
) -> np.ndarray[Any, Any]:
    """The same score's rows, of LiteRT's outputs."""
    (source,), (result,) = compiled.module.io.inputs, compiled.module.io.outputs
    asked, told = source.type.quantization, result.type.quantization
    assert asked is not None
    assert told is not None
    inputs = [as_input(task, w, asked.scales[0], asked.zero_points[0]) for w in windows]
    samples = [{source.name: values.reshape(source.type.shape)} for values in inputs]
    outputs = compute_reference(compiled, samples).outputs
    rows = []
    for window, output in zip(windows, outputs, strict=True):
        values = output[result.name].reshape(-1).astype(np.float64)
        real = (values - told.zero_points[0]) * told.scales[0]
        if task.is_error:
            real = np.array([np.mean((real - np.frombuffer(window, "<f4")) ** 2)])
        rows.append(real)
    return np.array(rows)


def ranks_area(values: np.ndarray[Any, Any], positive: np.ndarray[Any, Any]) -> float:
    pairs = [(high, low) for high in values[positive] for low in values[~positive]]
    return float(np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs]))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name",
    [
        "kws",
        "ad",
        *(pytest.param(name, marks=pytest.mark.deep) for name in ("ic", "vww", "ww")),
    ],
)
def test_score_over_a_pseudo_terminal_equals_litert(
    name: str, compiled: Callable[..., Compilation], tmp_path: Path
):
    task = next(task for task in TASKS if task.name == name)
    benchmark = with_benchmark_firmware(compiled(name, board=BOARD))
    synthetic_set(tmp_path, task)
    samples = read_dataset(tmp_path, task)
    with serve_on_pty(benchmark) as terminal:
        found = run_benchmark(
            benchmark, samples, port=terminal.name, iterations=2, warmups=1
        )
    wanted = litert_results(benchmark, task, [sample.windows[0] for sample in samples])
    labels = np.array([sample.label for sample in samples])
    # Single floats against doubles: the last of three digits may differ.
    np.testing.assert_allclose(found.results, wanted, rtol=2e-6, atol=6e-4)
    if task.is_error:
        assert found.top1 is None
        assert found.auc == ranks_area(wanted[:, 0], labels == 1)
    else:
        assert found.top1 == np.mean(np.argmax(wanted, axis=1) == labels)
        assert found.auc == np.mean(
            [ranks_area(wanted[:, c], labels == c) for c in (0, 1)]
        )
    assert found.microseconds > 100
    assert {timing.count for timing in found.timings} == {2}


def said(transport: Transport, command: str = "") -> list[str]:
    """Return the lines up to m-ready after a command, or after start-up."""
    transport.write(f"{command}%".encode() if command else b"")
    text = b""
    while not text.endswith(b"m-ready\r\n"):
        more = transport.read(4096, 20.0)
        assert more, text
        text += more
    lines = text.decode().split("\r\n")
    assert lines.pop() == ""
    return lines


def test_commands_are_answered_by_the_protocols_text(
    compiled: Callable[..., Compilation],
):
    with serve_on_pty(
        with_benchmark_firmware(compiled("kws", board=BOARD))
    ) as terminal:
        line = SerialTransport(terminal.name)
        booted = said(line)
        assert booted[0] == "m-timestamp-mode-performance"
        assert booted[1].startswith("m-lap-us-")
        assert booted[2:] == ["m-init-done", "m-ready"]
        assert said(line, "name") == ["m-name-dut-[Firmwright]", "m-ready"]
        profile = [
            "m-profile-[ULPMark for tinyML Firmware V0.0.1]",
            "m-model-[kws01]",
            "m-ready",
        ]
        assert said(line, "profile") == profile
        assert said(line, " ") == ["m-ready"]
        assert said(line, "dance now") == ["e-[Unknown command: dance]", "m-ready"]
        assert said(line, "x" * 200) == ["e-[Command too long]", "m-ready"]
        assert said(line, "db load 491")[0].startswith(
            "a sample of this model has at most 490"
        )
        assert said(line, f"db load {2**32 + 10}") == said(line, "db load 491")
        assert said(line, "db load 10") == ["m-[Expecting 10 bytes]", "m-ready"]
        assert said(line, "db 012") == [
            "e-[Insufficent number of hex digits]",
            "m-ready",
        ]
        assert said(line, "db 0g") == ["e-[Not hex: 0g]", "m-ready"]
        assert said(line, "db 0001020304050607") == ["m-ready"]
        assert said(line, "db FFfe") == ["m-load-done", "m-ready"]
        shown = ["m-buffer-00-01-02-03-04-05-06-07", "m-buffer-ff-fe", "m-ready"]
        assert said(line, "db print") == shown
        answer = said(line, "infer 2 1")
        shape = [
            "m-warmup-start-1",
            "m-warmup-done",
            "m-infer-start-2",
            "m-lap-us-",
            "m-lap-us-",
            "m-infer-done",
            "m-results-[",
            "m-ready",
        ]
        assert len(answer) == len(shape)
        assert all(a.startswith(b) for a, b in zip(answer, shape, strict=True)), answer
        assert len(answer[6].split(",")) == 12
        assert said(line, "results") == answer[6:]
        for count in ("0", "none", ""):
            answer = said(line, f"infer {count}" if count else "infer 0 3")
            assert answer == ["e-[infer needs at least one iteration]", "m-ready"]
        assert said(line, "start") == ["e-[Unknown command: start]", "m-ready"]
        line.close()


def test_in_energy_mode_no_time_is_printed(compiled: Callable[..., Compilation]):
    with serve_on_pty(
        with_benchmark_firmware(compiled("kws", board=BOARD), energy=True)
    ) as terminal:
        line = SerialTransport(terminal.name)
        assert said(line) == ["m-timestamp-mode-energy", "m-init-done", "m-ready"]
        assert said(line, "timestamp") == ["m-ready"]
        assert said(line, "db load 490") == ["m-[Expecting 490 bytes]", "m-ready"]
        answer = said(line, "infer 2 1")
        assert not [text for text in answer if "lap" in text]
        assert answer[-2].startswith("m-results-[")
        line.close()


def test_the_streaming_wake_word_records_detections(
    compiled: Callable[..., Compilation],
):
    benchmark = with_benchmark_firmware(compiled("ww", board=BOARD), clock_hz=SLOW_HZ)
    quantization = benchmark.module.io.outputs[0].type.quantization
    assert quantization is not None
    with serve_on_pty(benchmark) as terminal:
        line = SerialTransport(terminal.name)
        said(line)
        assert said(line, "profile")[1] == "m-model-[sww01]"
        assert said(line, "results") == ["e-[No results: infer first]", "m-ready"]
        assert said(line, "stop") == ["Already stopped.", "m-ready"]
        assert said(line, "start") == ["Listening to the windows of infer.", "m-ready"]
        assert said(line, "start") == ["e-[Already started]", "m-ready"]
        scores = []
        for value in (0x80, 0x00, 0x7F):
            said(line, "db load 1200")
            for _ in range(40):
                said(line, f"db {30 * f'{value:02x}'}")
            first = (
                said(line, "infer 1 0")[-2]
                .removeprefix("m-results-[")
                .partition(",")[0]
            )
            scores.append(
                round(float(first) / quantization.scales[0])
                + quantization.zero_points[0]
            )
        stopped = said(line, "stop")
        assert stopped[:2] == ["Streaming stopped.", "target activations: "]
        shown = [int(word) for word in stopped[2].strip("[]").split(",")]
        np.testing.assert_allclose(shown, scores, atol=1)
        detections = said(line, "print_detections")
        assert detections[0] == "Detection Timestamps (ms)"
        assert len(detections) - 2 == sum(score > 115 for score in shown)
        assert said(line, "infer 1 0")[-1] == "m-ready"
        assert said(line, "start")[0].startswith("Listening")
        assert said(line, "stop")[2:] == ["[]", "m-ready"]
        line.close()


def test_a_late_emulator_writes_no_warning_into_the_line(
    compiled: Callable[..., Compilation],
):
    """QEMU warns of a late guest when the host lags behind the paced clock."""
    benchmark = with_benchmark_firmware(compiled("kws", board=BOARD), clock_hz=SLOW_HZ)
    with serve_on_pty(benchmark) as terminal:
        line = SerialTransport(terminal.name)
        said(line)
        os.kill(terminal.pid, signal.SIGSTOP)
        time.sleep(2.5)
        os.kill(terminal.pid, signal.SIGCONT)
        assert said(line, "name") == ["m-name-dut-[Firmwright]", "m-ready"]
        line.close()


LAUNCH = """
import runpy, sys, types
from unittest import mock
from serial.tools import list_ports
port, runner, *words = sys.argv[1:]
found = types.SimpleNamespace(device=port, vid=0x0483, pid=0x374B, description="")
for name in ("usb", "usb.core", "matplotlib", "matplotlib.pyplot", "joulescope"):
    sys.modules[name] = mock.MagicMock()
sys.modules["usb"].core.find.return_value = []
sys.path.insert(0, runner)
list_ports.comports = lambda *_: [found]
sys.argv = ["main.py", *words]
runpy.run_path(f"{runner}/main.py", run_name="__main__")
"""


@pytest.mark.skipif(
    not RUNNER, reason="MLPERF_TINY_PATH names no copy of the benchmark"
)
def test_the_runners_performance_mode_is_satisfied(
    compiled: Callable[..., Compilation], tmp_path: Path
):
    task = TASKS[0]
    (tmp_path / "kws01").mkdir()
    synthetic_set(tmp_path / "kws01", task)
    labels = (tmp_path / "kws01" / "y_labels.csv").read_text()
    (tmp_path / "kws01" / "y_labels.csv").write_text(
        labels.replace(", ", ",") + "0.bin,12,0\n"
    )
    runner = Path(RUNNER) / "benchmark" / "runner"
    benchmark = with_benchmark_firmware(compiled("kws", board=BOARD), clock_hz=SLOW_HZ)
    with serve_on_pty(benchmark) as terminal:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                LAUNCH,
                terminal.name,
                runner,
                "--mode=p",
                "-s",
                tmp_path,
                "-d",
                runner / "devices_kws_ic_vww.yaml",
                "-t",
                runner / "tests_performance.yaml",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    (results,) = tmp_path.glob("sessions/*/results.txt")
    text = results.read_text()
    assert text.count("Runtime requirements have been met.") == 5, done.stdout
    assert "Median throughput is" in text
    assert "ERROR" not in text
