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
from typing import Final

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
        if self.name not in ("", identifier):
            raise _invalid("package-name", self.name, f"such as {identifier}.")
        if not _VERSION.fullmatch(self.version):
            raise _invalid("package-version", self.version, "such as 1.4.0.")
        if not self.maintainer.isprintable() or not self.vendor:
            raise _invalid("maintainer", self.maintainer, "such as 'Ada Co <ml@ada.example>'.")
        if self.url and not _URL.fullmatch(self.url):
            raise _invalid("url", self.url, "an https:// address.")

    @property
    def vendor(self) -> str:
        """The maintainer's name with the characters that a CMSIS pack permits."""
        name, _, _ = self.maintainer.partition("<")
        return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")


def _invalid(option: str, value: str, hint: str) -> UsageError:
    return UsageError(f"invalid --{option} {value!r}.", hint=hint)


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
"""Formats that compile sources but do not link objects or archives."""
_FLEXIBLE_HINT: Final = "--format cmake, makefile, zephyr or esp-idf."
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The first date that a zip archive can store; the archive does not depend on the time."""
_UNIX: Final = 3
"""The system that made an entry, by its number in a zip archive; by default it is the host's."""


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
    """Return the package in the format `form`, with `tests` unless it is an archive for TVM."""
    values = {**_template_values(exported), "form": form, "folder": FOLDERS.get(form, "")}
    content = _render_templates("every-package", exported, values)
    content["LICENSE"] = exported.metadata.license_text or content["LICENSE"]
    if form == "mlf":
        (model,) = exported.models
        record = exported.tree.files[MARKER]
        tree = build_mlf(exported.name, exported.files, model, exported.text, record)
        return tree.merged(SourceTree(content))
    _check_linkable(exported.files, form)
    content |= _render_templates(form, exported, values)
    for file in exported.files:
        content[f"{FOLDERS[form]}/{file.name}"] = file.data
    content[MARKER] = exported.tree.files[MARKER]
    if tests is not None:
        more = {"model_file": tests.model_file, "options": tests.options}
        content |= _render_templates("with-tests", exported, {**values, **more})
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
    pattern = ARCHIVES.get(form, "{name}")
    return pattern.format(name=exported.name, version=facts.version, vendor=facts.vendor)


def zip_tree(tree: SourceTree) -> bytes:
    """Return a zip archive whose bytes depend only on the tree."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in tree.encoded().items():
            info = zipfile.ZipInfo(path, _LONG_AGO)
            info.create_system = _UNIX
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
    return buffer.getvalue()


def _template_values(exported: ExportInput) -> dict[str, object]:
    """Return the names that the templates of all formats know."""
    summary = exported.summary
    files = exported.files
    models = [model_values(model, exported.devices) for model in exported.models]
    sources = [file for file in files if file.is_source]
    compiler = exported.models[0].compiler
    library_flags: dict[str, None] = {}
    for file in sources:
        library_flags |= dict.fromkeys(file.flags)
    pool_names: dict[str, None] = {}
    prints_floats = False
    for model in models:
        pool_names |= dict.fromkeys(pool.name for pool in model.pools)
        prints_floats = prints_floats or any(tensor.is_float for tensor in model.outputs)
    return {
        "name": exported.name,
        "NAME": exported.name.upper(),
        "title": " and ".join(model.name for model in models),
        "noun": "network" if len(models) == 1 else "networks",
        "package": exported.metadata,
        "models": models,
        "summary": summary,
        "tool_version": exported.models[0].tool_version,
        "compiler": " ".join([compiler.tool, *compiler.flags]),
        "sources": sources,
        "objects": [file for file in files if file.is_object],
        "needs_math": any("#include <math.h>" in file.text for file in sources),
        "library_flags": list(library_flags),
        "headers": [file for file in files if file.is_header],
        "prints_floats": prints_floats,
        "pool_names": list(pool_names),
        "shares_memory": isinstance(summary, BundleSummary) and not summary.concurrent,
    }


def _render_templates(
    folder: str, exported: ExportInput, values: Mapping[str, object]
) -> dict[str, str | bytes]:
    """Return the files of a folder of templates, with NAME and VENDOR in their paths replaced."""
    environment = template_environment("firmwright.package")
    content: dict[str, str | bytes] = {}
    for path in _paths(files("firmwright.package") / "templates" / folder, ""):
        text = environment.get_template(f"{folder}/{path}").render(values)
        path = path.replace("VENDOR", exported.metadata.vendor)
        content[path.removesuffix(".j2").replace("NAME", exported.name)] = text
    return content


def _paths(folder: Traversable, above: str) -> Iterator[str]:
    """Yield the templates in a folder and below it as paths that start with `above`."""
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        if entry.is_dir():
            yield from _paths(entry, f"{above}{entry.name}/")
        elif entry.name.endswith(".j2"):
            yield above + entry.name


@dataclass(frozen=True, slots=True)
class PoolValues:
    """A pool for templates: its name, the prefix of its macros, and how constants are read."""

    name: str
    macro: str
    scope: str = ""


@dataclass(frozen=True, slots=True)
class TensorValues:
    """An input or output for templates: its field in C, the prefix of its macros, its C type."""

    field: str
    macro: str
    c_type: str
    is_float: bool
    summary: TensorSummary


@dataclass(frozen=True, slots=True)
class ModelValues:
    """The names, memory and calls of one model for templates.

    `buffers` are those that the caller provides, `rows` is the input that is streamed by rows,
    and `more_arguments` are the optional ones of a run. `NAME` is the prefix of the macros.
    """

    name: str
    NAME: str
    summary: CompilationSummary
    pools: Sequence[PoolValues]
    const_pools: Sequence[PoolValues]
    inputs: Sequence[TensorValues]
    outputs: Sequence[TensorValues]
    in_pools: bool
    buffers: Sequence[TensorValues]
    rows: TensorValues | None
    is_linked: bool
    more_arguments: str
    has_init: bool
    has_state: bool
    is_pipelined: bool
    needs_preparation: bool
    devices: Mapping[str, str]


def model_values(summary: CompilationSummary, devices: Mapping[str, str]) -> ModelValues:
    """Return the values of one model; `devices` as in ExportInput."""
    name = to_c_identifier(summary.model)
    upper = name.upper()
    io = summary.io
    pools: list[PoolValues] = []
    const_pools: list[PoolValues] = []
    for pool, facts in summary.pools.items():
        macro = f"{upper}_{pool.upper()}"
        if facts.bytes and facts.scope is None:
            pools.append(PoolValues(pool, macro))
        elif facts.bytes and facts.scope in ("external", "port", "async"):
            const_pools.append(PoolValues(pool, macro, facts.scope))
    inputs = [_tensor(upper, tensor) for tensor in io.inputs]
    outputs = [_tensor(upper, tensor) for tensor in io.outputs]
    # The buffers that the caller provides: none in the arena, and no whole input that is streamed.
    buffers: list[TensorValues] = []
    if io.mode != "arena":
        buffers = outputs if io.stream_input_rows else inputs + outputs
    is_linked = summary.options.get("link_params", True) is True
    has_init = False
    if summary.plan is not None:
        has_init = any(buffer.kind == "const" for buffer in summary.plan.buffers)
    return ModelValues(
        name=name,
        NAME=upper,
        summary=summary,
        pools=pools,
        const_pools=const_pools,
        inputs=inputs,
        outputs=outputs,
        in_pools=io.mode == "arena",
        buffers=buffers,
        rows=inputs[0] if io.stream_input_rows else None,
        is_linked=is_linked,
        more_arguments=_more_arguments(name, summary, devices),
        has_init=has_init,
        has_state=bool(io.state),
        is_pipelined=bool(io.pipeline_runs),
        needs_preparation=has_init or bool(io.state) or not is_linked,
        devices=devices,
    )


def _more_arguments(name: str, summary: CompilationSummary, devices: Mapping[str, str]) -> str:
    """Return the optional arguments of a run, each after a comma: parameters, devices, probe."""
    arguments = ""
    if not summary.options.get("link_params", True):
        arguments += f", &{name}_params"
    if devices:
        arguments += f", &{name}_devices"
    if summary.options.get("emit_probe_callback"):
        arguments += ", NULL"
    return arguments


def _tensor(prefix: str, tensor: TensorSummary) -> TensorValues:
    dtype = get_dtype(tensor.dtype)
    return TensorValues(
        field=tensor.field,
        macro=f"{prefix}_{tensor.field.upper()}",
        c_type=dtype.c_type,
        is_float=dtype.is_float,
        summary=tensor,
    )
