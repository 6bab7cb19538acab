"""Makes the archives in `archives/` and the outputs of PyTorch for them.

    python tests/pytorch/make_archives.py

The archives are those of torch.export.save, but compressed and without traces of sources and sample
inputs, and their weights have few digits. Needs torch and torchao.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from networks import NETWORKS, make_network, quantized
from operator_cases import operator_cases
from torch import nn

ARCHIVES = Path(__file__).parent / "archives"
SAMPLES = 3
STEPS_OF_WEIGHTS = 16
VALUES_RECORDED = 32
DECOMPOSED = ("cached_decoder",)
QUANTIZED = ("ds_cnn", "mobilenet_v2", "resnet8")
"""Networks that are stored in the basic operators of run_decompositions, too."""


class AllOperators(nn.Module):
    """Every case of operator_cases.py, each with its own inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.cases = operator_cases()
        self.parts = nn.ModuleList(module for module, _ in self.cases.values())

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        results: list[torch.Tensor] = []
        rest = iter(inputs)
        for part, (_, shapes) in zip(self.parts, self.cases.values(), strict=True):
            value = part(*(next(rest) for _ in shapes))
            results += value if isinstance(value, tuple) else [value]
        return results


def exported(name: str) -> torch.export.ExportedProgram:
    """Return the program of a network, "operators" or these with "_int8" or "_core"."""
    stem = name.removesuffix("_core")
    if stem == "operators":
        model: nn.Module = AllOperators().eval()
        shapes = [shape for _, shapes in operator_cases().values() for shape in shapes]
        inputs = tuple(torch.ones(shape) for shape in shapes)
    elif stem.endswith("_int8"):
        model, inputs = quantized(stem.removesuffix("_int8"))
        return torch.export.export(model, inputs)
    else:
        model, inputs = make_network(stem)
    with torch.no_grad():
        for weights in (*model.parameters(), *model.buffers()):
            if weights.is_floating_point():
                weights.copy_(torch.round(weights * STEPS_OF_WEIGHTS) / STEPS_OF_WEIGHTS)
    program = torch.export.export(model, inputs)
    return program.run_decompositions() if name.endswith("_core") else program


def saved(program: torch.export.ExportedProgram) -> bytes:
    stream = io.BytesIO()
    torch.export.save(program, stream)
    return stream.getvalue()


def slim(data: bytes) -> bytes:
    """Return the archive compressed, without traces of sources and sample inputs."""
    source, stream = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
        for info in source.infolist():
            content = source.read(info)
            if "sample_inputs" in info.filename:
                continue
            if info.filename.endswith("model.json"):
                content = _without_traces(json.loads(content))
            member = zipfile.ZipInfo(info.filename)
            member.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(member, content)
    return stream.getvalue()


def _without_traces(root: Any) -> bytes:
    for node in root["graph_module"]["graph"]["nodes"]:
        node["metadata"] = {}
    root["graph_module"]["module_call_graph"] = []
    root["guards_code"] = []
    return json.dumps(root, separators=(",", ":")).encode()


def sample_inputs(name: str, types: list[tuple[tuple[int, ...], str]]) -> list[list[Any]]:
    """Return the inputs of each sample; integers count up from the sample's index."""
    rng = np.random.Generator(np.random.PCG64(len(name)))
    return [
        [
            rng.standard_normal(shape).astype(np.float32)
            if dtype == "float32"
            else np.full(shape, index, dtype)
            for shape, dtype in types
        ]
        for index in range(1 if name.startswith("operators") else SAMPLES)
    ]


def some_values(array: Any) -> Any:
    """Return evenly spaced values of a tensor, which are recorded for it."""
    return np.ravel(array)[:: max(1, np.size(array) // VALUES_RECORDED)]


def names() -> list[str]:
    return [
        *NETWORKS,
        *(f"{name}_core" for name in DECOMPOSED),
        *(f"{name}_int8" for name in QUANTIZED),
        "operators",
    ]


def main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "toolchain"))
    from firmwright.frontends.pytorch.program import read_program
    from firmwright.oracle.pytorch_program import PyTorchProgram

    ARCHIVES.mkdir(exist_ok=True)
    recorded: dict[str, Any] = {}
    for name in names():
        data = saved(exported(name))
        (ARCHIVES / f"{name}.pt2").write_bytes(slim(data))
        program, runtime = read_program(data, name), PyTorchProgram(data, layers=False)
        types = [(program.types[n].shape, program.types[n].dtype) for n in program.inputs]
        for index, inputs in enumerate(sample_inputs(name, types)):
            for position, value in enumerate(runtime.run(inputs)):
                recorded[f"{name}/{index}/{position}"] = some_values(value)
    np.savez_compressed(ARCHIVES / "recorded.npz", **recorded)
    print(sum(path.stat().st_size for path in ARCHIVES.iterdir()), "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
