"""Execution of models by a reference runtime in a worker, which may crash or hang."""

import json
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from firmwright.base.array_files import file_dtype, write_npz
from firmwright.base.child_process import python_command, run_program
from firmwright.base.dtypes import Array, find_dtype
from firmwright.base.errors import (
    InternalError,
    ReferenceRefusalError,
    ToolFailedError,
    ToolMissingError,
    UsageError,
)
from firmwright.base.json_input import (
    Json,
    JsonObject,
    as_integer,
    as_list,
    as_object,
    as_text,
    as_texts,
    parse_json,
)

Numerics = Literal["litert", "tflm"]
RuntimeName = Literal[
    "litert", "tflm", "litert-optimized", "litert-xnnpack", "onnxruntime", "pytorch"
]

RUNTIME_TITLES: Mapping[str, str] = {
    "litert": "LiteRT BUILTIN_REF",
    "tflm": "TFLM (tflite-micro)",
    "litert-optimized": "LiteRT optimized kernels",
    "litert-xnnpack": "LiteRT with XNNPACK",
    "onnxruntime": "ONNX Runtime",
    "pytorch": "PyTorch",
}
"""The first two define numerics profiles, the last two run ONNX and PyTorch.

The others identify the kernels of a user's recorded outputs.
"""
DEFAULT_TIMEOUT_S = 300.0
_WORKER_ENVIRONMENT: Mapping[str, str] = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1",
}
"""PyTorch must unpickle only tensors, whatever its own code asks for."""


@dataclass(frozen=True, slots=True)
class ReferenceResult:
    """The reference outputs: one mapping per sample, in the model's output order.

    `layers` (optional) holds every operator's results per sample, by tensor index in
    the model's first subgraph; `layer_names` maps these indices to names, which may
    repeat. `rounding` counts the values near ties that were changed to given integers,
    and all that were compared with them.
    """

    name: str
    version: str
    outputs: tuple[Mapping[str, Array], ...]
    layers: tuple[Mapping[int, Array], ...] = ()
    layer_names: Mapping[int, str] = field(default_factory=dict)
    rounding: tuple[int, int] = (0, 0)


def run_reference(
    model: bytes,
    inputs: Sequence[Mapping[str, Array]],
    numerics: RuntimeName,
    *,
    layers: bool = False,
    subgraph: int = 0,
    integers: Mapping[str, Array] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> ReferenceResult:
    """Run every sample of `inputs` with the reference runtime `numerics`.

    PyTorch uses `integers` (by name, samples on the leading axis) for floats near a
    rounding tie. Raises ToolMissingError if the runtime's package is missing,
    ReferenceRefusalError if the runtime refuses the model, ToolFailedError if it
    crashes or exceeds `timeout_s`, UsageError if the samples do not match the model's
    inputs.
    """
    if numerics not in RUNTIME_TITLES:
        raise UsageError(
            f"numerics {numerics!r} has no oracle, only {', '.join(RUNTIME_TITLES)} do."
        )
    if not inputs:
        raise UsageError("the reference needs at least one sample.")
    with tempfile.TemporaryDirectory(prefix="firmwright-oracle-") as name:
        folder = Path(name)
        request: dict[str, Json] = {
            "numerics": numerics,
            "layers": layers,
            "subgraph": subgraph,
            "integers": list(integers or {}),
        }
        if integers:
            arrays = {f"i{k}": value for k, value in enumerate(integers.values())}
            write_npz(folder / "integers.npz", arrays)
        write_request(folder, model, inputs, request)
        answer = run_worker(
            folder, "reference_worker", RUNTIME_TITLES[numerics], timeout_s
        )
        if "error" in answer:
            raise InternalError(f"the reference worker answered {answer['error']!r}.")
        with np.load(folder / "outputs.npz") as archive:
            arrays = dict(archive)
    return _reference_result(RUNTIME_TITLES[numerics], answer, arrays, len(inputs))


def _reference_result(
    title: str, answer: JsonObject, arrays: Mapping[str, Array], samples: int
) -> ReferenceResult:
    """Return the worker's answer, with its arrays by tensor name and by layer."""
    layer_names: dict[int, str] = {}
    for index, layer in as_object(answer["layers"]).items():
        layer_names[int(index)] = as_text(layer)
    outputs: list[Mapping[str, Array]] = []
    layer_results: list[Mapping[int, Array]] = []
    for sample in range(samples):
        by_name: dict[str, Array] = {}
        for position, output in enumerate(as_texts(answer["outputs"])):
            by_name[output] = _array_of_sample(arrays, f"o{position}", sample)
        outputs.append(by_name)
        if layer_names:
            by_index: dict[int, Array] = {}
            for number in layer_names:
                by_index[number] = _array_of_sample(arrays, f"t{number}", sample)
            layer_results.append(by_index)
    changed, rounded = map(as_integer, as_list(answer["rounding"]))
    return ReferenceResult(
        title,
        as_text(answer["version"]),
        tuple(outputs),
        tuple(layer_results),
        layer_names,
        (changed, rounded),
    )


def _array_of_sample(arrays: Mapping[str, Array], key: str, sample: int) -> Array:
    """Return the result of one sample, stored alone if the lengths differ."""
    return arrays[key][sample] if key in arrays else arrays[f"{key}.{sample}"]


def write_request(
    folder: Path, model: bytes, inputs: Sequence[Mapping[str, Array]], more: JsonObject
) -> None:
    names = list(inputs[0])
    for sample in inputs:
        if set(sample) != set(names):
            raise UsageError("the samples do not all name the same inputs.")
    stacked: dict[str, Array] = {}
    for k, name in enumerate(names):
        stacked[f"i{k}"] = in_array_type(np.stack([sample[name] for sample in inputs]))
    write_npz(folder / "inputs.npz", stacked)
    (folder / "model").write_bytes(model)
    request = json.dumps({**more, "inputs": names, "samples": len(inputs)})
    (folder / "request.json").write_text(request, encoding="utf-8", newline="\n")


def in_array_type(array: Array) -> Array:
    """Return numbers of a storage type in a type that files of arrays have."""
    dtype = find_dtype(array.dtype.name)
    return array if dtype is None else array.astype(file_dtype(dtype).np, copy=False)


def run_worker(folder: Path, module: str, tool: str, timeout_s: float) -> JsonObject:
    _run_worker_process(folder, module, tool, timeout_s)
    answer = as_object(parse_json((folder / "answer.json").read_text(encoding="utf-8")))
    reason = as_text(answer.get("what", ""))
    match answer.get("error"):
        case "missing":
            extra = reason if reason == "torch" else "verify"
            what = f"{tool} needs the Python package {reason}, which is not installed."
            raise ToolMissingError(what, hint=f"pip install 'firmwright[{extra}]'.")
        case "inputs":
            raise UsageError(f"the samples name the inputs {reason}.")
        case "refused":
            what = f"{tool} refuses this model or its inputs."
            raise ReferenceRefusalError(what, output=reason, hint=_other_profile(tool))
    return answer


def _other_profile(tool: str) -> str:
    is_litert = tool == RUNTIME_TITLES["litert"]
    return "--numerics tflm, if the model was made for TFLM." if is_litert else ""


def _run_worker_process(
    folder: Path, module: str, oracle: str, timeout_s: float
) -> None:
    command = python_command(f"firmwright.oracle.{module}", folder)
    status, printed = run_program(
        command,
        oracle,
        timeout_s=timeout_s,
        hint="fewer samples.",
        folder=folder,
        environment=_WORKER_ENVIRONMENT,
    )
    if status == 0 and (folder / "answer.json").is_file():
        return
    raise ToolFailedError(
        f"{oracle} crashed on this model ({_format_exit_status(status)}).",
        command=command,
        exit_status=status,
        output=printed,
        hint=_other_profile(oracle),
    )


def _format_exit_status(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
