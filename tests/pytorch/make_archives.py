"""Makes the archives in `archives/` and the outputs of PyTorch for them.

    PYTHONPATH=toolchain python -m tests.pytorch.make_archives [NAME ...]

The archives are those of torch.export.save, but compressed and without traces of
sources and sample inputs, and their weights have few digits. Needs torch and torchao;
`cortexm` also executorch and tosa-tools. Near ties of float sums, the outputs of
quantized programs follow Firmwright's integers.
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
from torch import nn

from tests.pytorch.networks import NETWORKS, make_network
from tests.pytorch.operator_cases import operator_cases
from tests.pytorch.quantized_cases import QuantizedLayers
from tests.pytorch.quantizers import METHODS, quantized
from tests.pytorch.spectrum_cases import spectrum_cases

ARCHIVES = Path(__file__).parent / "archives"
SAMPLES = 3
STEPS_OF_WEIGHTS = 16
VALUES_RECORDED = 32
DECOMPOSED = ("cached_decoder", "operators_complex", "sound_classifier")
"""Those that are stored in the basic operators of run_decompositions, too."""
CASES = {"operators": operator_cases, "operators_complex": spectrum_cases}
"""Archives whose results are those of all cases of a table."""
QUANTIZED = (
    "ds_cnn_int8",
    "mobilenet_v2_int8",
    "resnet8_int8",
    "ds_cnn_x86",
    "resnet8_cortexm",
    "mobilenet_v1_qat",
    "autoencoder_ao",
    "operators_int8",
)


class AllOperators(nn.Module):
    """Every case of a table, each with its own inputs."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.cases = CASES[name]()
        self.parts = nn.ModuleList(module for module, _ in self.cases.values())

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        results: list[torch.Tensor] = []
        rest = iter(inputs)
        for part, (_, shapes) in zip(self.parts, self.cases.values(), strict=True):
            value = part(*(next(rest) for _ in shapes))
            results += value if isinstance(value, tuple) else [value]
        return results


def exported(name: str) -> torch.export.ExportedProgram:
    """Return the program of a network, a table of cases, or a name with a suffix.

    The suffix is "_core" or a method.
    """
    stem = name.removesuffix("_core")
    if stem in CASES:
        model: nn.Module = AllOperators(stem).eval()
        shapes = [shape for _, shapes in CASES[stem]().values() for shape in shapes]
        inputs = tuple(torch.ones(shape) for shape in shapes)
    elif stem == "operators_int8":
        layers = QuantizedLayers().eval()
        return torch.export.export(layers, layers.inputs())
    elif stem.rpartition("_")[2] in METHODS:
        program = quantized(stem)
        return program.run_decompositions() if name.endswith("_core") else program
    else:
        model, inputs = make_network(stem)
    with torch.no_grad():
        for weights in (*model.parameters(), *model.buffers()):
            if weights.is_floating_point():
                weights.copy_(
                    torch.round(weights * STEPS_OF_WEIGHTS) / STEPS_OF_WEIGHTS
                )
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


def sample_inputs(
    name: str, types: list[tuple[tuple[int, ...], str]]
) -> list[list[Any]]:
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
        *QUANTIZED,
        *CASES,
    ]


def outputs(name: str, data: bytes) -> dict[str, Any]:
    """Return some of PyTorch's output values by NAME/SAMPLE/OUTPUT."""
    from firmwright.flows.model.model import load_model
    from firmwright.flows.samples.reference_outputs import quantized_values
    from firmwright.oracle.reference_runner import run_reference

    module = load_model(ARCHIVES / f"{name}.pt2").module
    types = [(value.type.shape, value.type.dtype.name) for value in module.entry.params]
    names = [value.name for value in module.entry.params]
    samples = [
        dict(zip(names, inputs, strict=True)) for inputs in sample_inputs(name, types)
    ]
    integers = quantized_values(module, samples)
    result = run_reference(data, samples, "pytorch", integers=integers)
    print(name, "values changed near ties, and all:", *result.rounding)
    return {
        f"{name}/{index}/{position}": some_values(value)
        for index, values in enumerate(result.outputs)
        for position, value in enumerate(values.values())
    }


def main() -> int:
    ARCHIVES.mkdir(exist_ok=True)
    chosen = sys.argv[1:] or names()
    with np.load(ARCHIVES / "recorded.npz") as archive:
        recorded = {
            k: v for k, v in archive.items() if k.partition("/")[0] not in chosen
        }
    for name in chosen:
        data = saved(exported(name))
        (ARCHIVES / f"{name}.pt2").write_bytes(slim(data))
        recorded |= outputs(name, data)
    np.savez_compressed(ARCHIVES / "recorded.npz", **recorded)
    print(sum(path.stat().st_size for path in ARCHIVES.iterdir()), "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
