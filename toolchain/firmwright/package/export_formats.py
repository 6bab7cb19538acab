"""Export of models as a package for another build system.

Each format is a folder in `templates/`; NAME in paths is the package's name, VENDOR its owner's.
"""

import io
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from firmwright.artifacts import MARKER, SourceTree
from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.dtypes import get_dtype
from firmwright.base.errors import UsageError
from firmwright.base.templates import template_environment
from firmwright.compilation_summary import BundleSummary, CompilationSummary, TensorSummary
from firmwright.package.model_library_format import build_mlf
from firmwright.package.package_files import PackageFile, collect_package_files

_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII)
_URL = re.compile(r"https?://[!-~]+")


@dataclass(frozen=True, slots=True)
class PackageMetadata:
    """Name, version and owner of a package; invalid ones raise UsageError.

    An empty `name` means the model's name. `license` is an SPDX expression; `license_text`, by
    default that expression, is the contents of LICENSE.
    """

    name: str = ""
    version: str = "0.0.0"
    maintainer: str = "Model Owner"
    url: str = ""
    license: str = ""
    license_text: str = ""

    def __post_init__(self) -> None:
        identifier = to_c_identifier(self.name)
        owner = self.maintainer if self.maintainer.isprintable() and self.vendor else ""
        for option, value, is_valid, hint in (
            ("package-name", self.name, self.name in ("", identifier), f"such as {identifier}."),
            ("package-version", self.version, _VERSION.fullmatch(self.version), "such as 1.4.0."),
            ("maintainer", self.maintainer, owner, "such as 'Ada Co <ml@ada.example>'."),
            ("url", self.url, not self.url or _URL.fullmatch(self.url), "an https:// address."),
        ):
            if not is_valid:
                raise UsageError(f"invalid --{option} {value!r}.", hint=hint)

    @property
    def vendor(self) -> str:
        """The maintainer's name with the characters that a CMSIS pack permits."""
        return re.sub(r"[^A-Za-z0-9_]+", "-", self.maintainer.partition("<")[0]).strip("-")


NO_METADATA = PackageMetadata()


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
    "cmsis-pack": "{vendor}.{name}.{version}.pack",
}
"""The file name of each format that is a single file."""
FORMATS: Final = ("mlf", *FOLDERS)
_WITHOUT_FLAGS: Final = ("arduino", "cmsis-pack")
"""Formats without compiler flags of a file or library."""
_WITHOUT_OBJECTS: Final = ("arduino", "platformio")
_FLEXIBLE_HINT: Final = "--format cmake, makefile, zephyr or esp-idf."
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ExportInput:
    """The parts of a compilation that packages contain.

    `text` is the module for the Model Library Format; `devices` are the devices that a run uses,
    with the functions that wait for them.
    """

    tree: SourceTree
    summary: CompilationSummary | BundleSummary
    metadata: PackageMetadata
    text: str = ""
    devices: Mapping[str, str] = field(default_factory=dict)

    @property
    def models(self) -> tuple[CompilationSummary, ...]:
        """The models in the order of their runs."""
        summary = self.summary
        if isinstance(summary, CompilationSummary):
            return (summary,)
        order = summary.run_order
        return tuple(sorted(summary.models, key=lambda model: order.index(model.model)))

    @property
    def name(self) -> str:
        names = (to_c_identifier(model.model) for model in self.models)
        return self.metadata.name or "_".join(names)

    @property
    def files(self) -> tuple[PackageFile, ...]:
        return collect_package_files(self.tree)


@dataclass(frozen=True, slots=True)
class PackageTests:
    """Data for a package's own tests: the model file, known answers, and compilation options."""

    model_file: str
    model: bytes
    known_answers: bytes
    options: tuple[str, ...]


def export_package(exported: ExportInput, form: str, tests: PackageTests | None) -> SourceTree:
    values = {**_template_values(exported), "form": form, "folder": FOLDERS.get(form, "")}
    content = _render_templates("every-package", values)
    content["LICENSE"] = exported.metadata.license_text or content["LICENSE"]
    if form == "mlf":
        (model,) = exported.models
        record = exported.tree.files[MARKER]
        tree = build_mlf(exported.name, exported.files, model, exported.text, record)
        return tree.merged(SourceTree(content))
    _check_linkable(exported.files, form)
    content |= _render_templates(form, values)
    for file in exported.files:
        content[f"{FOLDERS[form]}/{file.name}"] = file.data
    content[MARKER] = exported.tree.files[MARKER]
    if tests is not None:
        more = {"model_file": tests.model_file, "options": tests.options}
        content |= _render_templates("with-tests", {**values, **more})
        content[f"tests/{tests.model_file}"] = tests.model
        content["tests/known_answers.npz"] = tests.known_answers
    return SourceTree(content)


def _check_linkable(files: Sequence[PackageFile], form: str) -> None:
    """Raise UsageError if the format has no place for flags or objects that the files need."""
    flagged = next((file for file in files if file.flags), None)
    if flagged is not None and form in _WITHOUT_FLAGS:
        what = f"{flagged.path} needs the flags {' '.join(flagged.flags)}; {form} cannot set them."
        raise UsageError(what, where="export", hint=_FLEXIBLE_HINT)
    made = next((file for file in files if file.is_object), None)
    if made is not None and form in _WITHOUT_OBJECTS:
        what = f"{made.path} is compiled already; {form} links sources only."
        raise UsageError(what, where="export", hint=_FLEXIBLE_HINT)


def archive_name(exported: ExportInput, form: str) -> str:
    """Return the usual name of a package: of its folder, or of its file."""
    facts = exported.metadata
    return ARCHIVES.get(form, "{name}").format(
        name=exported.name, version=facts.version, vendor=facts.vendor
    )


def zip_tree(tree: SourceTree) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in tree.encoded().items():
            info = zipfile.ZipInfo(path, _LONG_AGO)
            info.create_system = 3  # else the entry depends on the system
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
    return buffer.getvalue()


def _template_values(exported: ExportInput) -> dict[str, Any]:
    summary, files = exported.summary, exported.files
    models = [model_values(model, exported.devices) for model in exported.models]
    sources = [file for file in files if file.is_source]
    compiler = exported.models[0].compiler
    shares = isinstance(summary, BundleSummary) and not summary.concurrent
    return {
        "name": exported.name,
        "NAME": exported.name.upper(),
        "title": " and ".join(model["name"] for model in models),
        "noun": "network" if len(models) == 1 else "networks",
        "package": exported.metadata,
        "models": models,
        "summary": summary,
        "tool_version": exported.models[0].tool_version,
        "compiler": " ".join([compiler["tool"], *compiler["flags"]]),
        "sources": sources,
        "objects": [file for file in files if file.is_object],
        "needs_math": any("#include <math.h>" in file.text for file in sources),
        "library_flags": list(dict.fromkeys(flag for file in sources for flag in file.flags)),
        "headers": [file for file in files if file.is_header],
        "prints_floats": any(t["is_float"] for model in models for t in model["outputs"]),
        "pool_names": list(dict.fromkeys(pool["name"] for m in models for pool in m["pools"])),
        "shares_memory": shares,
    }


def _render_templates(folder: str, values: Mapping[str, Any]) -> dict[str, str | bytes]:
    environment = template_environment("firmwright.package")
    content: dict[str, str | bytes] = {}
    for path in _paths(files("firmwright.package") / "templates" / folder, ""):
        text = environment.get_template(f"{folder}/{path}").render(values)
        path = path.replace("VENDOR", values["package"].vendor)
        content[path.removesuffix(".j2").replace("NAME", values["name"])] = text
    return content


def _paths(folder: Traversable, above: str) -> Iterator[str]:
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        if entry.is_dir():
            yield from _paths(entry, f"{above}{entry.name}/")
        elif entry.name.endswith(".j2"):
            yield above + entry.name


def model_values(summary: CompilationSummary, devices: Mapping[str, str]) -> dict[str, Any]:
    """Return names, memory and calls of one model; `devices` as in ExportInput."""
    name = to_c_identifier(summary.model)
    upper, io = name.upper(), summary.io
    filled = {pool: facts for pool, facts in summary.pools.items() if facts.bytes}
    memory = {pool: f"{upper}_{pool.upper()}" for pool in filled}
    scopes = {pool: facts.scope for pool, facts in filled.items()}
    inputs, outputs = ([_tensor(upper, t) for t in kind] for kind in (io.inputs, io.outputs))
    buffers = [*([] if io.stream_input_rows else inputs), *outputs]
    is_linked = summary.options.get("link_params", True)
    more = [*([] if is_linked else [f"&{name}_params"]), *([f"&{name}_devices"] if devices else [])]
    more += ["NULL"] * bool(summary.options.get("emit_probe_callback"))
    has_init = any(b.kind == "const" for b in (summary.plan.buffers if summary.plan else ()))
    return {
        "name": name,
        "NAME": upper,
        "summary": summary,
        "pools": [{"name": p, "macro": memory[p]} for p, scope in scopes.items() if scope is None],
        "const_pools": [
            {"name": pool, "macro": memory[pool], "scope": scope}
            for pool, scope in scopes.items()
            if scope in ("external", "port", "async")
        ],
        "inputs": inputs,
        "outputs": outputs,
        "in_pools": io.mode == "arena",
        "buffers": [] if io.mode == "arena" else buffers,
        "rows": inputs[0] if io.stream_input_rows else None,
        "is_linked": is_linked,
        "more_arguments": "".join(f", {item}" for item in more),
        "has_init": has_init,
        "has_state": bool(io.state),
        "is_pipelined": bool(io.pipeline_runs),
        "needs_preparation": has_init or bool(io.state) or not is_linked,
        "devices": devices,
    }


def _tensor(prefix: str, tensor: TensorSummary) -> dict[str, Any]:
    dtype = get_dtype(tensor.dtype)
    return {
        "field": tensor.field,
        "macro": f"{prefix}_{tensor.field.upper()}",
        "c_type": dtype.c_type,
        "is_float": dtype.is_float,
        "summary": tensor,
    }
