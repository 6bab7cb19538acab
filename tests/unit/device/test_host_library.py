"""The model's C in this process: its interface, over every way to link and bind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import firmwright
from firmwright.base.errors import DeviceError, UsageError
from firmwright.device.host_library import LibraryModel, LibrarySession, LibraryTensor
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.reference_outputs import run_numpy_reference
from firmwright.flows.samples.sample_batches import generate_samples


@pytest.mark.sampled(3)
@pytest.mark.host_c
@pytest.mark.parametrize(
    "options",
    [{}, {"io_buffers": "caller"}, {"link_params": False}, {"preserve_input": True}],
)
def test_the_library_computes_what_the_reference_computes(
    options: dict[str, object], digits_path: Path
):
    compiled = compile_for(load_model(digits_path), **options)
    samples = generate_samples(compiled.module.io.inputs, 5).samples
    with open_session(compiled, in_process=True) as session:
        outputs = session.run_all(samples)
    for ours, theirs in zip(
        outputs, run_numpy_reference(compiled.imported, samples).outputs, strict=True
    ):
        assert np.array_equal(ours["digit"], theirs["digit"])


@pytest.mark.host_c
def test_a_session_refuses_inputs_that_are_not_the_models(digits_path: Path):
    compiled = compile_for(load_model(digits_path))
    with open_session(compiled, in_process=True) as session:
        with pytest.raises(UsageError, match="the keys are picture"):
            session.run({"picture": np.zeros((1, 8, 8, 1), np.int8)})
        with pytest.raises(UsageError, match="counters"):
            _ = session.device


def test_a_board_without_a_library_is_rejected(digits_path: Path):
    compiled = compile_for(load_model(digits_path), "mps2-an386")
    with pytest.raises(UsageError, match="board mps2-an386 cannot run in this process"):
        open_session(compiled, in_process=True)


def test_a_library_that_cannot_be_loaded_is_a_device_error(tmp_path: Path):
    tensor = LibraryTensor("x", "x", "int8", 1)
    model = LibraryModel("m", "m_run", (("sram", 16),), (tensor,), (tensor,))
    with pytest.raises(DeviceError, match="the library cannot be loaded"):
        LibrarySession(tmp_path / "absent.so", model)


ENDLESS_C = """
#include <stdint.h>
int32_t m_run(void *in, void *out, void *pools) { for (volatile int i = 0;; ) { (void)i; } }
"""
RUN_IT = """
import sys
from pathlib import Path
import numpy as np
from firmwright.cli import boards, main
from firmwright.device.host_library import LibraryModel, LibrarySession, LibraryTensor
def run(args):
    x = LibraryTensor("x", "x", "int8", 1)
    model = LibraryModel("m", "m_run", (), (x,), (x,), False, False)
    with LibrarySession(Path(sys.argv[1]), model) as session:
        print("running", flush=True)
        session.run({"x": np.zeros(1, np.int8)})
boards.run = run
sys.exit(main.main(["boards"]))
"""


@pytest.mark.host_c
@pytest.mark.parametrize(
    ("signal_", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_signals_end_a_run_within_one_kernel(
    tmp_path: Path, signal_: signal.Signals, status: int
):
    (tmp_path / "m.c").write_text(ENDLESS_C)
    build = ["gcc", "-shared", "-fPIC", "-o", tmp_path / "m.so", tmp_path / "m.c"]
    subprocess.run(build, check=True)
    process = subprocess.Popen(
        [sys.executable, "-c", RUN_IT, tmp_path / "m.so"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(firmwright.__file__).parents[1])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"running\n"
        process.send_signal(signal_)
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, said) == (status, b"firmwright: interrupted.\n")
