"""Run command streams on the model of the Ethos-U, as a program with sanitizers.

`Stream` assembles commands by name; a `Job` is a driver payload with its memory
regions.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[np.generic]

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MODEL = ROOT / "toolchain" / "firmwright" / "extensions" / "ethos_u" / "c"
WARNINGS = (
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wsign-conversion",
    "-Wshadow",
    "-Werror",
)
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
PAYLOAD_BIT = 0x4000
_COMMAND = re.compile(r"X\((NPU_\w+), (0x\w+)\)")
_MACS_LOG2 = {32: 5, 64: 6, 128: 7, 256: 8, 512: 9}


@dataclass(frozen=True, slots=True)
class Job:
    payload: bytes
    regions: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class JobResult:
    status: int
    error: str
    regions: tuple[bytes, ...]


def build(folder: Path) -> Path:
    """Compile the model with `run_ethos_u.c`."""
    program = folder / "run_ethos_u"
    compiler = shutil.which("gcc") or shutil.which("clang") or "cc"
    files = [*sorted(MODEL.glob("*.c")), HERE / "run_ethos_u.c"]
    command = [compiler, "-std=c99", "-O1", *WARNINGS, *SANITIZERS, f"-I{MODEL}"]
    subprocess.run([*command, *map(str, files), "-o", str(program)], check=True)
    return program


def run(program: Path, jobs: Sequence[Job]) -> list[JobResult]:
    """Run the jobs one after another in one process."""
    request = b""
    for job in jobs:
        sizes = [len(region) for region in job.regions]
        request += struct.pack(
            f"<{2 + len(sizes)}I", len(job.payload), len(sizes), *sizes
        )
        request += b"".join((job.payload, *job.regions))
    process = subprocess.run([program], input=request, capture_output=True, check=False)
    assert process.returncode == 0, process.stderr.decode()
    answer, at, results = process.stdout, 0, []
    for job in jobs:
        status, length = struct.unpack_from("<iI", answer, at)
        error, at = answer[at + 8 : at + 8 + length].decode(), at + 8 + length
        regions = []
        for region in job.regions:
            regions.append(answer[at : at + len(region)])
            at += len(region)
        results.append(JobResult(status, error, tuple(regions)))
    return results


def command_codes() -> dict[str, int]:
    """The codes of all commands by name, with the bit that announces a payload."""
    text = (MODEL / "npu_commands.h").read_text(encoding="utf-8")
    plain, payload = text.split("#define NPU_PAYLOAD_COMMANDS")
    codes = {name: int(code, 16) for name, code in _COMMAND.findall(plain)}
    return codes | {
        name: int(code, 16) | PAYLOAD_BIT for name, code in _COMMAND.findall(payload)
    }


CODES = command_codes()


class Stream:
    """A command stream under construction."""

    def __init__(self) -> None:
        self.words: list[int] = []

    def add(self, name: str, value: int = 0, shift: int = 0) -> Stream:
        """Append a command: `value` is its parameter or payload, `shift` the other."""
        code = CODES[f"NPU_{name}"]
        if code & PAYLOAD_BIT:
            self.words += [code | shift << 16, value & 0xFFFFFFFF]
        else:
            self.words.append(code | (value & 0xFFFF) << 16)
        return self

    def payload(self, product: int = 0, macs: int = 128) -> bytes:
        return driver_payload(self.words, product, macs)


def driver_payload(words: Sequence[int], product: int = 0, macs: int = 128) -> bytes:
    """Return the header that Vela writes, and the words."""
    length = len(words)
    config = [0x31504F43, 0x01, product << 28 | _MACS_LOG2[macs], 0x10060000]
    start = [5, 5, 5, 2 | (length >> 16) << 8 | (length & 0xFFFF) << 16]
    return struct.pack(f"<{8 + length}I", *config, *start, *words)


def find_commands(payload: bytes) -> list[tuple[str, int, int]]:
    """Name, `payload` position and value of every command after the header."""
    names = {code: name for name, code in CODES.items()}
    found, at = [], 32
    while at < len(payload):
        word = struct.unpack_from("<I", payload, at)[0]
        name = names[word & 0xC3FF]
        if word & PAYLOAD_BIT:
            at += 4
            found.append((name, at, struct.unpack_from("<I", payload, at)[0]))
        else:
            found.append((name, at, word >> 16))
        at += 4
    return found


# ---- Networks ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NpuNetwork:
    """A network that Vela compiled as a whole: payload, weights and arena.

    Weights are region 0, the arena region 1. The arena holds inputs and outputs at
    their offsets, and the initial values of variables.
    """

    payload: bytes
    weights: bytes
    arena: bytes
    fast_bytes: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def job(self, values: Sequence[Array]) -> Job:
        arena = bytearray(self.arena)
        for offset, value in zip(self.inputs, values, strict=True):
            data = value.tobytes()
            arena[offset : offset + len(data)] = data
        fast = (b"\xa5" * self.fast_bytes,) if self.fast_bytes else ()
        return Job(self.payload, (self.weights, bytes(arena), *fast))

    def results(self, result: JobResult, expected: Sequence[Array]) -> list[Array]:
        """Return the outputs, with the shapes and types of the expected ones."""
        return [
            np.frombuffer(result.regions[1], like.dtype, like.size, offset).reshape(
                like.shape
            )
            for offset, like in zip(self.outputs, expected, strict=True)
        ]


def compile_with_vela(model: bytes, accelerator: str, *options: str) -> NpuNetwork:
    """Compile a network; skip without Vela or if operators remain for the core."""
    if find_spec("ethosu") is None:
        pytest.skip("needs Arm's compiler Vela (pip install ethos-u-vela)")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.tflite")
        path.write_bytes(model)
        command = [
            sys.executable,
            "-m",
            "ethosu.vela",
            str(path),
            "--output-dir",
            folder,
        ]
        command += [
            "--accelerator-config",
            accelerator,
            "--output-format",
            "raw",
            *options,
        ]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode:
            pytest.skip(f"Vela: {process.stderr.strip().splitlines()[-1]}")
        with np.load(next(Path(folder).glob("*.npz")), allow_pickle=True) as data:
            return NpuNetwork(
                payload=data["cmd_data"].tobytes(),
                weights=data["weight_data"].tobytes(),
                arena=_initial_arena(data),
                fast_bytes=int(data["scratch_fast_size"]),
                inputs=tuple(map(int, data["input_offset"])),
                outputs=tuple(map(int, data["output_offset"])),
            )


def _initial_arena(data: Mapping[str, Any]) -> bytes:
    """Variables hold their zero points, as after a reset in TensorFlow Lite."""
    arena = np.full(int(data["scratch_size"]), 0xA5, np.uint8)
    variables = (data[f"variable_{name}"] for name in ("shape", "elem_size", "offset"))
    for shape, size, offset, quantization in zip(
        *variables, data["variable_quantization"], strict=True
    ):
        zero_point = int(quantization["zero_point"][0]) if int(size) == 1 else 0
        arena[int(offset) : int(offset + np.prod(shape) * size)] = zero_point & 0xFF
    return arena.tobytes()
