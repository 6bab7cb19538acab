"""`tune` on emulated boards: one log, nothing twice, and `compile` reads it."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firmwright.cli.main import main
from firmwright.flows.measure.profiling import profile
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.pipeline import Compilation
from tests.runtime.flashed_emulator import FLASH_PROGRAM

ROOT = Path(__file__).resolve().parents[3]
BOARD = "mps2-an386"
SEARCH = ("--per-image", 4, "--trials", 4)
"""Some kernels of two small layers in two firmware images."""
MODEL = """
firmwright ir 2
module @two_layers
const @first = i8[8,16] {first}
const @second = i8[4,8] {second}
graph @main(%x: i8[1,16] quant(0.05, -3)) -> (%y) {{
  %a = const @first: i8[8,16] quant(0.01, 0)
  %b = const @second: i8[4,8] quant(0.02, 0)
  %between: i8[1,8] quant(0.1, -128) = fully_connected(%x, %a)
      {{activation="relu", keep_dims=false}}
  %y: i8[1,4] quant(0.1, 5) = fully_connected(%between, %b) {{activation="none", keep_dims=false}}
}}
"""
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "toolchain")}
PATIENCE_S = 300.0

pytestmark = [pytest.mark.qemu, pytest.mark.xdist_group("tune")]


def words(model: Path, log: Path, *more: object) -> list[str]:
    head = [
        sys.executable,
        "-m",
        "firmwright",
        "tune",
        model,
        "--board",
        BOARD,
        "--out",
        log,
    ]
    return [str(word) for word in (*head, *SEARCH, *more)]


def tuned(model: Path, log: Path, *more: object) -> dict[str, Any]:
    """Return the output of `tune --json`."""
    done = subprocess.run(
        [*words(model, log, *more), "--json"],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two small layers."""
    path = tmp_path_factory.mktemp("model") / "two_layers.fwir"
    first, second = ([37 * n % 255 - 127 for n in range(count)] for count in (128, 32))
    path.write_text(MODEL.lstrip().format(first=first, second=second))
    return path


@pytest.fixture(scope="module")
def two_processes(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of two local processes."""
    log = tmp_path_factory.mktemp("tune") / "log.jsonl"
    found = tuned(model, log, "--jobs", 2)
    assert (
        found["measured"]
        == len(measured(log))
        == sum(row["tried"] for row in found["layers"])
    )
    assert {record["status"] for record in measured(log)} == {"ok"}
    return log


@pytest.mark.deep
def test_killed_search_resumes_without_repeated_measurements(
    two_processes: Path, model: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    process = subprocess.Popen(
        words(model, log, "--jobs", 1),
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not (log.exists() and log.read_text()):
        time.sleep(0.01)
    process.kill()
    process.wait()
    # Measurements that arrived before their turn.
    early = log.with_name("log.jsonl.ahead")
    written = log.read_text() + (early.read_text() if early.exists() else "")
    before = len(set(written.splitlines()))
    assert 0 < before < len(measured(two_processes)), "it was not killed half-way"
    found = tuned(model, log, "--jobs", 1)
    assert (found["known"], found["measured"]) == (before, len(measured(log)) - before)
    assert log.read_bytes() == two_processes.read_bytes()
    again = tuned(model, log, "--jobs", 1)
    assert (again["known"], again["measured"]) == (len(measured(log)), 0)


@pytest.mark.deep
@pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None,
    reason="needs the package distributed",
)
def test_two_workers_of_a_cluster_write_the_same_log(
    two_processes: Path, model: Path, tmp_path: Path
) -> None:
    with cluster(tmp_path) as address:
        log = tmp_path / "log.jsonl"
        found = tuned(model, log, "--scheduler", address)
        use_cluster_for_other_verbs(model, address)
    assert found["known"] == 0
    assert log.read_bytes() == two_processes.read_bytes()


def use_cluster_for_other_verbs(model: Path, address: str) -> None:
    """`verify` divides 40 samples between the workers; `bench` measures on them."""
    verified = run_verb(
        "verify", model, "--board", "host", "--samples", 40, "--scheduler", address
    )
    assert (verified["samples"], verified["mismatches"]) == (40, 0)
    benched = run_verb("bench", model, "--scheduler", address)
    here = run_verb("bench", model)
    figures = [
        "model",
        "board",
        "instructions",
        "workspace_bytes",
        "model_flash_bytes",
        "problem",
    ]
    assert [benched["rows"][0][name] for name in figures] == [
        here["rows"][0][name] for name in figures
    ]


def run_verb(*words: object) -> dict[str, Any]:
    """Run a verb with `--json` and return its data."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main([*map(str, words), "--json"]) == 0
    data: dict[str, Any] = json.loads(output.getvalue())
    return data


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The address of a Dask scheduler with two workers, each a process."""
    file, host = folder / "scheduler.json", ("--host", "127.0.0.1", "--no-dashboard")
    processes: list[subprocess.Popen[bytes]] = []

    def start(module: str, *more: object) -> None:
        command = [
            sys.executable,
            "-m",
            f"distributed.cli.{module}",
            "--scheduler-file",
            file,
        ]
        processes.append(
            subprocess.Popen(
                [str(word) for word in (*command, *more)],
                env={**os.environ, **ENVIRONMENT},
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    try:
        start("dask_scheduler", *host, "--port", 0)
        for name in ("one", "two"):
            start("dask_worker", *host, "--no-nanny", "--nthreads", 1, "--name", name)
        waiting = (
            "import json, sys, distributed\n"
            "address = json.load(open(sys.argv[1]))['address']\n"
            "distributed.Client(address).wait_for_workers(2)\n"
            "print(address)"
        )
        deadline = time.monotonic() + PATIENCE_S
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        said = subprocess.run(
            [sys.executable, "-c", waiting, str(file)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        yield said.stdout.strip()
    finally:
        # Killed, not asked: a worker would first contact a scheduler that may be gone.
        for process in processes:
            process.kill()
            process.wait()


def test_compilation_uses_the_best_kernels_of_the_log(
    two_processes: Path, model: Path
) -> None:
    def compiled(**more: Any) -> Compilation:
        return compile_for(load_model(model), BOARD, optimize="speed", **more)

    best: dict[str, tuple[int, str]] = {}
    for record in measured(two_processes):
        settings = sorted(f"{key}={value}" for key, value in record["config"].items())
        found = record["count"], " ".join([record["rule"], *settings])
        best[record["layer"]] = min(found, best.get(record["layer"], found))
    rows = compiled(tuning=two_processes).metadata["operators"]
    taken = [row["schedule"].split() for row in rows]
    assert [" ".join([rule, *sorted(settings)]) for rule, *settings in taken] == [
        schedule for _, schedule in best.values()
    ]
    assert profile(compiled(tuning=two_processes)).total <= profile(compiled()).total


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.mark.deep
def test_board_at_a_port_is_flashed_for_each_firmware(
    two_processes: Path, model: Path, tmp_path: Path
) -> None:
    script, known, port = tmp_path / "flash.py", tmp_path / "pid", free_port()
    script.write_text(FLASH_PROGRAM)
    flash = f"{sys.executable} {script} {{elf}} {port} {known}"
    log = tmp_path / "log.jsonl"
    url = f"socket://127.0.0.1:{port}"
    try:
        found = tuned(model, log, "--port", url, "--flash-command", flash)
    finally:
        os.kill(int(known.read_text()), 9)
    assert found["measured"] == len(measured(two_processes))
    for timed, exact in zip(measured(log), measured(two_processes), strict=True):
        assert (timed["method"], timed["status"]) == ("timer", "ok")
        assert timed["kernel"] == exact["kernel"]
        assert abs(timed["count"] - exact["count"]) <= 0.05 * exact["count"] + 100
