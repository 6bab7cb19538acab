"""Export of a model as a package for another build system.

Each format is a folder in `templates/`; NAME in paths is the model's name.
"""

import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Any, Final

from firmwright.artifacts import SourceTree
from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.errors import UsageError
from firmwright.base.templates import template_environment
from firmwright.compilation_summary import CompilationSummary
from firmwright.package.model_library_format import build_mlf

FOLDERS: Final[Mapping[str, str]] = {
    "cmake": "model",
    "makefile": "model",
    "arduino": "src",
    "platformio": "src",
    "zephyr": "src",
    "esp-idf": "src",
    "cmsis-pack": "src",
}
"""The folder of the model's C within a package of each format except mlf."""
ARCHIVES: Final[Mapping[str, str]] = {
    "mlf": "{name}.tar",
    "cmsis-pack": "Firmwright.{name}.{version}.pack",
}
"""The file name of each format that is a single file."""
FORMATS: Final = ("mlf", *FOLDERS)
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ExportInput:
    """The parts of a compilation that packages contain.

    `text` is the module for the Model Library Format; `devices` are the devices that a run uses.
    """

    tree: SourceTree
    summary: CompilationSummary
    text: str
    devices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return to_c_identifier(self.summary.model)

    @property
    def model_files(self) -> dict[str, str | bytes]:
        files = self.tree.files.items()
        return {PurePosixPath(p).name: text for p, text in files if p.startswith("model/")}


@dataclass(frozen=True, slots=True)
class PackageTests:
    """Data for a package's own tests: the model file, known answers, and compilation options."""

    model_file: str
    model: bytes
    known_answers: bytes
    options: tuple[str, ...]


def export_package(
    exported: ExportInput, form: str, tests: PackageTests | None = None
) -> SourceTree:
    if form == "mlf":
        if tests is not None:
            raise UsageError("the library format cannot contain tests.", hint="--format cmake.")
        return build_mlf(exported.name, exported.tree, exported.summary, exported.text)
    _check(exported)
    values = _template_values(exported)
    content = _render_templates(form, values)
    for name, text in exported.model_files.items():
        content[f"{FOLDERS[form]}/{name}"] = text
    content["metadata.json"] = exported.tree.files["metadata.json"]
    if tests is not None:
        more = {"model_file": tests.model_file, "options": tests.options}
        content |= _render_templates("with-tests", {**values, **more})
        content[f"tests/{tests.model_file}"] = tests.model
        content["tests/known_answers.npz"] = tests.known_answers
    return SourceTree(content)


def zip_tree(tree: SourceTree) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in tree.files.items():
            data = content.encode() if isinstance(content, str) else content
            info = zipfile.ZipInfo(path, _LONG_AGO)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
    return buffer.getvalue()


def _check(exported: ExportInput) -> None:
    io_summary, options = exported.summary.io, exported.summary.options
    unusual = {
        "--io-buffers caller": io_summary.mode != "arena",
        "--stream-input-rows": io_summary.stream_input_rows,
        "--no-link-params": options.get("link_params") is False,
        "--const-pool": any(pool.scope for pool in exported.summary.pools.values()),
    }
    for option, is_set in unusual.items():
        if is_set:
            what = "packages support only the default placement of inputs, outputs and constants"
            hint = "omit the option, or use firmwright compile -o DIR and its folder model/."
            raise UsageError(f"{what}; {option} changes it.", hint=hint)


def _template_values(exported: ExportInput) -> dict[str, Any]:
    summary = exported.summary
    upper = exported.name.upper()
    pools = [name for name, pool in summary.pools.items() if pool.bytes]
    names = sorted(exported.model_files)
    inputs = [tensor.field for tensor in summary.io.inputs]
    buffers = summary.plan.buffers if summary.plan else ()
    return {
        "name": exported.name,
        "NAME": upper,
        "version": summary.tool_version,
        "model_id": summary.model_id,
        "compiler": " ".join([summary.compiler["tool"], *summary.compiler["flags"]]),
        "workspace_bytes": summary.workspace_bytes,
        "sources": [name for name in names if name.endswith(".c")],
        "gcc_flags": {name: _gcc_flags(exported.model_files[name]) for name in names},
        "headers": [name for name in names if name.endswith(".h")],
        "pools": [{"name": name, "macro": f"{upper}_{name.upper()}"} for name in pools],
        "inputs": [{"field": f, "macro": f"{upper}_{f.upper()}"} for f in inputs],
        "has_init": any(buffer.kind == "const" for buffer in buffers),
        "has_state": bool(summary.io.state),
        "devices": exported.devices,
    }


def _render_templates(folder: str, values: Mapping[str, Any]) -> dict[str, str | bytes]:
    environment = template_environment("firmwright.package")
    content: dict[str, str | bytes] = {}
    for path in _paths(files("firmwright.package") / "templates" / folder, ""):
        text = environment.get_template(f"{folder}/{path}").render(values)
        content[path.removesuffix(".j2").replace("NAME", values["name"])] = text
    return content


def _gcc_flags(source: str | bytes) -> str:
    """Return the flags that the first comment of a C file requires of gcc."""
    head = source.split("*/")[0] if isinstance(source, str) else ""
    return " ".join(re.findall(r"gcc flags: (.*)", head))


def _paths(folder: Traversable, above: str) -> Iterator[str]:
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        if entry.is_dir():
            yield from _paths(entry, f"{above}{entry.name}/")
        elif entry.name.endswith(".j2"):
            yield above + entry.name
