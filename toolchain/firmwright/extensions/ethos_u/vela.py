"""Vela, Arm's compiler for Ethos-U: from TFLite files to command streams.

It runs as a program of this Python environment (the extra `ethos-u`).
"""

import csv
import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from firmwright.base.child_process import python_command, run_program
from firmwright.base.errors import ToolFailedError, ToolMissingError, UsageError

_TIMEOUT_S = 600.0
_CONFIG = "Arm/vela.ini"
_ON_CORE = re.compile(r"^ *CPU: \w+ = (.*) \(outputs ", re.MULTILINE)
_WARNING = re.compile(r"^Warning .*, ofm: '(.*)'\nReason: (.*)$", re.MULTILINE)
_WRONG_OPTION = re.compile(r"CliOptionError: 'Error: (.*)'$", re.MULTILINE)
_NO_REASON = "Vela leaves it to the core"


@dataclass(frozen=True, slots=True)
class VelaOptions:
    """The NPU, and the entries of Vela's configuration file for its memories."""

    accelerator: str
    system_config: str
    memory_mode: str


@dataclass(frozen=True, slots=True)
class NpuProgram:
    """A command stream with its packed weights and memory.

    `inputs` and `outputs` are the offsets of the tensors in the arena. `cycles` is
    Vela's estimate.
    """

    commands: bytes
    weights: bytes
    arena_bytes: int
    fast_bytes: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    cycles: int = 0


@dataclass(frozen=True, slots=True)
class VelaSurvey:
    """Why operators stay on the core, and the NPU's estimated cycles, by output."""

    reasons: Mapping[str, str]
    cycles: Mapping[str, int]


@lru_cache(maxsize=32)
def compile_region(model: bytes, options: VelaOptions) -> NpuProgram:
    """Compile a TFLite file that Vela supports completely."""
    with tempfile.TemporaryDirectory() as folder:
        run_vela(model, options, Path(folder), "raw")
        with np.load(next(Path(folder).glob("*_vela.npz"))) as data:
            return NpuProgram(
                commands=data["cmd_data"].tobytes(),
                weights=data["weight_data"].tobytes(),
                arena_bytes=int(data["scratch_size"]),
                fast_bytes=int(data["scratch_fast_size"]),
                inputs=tuple(map(int, data["input_offset"])),
                outputs=tuple(map(int, data["output_offset"])),
                cycles=_estimated_cycles(Path(folder)),
            )


@lru_cache(maxsize=8)
def survey_operators(
    model: bytes, options: VelaOptions, outputs: tuple[str, ...]
) -> VelaSurvey:
    """Compile a TFLite file with these outputs of operators, for the result of each."""
    with tempfile.TemporaryDirectory() as folder:
        text = run_vela(model, options, Path(folder), "tflite")
        cycles = _cycles_by_output(Path(folder), frozenset(outputs))
    reasons = dict(_WARNING.findall(text))
    names = _ON_CORE.findall(text)
    on_core = {name: reasons.get(name, _NO_REASON) for name in names}
    return VelaSurvey(on_core, cycles)


def _cycles_by_output(folder: Path, outputs: frozenset[str]) -> Mapping[str, int]:
    """Return the estimates by output; other steps count for the operator after them."""
    cycles, earlier = Counter[str](), 0
    for file in folder.glob("*_per-layer.csv"):
        for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
            if row["Target"] == "NPU":
                earlier += int(float(row["Op Cycles"]))
            name = row["Name"]
            if name not in outputs:
                # Perhaps a part of an operator.
                name = name.rpartition("/")[0]
            if name in outputs:
                cycles[name] += earlier
                earlier = 0
    return cycles


def run_vela(model: bytes, options: VelaOptions, folder: Path, output: str) -> str:
    if find_spec("ethosu") is None or find_spec("ethosu.vela") is None:
        compiler = "Arm's compiler Vela"
        what = f"the target for Ethos-U needs {compiler}, which is not installed."
        raise ToolMissingError(what, hint="pip install 'firmwright[ethos-u]'.")
    path = folder / "model.tflite"
    path.write_bytes(model)
    command = [*python_command("ethosu.vela", path)]
    npu = options.accelerator
    command += ["--accelerator-config", npu, "--config", _CONFIG]
    command += ["--system-config", options.system_config]
    command += ["--memory-mode", options.memory_mode]
    command += ["--output-format", output, "--output-dir", folder]
    command += ["--show-cpu-operations"]
    # Estimates by operator.
    command += ["--verbose-performance"]
    status, text = run_program(command, "Vela", timeout_s=_TIMEOUT_S, where=npu)
    if wrong_option := _WRONG_OPTION.search(text):
        what = f"Vela: {wrong_option[1]}."
        listing = f"python -m ethosu.vela --list-configs {_CONFIG}"
        hint = f"an entry of Vela's configuration: {listing}."
        raise UsageError(what, where=npu, hint=hint)
    if status:
        what = f"Vela could not compile a region for {npu}."
        raise ToolFailedError(what, command=command, exit_status=status, output=text)
    return text


def _estimated_cycles(folder: Path) -> int:
    with next(folder.glob("*_summary_*.csv")).open(encoding="utf-8") as file:
        return int(float(next(csv.DictReader(file))["cycles_total"]))
