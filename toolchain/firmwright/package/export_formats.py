"""A model as a package for somebody else's build system.

In: the emitted sources and what metadata.json says of them. Out: the package's files. A format is a
folder of templates below `templates/`, whose paths are those of the package (NAME is the model's),
and a row here that says where the model's C goes. Nothing depends on a date or a machine. The
Model Library Format is mlf.py's.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from firmwright.artifacts import SourceTree
from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.errors import UsageError
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
"""Formats that are folders, and where in them the model's C lies."""
ARCHIVES: Final[Mapping[str, str]] = {
    "mlf": "{name}.tar",
    "cmsis-pack": "Firmwright.{name}.{version}.pack",
}
"""Formats that are one file, and what it is called."""
FORMATS: Final = ("mlf", *FOLDERS)
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ExportInput:
    """A compilation as far as packages care.

    `text` is the module, for the library format; `devices` are those that a run is to be given.
    """

    tree: SourceTree
    metadata: Mapping[str, Any]
    text: str
    devices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return to_c_identifier(str(self.metadata["model"]))

    @property
    def model_files(self) -> dict[str, str | bytes]:
        """The model's C by file name."""
        found = {p: c for p, c in self.tree.files.items() if p.startswith("model/")}
        return {PurePosixPath(path).name: content for path, content in found.items()}


@dataclass(frozen=True, slots=True)
class PackageTests:
    """What a package's own tests need: the model file, known answers, options of compilation."""

    model_file: str
    model: bytes
    known_answers: bytes
    options: tuple[str, ...]


def export_package(
    exported: ExportInput, form: str, tests: PackageTests | None = None
) -> SourceTree:
    """The files of a package; of an archive's, what is in it."""
    if form == "mlf":
        if tests is not None:
            raise UsageError("the library format has no place for tests.", hint="--format cmake.")
        return build_mlf(exported.name, exported.tree, exported.metadata, exported.text)
    _check(exported)
    folder = FOLDERS[form]
    content: dict[str, str | bytes] = {
        f"{folder}/{name}": text for name, text in exported.model_files.items()
    }
    content["metadata.json"] = exported.tree.files["metadata.json"]
    values = _template_values(exported)
    content |= _render_templates(form, values)
    if tests is not None:
        more = {"model_file": tests.model_file, "options": tests.options}
        content |= _render_templates("with-tests", {**values, **more})
        content[f"tests/{tests.model_file}"] = tests.model
        content["tests/known_answers.npz"] = tests.known_answers
    return SourceTree(content)


def zip_tree(tree: SourceTree) -> bytes:
    """A .zip of the files, the same bytes for the same files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in tree.files.items():
            data = content.encode() if isinstance(content, str) else content
            info = zipfile.ZipInfo(path, _LONG_AGO)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
    return made.getvalue()


def _check(exported: ExportInput) -> None:
    """The packages' examples call the model in its usual form."""
    binding = exported.metadata["io"]
    options = exported.metadata["options"]
    unusual = {
        "--io-buffers caller": binding["mode"] != "arena",
        "--stream-input-rows": bool(binding["stream_input_rows"]),
        "--no-link-params": options.get("link_params") is False,
        "--const-pool": any("scope" in pool for pool in exported.metadata["pools"].values()),
    }
    for option, given in unusual.items():
        if given:
            raise UsageError(
                f"a package has its model's input, output and constants in the usual places; "
                f"{option} changes that.",
                hint="leave it out, or firmwright compile -o DIR, whose folder model/ is all C.",
            )


def _template_values(exported: ExportInput) -> dict[str, Any]:
    """What templates are filled with."""
    known = exported.metadata
    upper = exported.name.upper()
    pools = [name for name, pool in known["pools"].items() if pool["bytes"]]
    names = sorted(exported.model_files)
    plan = known["plan"] or {"buffers": []}
    return {
        "name": exported.name,
        "NAME": upper,
        "version": known["tool_version"],
        "model_id": known["model_id"],
        "compiler": " ".join([known["compiler"]["tool"], *known["compiler"]["flags"]]),
        "workspace_bytes": known["workspace_bytes"],
        "sources": [name for name in names if name.endswith(".c")],
        "headers": [name for name in names if name.endswith(".h")],
        "pools": [{"name": name, "macro": f"{upper}_{name.upper()}"} for name in pools],
        "inputs": [
            {"field": row["field"], "macro": f"{upper}_{row['field'].upper()}"}
            for row in known["io"]["inputs"]
        ],
        "has_init": any(row["kind"] == "const" for row in plan["buffers"]),
        "has_state": bool(known["io"].get("state")),
        "devices": exported.devices,
    }


def _render_templates(folder: str, values: Mapping[str, Any]) -> dict[str, str | bytes]:
    environment = Environment(
        loader=PackageLoader("firmwright.package", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    root = files("firmwright.package") / "templates" / folder
    return {
        path.removesuffix(".j2").replace("NAME", values["name"]): environment.get_template(
            f"{folder}/{path}"
        ).render(values)
        for path in _paths(root, "")
    }


def _paths(folder: Traversable, above: str) -> Iterator[str]:
    for entry in sorted(folder.iterdir(), key=lambda found: found.name):
        if entry.is_dir():
            yield from _paths(entry, f"{above}{entry.name}/")
        elif entry.name.endswith(".j2"):
            yield above + entry.name
