"""A model as a user has it: its module, and the bytes of the model file for the oracle.

In: a path (.tflite, .onnx, or .fwir as `show` and `partition` write it). Out: a `Model`. Invariant:
`source`, where it is set, is the file that the module was imported from, by its hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from firmwright import pipeline
from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.errors import UsageError
from firmwright.frontends.onnx import ModelOverrides
from firmwright.ir.module import IRModule
from firmwright.ir.printer import print_module
from firmwright.partitioning.partition_pass import partition_module
from firmwright.partitioning.target_passes import PassTimer
from firmwright.partitioning.target_resolution import (
    CORE_TARGET_NAME,
    find_core,
    is_backend,
    name_targets,
)
from firmwright.pipeline import source_digest
from firmwright.targets.registry import parse_targets

SUFFIXES = (".tflite", ".onnx")
"""Of model files."""


@dataclass(frozen=True, slots=True)
class Model:
    """A module and where it comes from; `source` holds the model file's bytes if it is known."""

    module: IRModule
    source: bytes | None = None
    file: str = ""

    @property
    def name(self) -> str:
        return self.module.name

    def _repr_html_(self) -> str:
        from firmwright.flows.html import model_html  # it looks at models, too

        return model_html(self)


def load_model(
    path: str | Path,
    *,
    name: str = "",
    source: str | Path = "",
    given: ModelOverrides = ModelOverrides(),
) -> Model:
    """Read a model. `source` names the model file that a .fwir was made from.

    Without it a model file beside the .fwir is taken, if it has the hash that the module
    remembers. `path` may end in `:KEY`, a signature of a .tflite file that has several. `given`
    says what an ONNX model leaves open. Raises UsageError, ModelError,
    UnsupportedError.
    """
    file, signature = entry_point(path)
    data = pipeline.complete_model(_read(file), file, given)
    name = name or (to_c_identifier(f"{file.stem}_{signature}") if signature else "")
    module = pipeline.load_module_bytes(data, file.name, name=name, signature=signature)
    if source:
        return Model(module, _named_source(module, Path(source)), str(file))
    if module.attrs.get("source_sha256") == source_digest(data):
        return Model(module, data, str(file))
    return Model(module, _source_beside(module, file), str(file))


def entry_point(path: str | Path) -> tuple[Path, str]:
    """The file, and the signature that is named behind a colon, "" if none is."""
    stem, colon, signature = str(path).rpartition(".tflite:")
    if not colon or Path(path).exists():
        return Path(path), ""
    return Path(f"{stem}.tflite"), signature


def partition(model: Model, targets: str, numerics: str = "") -> Model:
    """`model` with every operator given to one of the targets, in their order of preference.

    What backends take becomes functions that carry their target; a core, which may be named last,
    runs all else. The module's text then holds all of that: it compiles to the same bytes anywhere
    where the backends are. `numerics` becomes part of it: what a backend takes may depend on it.
    """
    asked = parse_targets(targets)
    if "stage" in model.module.attrs:
        raise UsageError(
            "the module is lowered already, so its target is fixed.",
            where=model.file,
            hint="partition the model file itself.",
        )
    core = find_core(asked)
    table = {
        **({CORE_TARGET_NAME: core} if core else {}),
        **name_targets(filter(is_backend, asked)),
    }
    plain = model.module.with_attrs(numerics=numerics) if numerics else model.module
    module = partition_module(replace(plain, targets=table), PassTimer())
    return replace(model, module=module)


def save_module(module: IRModule, path: str | Path) -> None:
    """Write the module's text, constants included, so that any verb can go on from it."""
    write_file(path, print_module(module).encode())


def write_file(path: str | Path, data: bytes) -> None:
    """Write a file that the user named; UsageError where that cannot be done."""
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise UsageError(
            f"the file cannot be written: {error.strerror}.", where=str(path), hint="another path."
        ) from error


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"the model cannot be read: {error.strerror}.",
            where=str(file),
            hint="the path of a .tflite, .onnx or .fwir file.",
        ) from error


def _named_source(module: IRModule, file: Path) -> bytes:
    data = _read(file)
    known = module.attrs.get("source_sha256")
    if known is not None and known != source_digest(data):
        raise UsageError(
            "this is not the file that the module was made from: its hash differs.",
            where=str(file),
            hint="the file whose sha256 the module's attribute source_sha256 gives.",
        )
    return data


def _source_beside(module: IRModule, file: Path) -> bytes | None:
    known = module.attrs.get("source_sha256")
    if not known:
        return None
    candidates = (candidate.read_bytes() for candidate in _neighbours(file))
    return next((data for data in candidates if source_digest(data) == known), None)


def _neighbours(file: Path) -> Iterator[Path]:
    """Model files in the same folder, the namesakes first."""
    namesakes = (file.with_suffix(suffix) for suffix in SUFFIXES)
    others = (path for suffix in SUFFIXES for path in sorted(file.parent.glob(f"*{suffix}")))
    return (path for path in (*namesakes, *others) if path.is_file())
