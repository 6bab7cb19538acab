"""TVM's Model Library Format, version 7: a reproducible tar archive with metadata."""

import io
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from firmwright.artifacts import MARKER, SourceTree
from firmwright.base.json_input import JsonObject
from firmwright.compilation_summary import CompilationSummary, TensorSummary
from firmwright.package.export_format import Archive, Content, ExportFormat
from firmwright.package.export_input import ExportInput

VERSION: Final = 7
_DATE: Final = "1970-01-01 00:00:00Z"
"""A constant date, as equal inputs give equal archives."""
_DEVICE_CPU: Final = 1
"""The number of the device type `cpu` in TVM."""
_RUNTIME: Final = "runtime"
"""The folder of TVM's C runtime in an archive."""
_INTERFACE: Final = re.compile(r"tvm/tvmgen_(\w+)\.h")
"""The header that `--c-api tvm` adds to a compilation."""


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

    metadata.json is in TVM's form, firmwright.json in the project's. With `--c-api tvm`
    the module has the name in that interface, and there is a folder with the parts of
    TVM's C runtime that programs use.
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
        interfaces = list(map(_INTERFACE.fullmatch, exported.tree.files))
        interface = next(filter(None, interfaces), None)
        if interface is None:
            content["metadata.json"] = _metadata(name, model, ())
            return content
        content |= _read_folder(files(__package__) / "microtvm" / "crt", _RUNTIME)
        runtime: JsonObject = {
            "short_name": "tvm_standalone_crt",
            "url": f"./{_RUNTIME}",
            "url_type": "mlf_path",
            "version_spec": f"firmwright {model.tool_version}",
        }
        content["metadata.json"] = _metadata(interface[1], model, (runtime,))
        return content


def _read_folder(folder: Traversable, place: str) -> Content:
    """Return the files below a folder by their paths in the archive."""
    content: Content = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            content |= _read_folder(entry, f"{place}/{entry.name}")
        else:
            content[f"{place}/{entry.name}"] = entry.read_text(encoding="utf-8")
    return content


def _metadata(
    name: str, summary: CompilationSummary, dependencies: Sequence[JsonObject]
) -> str:
    module = {
        "model_name": name,
        "export_datetime": _DATE,
        "memory": {"functions": _functions(summary)},
        "target": sorted(summary.target.values()),
        "executors": ["aot"],
        "style": "full-model",
        "external_dependencies": list(dependencies),
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
