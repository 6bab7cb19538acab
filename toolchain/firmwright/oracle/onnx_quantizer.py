"""Makes a float ONNX model one of int8, by ONNX Runtime's own tools in a child process.

In: a complete model's bytes and samples to calibrate with. Out: a `QuantizedModel`: the bytes of
both models, in which results have the same names, and the operators that gave them.
Invariant: nothing of the tools is imported into this process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from firmwright.base.errors import UsageError
from firmwright.oracle.reference_runner import Array, run_worker, write_request

TOOL = "ONNX Runtime's quantisation"
TIMEOUT_S = 3600.0
Method = Literal["MinMax", "Entropy", "Percentile"]
Activations = Literal["QInt8", "QUInt8"]


@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """How: names as ONNX Runtime has them; `exclude` are nodes that stay in floats."""

    method: Method = "MinMax"
    activations: Activations = "QInt8"
    per_channel: bool = True
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedNode:
    """An operator of the prepared model, by the name of its first result."""

    result: str
    op: str
    name: str


@dataclass(frozen=True, slots=True)
class QuantizedModel:
    """See the module docstring; `prepared` is the float model with its constants folded."""

    model: bytes
    prepared: bytes
    nodes: tuple[PreparedNode, ...]
    version: str


def quantize_model(
    model: bytes, samples: Sequence[Mapping[str, Array]], how: QuantizeOptions, where: str
) -> QuantizedModel:
    """Quantise; raises ToolMissingError, ToolFailedError, UsageError with `where`, the file."""
    with tempfile.TemporaryDirectory(prefix="firmwright-quantize-") as name:
        folder = Path(name)
        write_request(folder, model, samples, asdict(how))
        found = run_worker(folder, "onnx_quantizer_worker", TOOL, TIMEOUT_S)
        match found.get("error"):
            case "quantised":
                raise UsageError(
                    f"the model is quantised already: it has {found['what']}.",
                    where=where,
                    hint="the float model, or compile this one as it is.",
                )
            case "exclude":
                raise UsageError(
                    f"the model has no operator {found['what']} to leave as it is.",
                    where=where,
                    hint="a name of a node or of its result.",
                )
        return QuantizedModel(
            (folder / "quantized.onnx").read_bytes(),
            (folder / "prepared.onnx").read_bytes(),
            tuple(PreparedNode(**item) for item in found["nodes"]),
            found["version"],
        )
