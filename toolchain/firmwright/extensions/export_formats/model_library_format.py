"""TVM's Model Library Format, version 7: a reproducible tar archive with metadata."""

import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from firmwright.artifacts import MARKER, SourceTree
from firmwright.compilation_summary import CompilationSummary, TensorSummary
from firmwright.package.export_format import Archive, Content, ExportFormat
from firmwright.package.export_input import ExportInput

VERSION: Final = 7
_DATE: Final = "1970-01-01 00:00:00Z"
"""A constant date, as equal inputs give equal archives."""
_DEVICE_CPU: Final = 1
"""The number of the device type `cpu` in TVM."""


def tar_tree(tree: SourceTree) -> bytes:
    """Return a tar archive whose bytes depend only on the tree."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, data in tree.encoded().items():
            info = tarfile.TarInfo(f"./{path}")
            info.size = len(data)
            info.mode = 0o644
            info.mtime = 0
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLibraryFormat(ExportFormat):
    """The archive's contents.

    metadata.json is in TVM's form, firmwright.json in the project's.
    """

    takes_tests: bool = False
    takes_several_models: bool = False

    def make_files(self, exported: ExportInput) -> Content:
        name = exported.name
        content: Content = {}
        for file in exported.files:
            kind = "include" if file.is_public else "src"
            content[f"codegen/host/{kind}/{file.name}"] = file.data
        content[f"src/{name}.fwir"] = exported.text
        content[f"parameters/{name}.params"] = b""
        content["firmwright.json"] = exported.tree.files[MARKER]
        (model,) = exported.models
        content["metadata.json"] = _metadata(name, model)
        return content


def _metadata(name: str, summary: CompilationSummary) -> str:
    module = {
        "model_name": name,
        "export_datetime": _DATE,
        "memory": {"functions": _functions(summary)},
        "target": sorted(summary.target.values()),
        "executors": ["aot"],
        "style": "full-model",
        "external_dependencies": [],
    }
    facts = {"version": VERSION, "modules": {name: module}}
    return json.dumps(facts, indent=2, sort_keys=True) + "\n"


def _functions(summary: CompilationSummary) -> dict[str, object]:
    """Describe main with all memory, and operators without any: they share the plan."""
    interface = (*summary.io.inputs, *summary.io.outputs)
    main = {
        "device": _DEVICE_CPU,
        "workspace_size_bytes": summary.workspace_bytes,
        "constants_size_bytes": summary.constants_bytes,
        "io_size_bytes": sum(tensor.size_bytes for tensor in interface),
        "inputs": {tensor.name: _tensor(tensor) for tensor in summary.io.inputs},
        "outputs": {tensor.name: _tensor(tensor) for tensor in summary.io.outputs},
    }
    no_workspace = [{"device": _DEVICE_CPU, "workspace_size_bytes": 0}]
    operators: list[dict[str, object]] = []
    for kernel in sorted({operator.kernel for operator in summary.operators}):
        operators.append({"function_name": kernel, "workspace": no_workspace})
    return {"main": [main], "operator_functions": operators}


def _tensor(tensor: TensorSummary) -> dict[str, object]:
    return {
        "size": tensor.size_bytes,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
    }


_MLF = ModelLibraryFormat(
    name="mlf", package=__package__, archive=Archive("{name}.tar", tar_tree)
)
EXPORT_FORMATS: Mapping[str, ExportFormat] = {_MLF.name: _MLF}
