"""Quantization of float ONNX models to int8 by ONNX Runtime's tools, in a worker."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from firmwright.base.dtypes import Array
from firmwright.base.errors import UsageError
from firmwright.base.json_input import JsonObject, as_objects, as_text, as_texts
from firmwright.oracle.reference_runner import run_worker, write_request

TOOL = "ONNX Runtime's quantization"
TIMEOUT_S = 3600.0
Method = Literal["MinMax", "Entropy", "Percentile"]
Activations = Literal["QInt8", "QUInt8"]


@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """Options in ONNX Runtime's terms; `exclude` names nodes that remain float."""

    method: Method = "MinMax"
    activations: Activations = "QInt8"
    per_channel: bool = True
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedNode:
    """A node of the prepared model, with its first output `result`.

    `reason` is why it is not quantized.
    """

    result: str
    op: str
    name: str
    inputs: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class QuantizedModel:
    """The quantized model, and `prepared`, the float model with folded constants.

    Tensors have the same names in both; `nodes` are those of the prepared model.
    """

    model: bytes
    prepared: bytes
    nodes: tuple[PreparedNode, ...]
    version: str


def quantize_model(
    model: bytes,
    samples: Sequence[Mapping[str, Array]],
    how: QuantizeOptions,
    where: str,
) -> QuantizedModel:
    """Quantize a complete model with calibration samples; errors show `where`.

    `where` is the name of the model's file.
    """
    with tempfile.TemporaryDirectory(prefix="firmwright-quantize-") as name:
        folder = Path(name)
        write_request(folder, model, samples, asdict(how))
        answer = run_worker(folder, "onnx_quantizer_worker", TOOL, TIMEOUT_S)
        match answer.get("error"):
            case "quantized":
                what = f"the model is already quantized: it has {answer['what']}."
                hint = "pass the float model, or compile this one directly."
                raise UsageError(what, where=where, hint=hint)
            case "nothing":
                what = (
                    "there is nothing to quantize: no operator has an integer form "
                    f"({answer['what']})."
                )
                hint = (
                    "compile the model as it is. Trees compare, so int8 saves them "
                    "nothing; other models of ai.onnx.ml compute with floats."
                )
                raise UsageError(what, where=where, hint=hint)
            case "exclude":
                what = f"the model has no operator {answer['what']} to exclude."
                hint = "pass the name of a node or of its result."
                raise UsageError(what, where=where, hint=hint)
        return QuantizedModel(
            (folder / "quantized.onnx").read_bytes(),
            (folder / "prepared.onnx").read_bytes(),
            tuple(map(_prepared_node, as_objects(answer["nodes"]))),
            as_text(answer["version"]),
        )


def _prepared_node(row: JsonObject) -> PreparedNode:
    return PreparedNode(
        result=as_text(row["result"]),
        op=as_text(row["op"]),
        name=as_text(row["name"]),
        inputs=tuple(as_texts(row["inputs"])),
        reason=as_text(row["reason"]),
    )
