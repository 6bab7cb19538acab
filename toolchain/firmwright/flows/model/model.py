"""A module with the bytes of its model file, which the reference runtime needs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from firmwright import pipeline
from firmwright.artifacts import replace_file
from firmwright.base.c_identifiers import to_model_identifier
from firmwright.base.errors import UsageError
from firmwright.base.html_views import show_html
from firmwright.base.input_files import read_input_bytes
from firmwright.frontends.onnx import ModelOverrides
from firmwright.frontends.scikit_learn import (
    Estimator,
    convert_estimator,
    estimator_to_onnx,
    require_estimator,
)
from firmwright.ir.graph.nodes import Function, Value
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ir.printer import print_module
from firmwright.ir.settings import NumericsProfile
from firmwright.ops.registry import op_table
from firmwright.partitioning.backend_libraries import with_backend_records
from firmwright.partitioning.byoc import partition_module
from firmwright.partitioning.pattern_matching import MatchCondition
from firmwright.partitioning.per_target_passes import PassTimer
from firmwright.partitioning.target_resolution import extend_targets
from firmwright.pipeline import ResizedModel, source_digest, with_axis_input
from firmwright.targets.backend import match_always
from firmwright.targets.registry import parse_targets

MODEL_SUFFIXES = (".tflite", ".onnx", ".pt2")


@dataclass(frozen=True, slots=True)
class Model:
    """A module with its origin; `source` holds the bytes of the imported model file.

    `resized` are all sizes of a bounded axis; `module` is then the largest.
    """

    module: IRModule
    source: bytes | None = None
    file: str = ""
    resized: Mapping[int, ResizedModel] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.module.name

    def _repr_html_(self) -> str:
        return show_html(self)


def load_model(
    path: str | Path | Estimator,
    *,
    name: str = "",
    reference_model: str | Path = "",
    overrides: ModelOverrides = ModelOverrides(),
    trust: bool = False,
) -> Model:
    """Read a .tflite, .onnx, .pt2, .keras, .joblib or .fwir file, or an estimator.

    Args:
        path: The file; `FILE.tflite:KEY` selects a signature. Or a fitted estimator of
            scikit-learn.
        name: The model's name; the default is the file's.
        reference_model: The source of a .fwir, by default searched by its hash in the
            same folder.
        overrides: Input shapes and constants for a model that leaves them open.
        trust: Whether C and lowered functions in a .fwir may become parts of programs,
            and the code of a pickle may run.

    Raise UsageError, ModelError or UnsupportedError.
    """
    if not isinstance(path, str | Path):
        return load_estimator(path, name or "estimator")
    file, signature = split_entry_point(path)
    data = _read(file)
    overrides = pipeline.with_declared_axis(data, file, overrides)
    if overrides.bounded is not None:
        return _load_resized(file, signature, name, overrides, trust=trust)
    data = pipeline.complete_model(data, file, overrides, trust=trust)
    if signature and not name:
        name = to_model_identifier(f"{file.stem}_{signature}")
    module = pipeline.load_module_bytes(
        data,
        file.name,
        name=name,
        signature=signature,
        path=file,
        shapes=overrides.shapes,
    )
    if trust:
        module = replace(module, untrusted=None)
    if reference_model:
        return Model(module, _named_source(module, Path(reference_model)), str(file))
    if module.origin.sha256 == source_digest(data):
        return Model(module, data, str(file))
    return Model(module, _find_source(module, file), str(file))


def _load_resized(
    file: Path, signature: str, name: str, overrides: ModelOverrides, *, trust: bool
) -> Model:
    """Read a model at every size of its bounded axis."""
    assert overrides.bounded is not None
    axis = overrides.bounded.axis
    path = f"{file}:{signature}" if signature else file
    models: dict[int, ResizedModel] = {}
    for size in axis.sizes:
        model = load_model(path, name=name, overrides=overrides.at(size), trust=trust)
        models[size] = ResizedModel(model.module, model.source)
    resized = with_axis_input(models, axis)
    largest = resized[axis.most]
    return Model(largest.module, largest.source, str(file), resized)


def load_model_of_many(
    path: str | Path, shapes: Mapping[str, tuple[int, ...]]
) -> Model:
    """Read one of several models; `shapes` are for those that leave such inputs open.

    Raise as `load_model` does.
    """
    file = Path(path)
    given = pipeline.shapes_of_open_inputs(_read(file), file, shapes) if shapes else {}
    return load_model(file, overrides=ModelOverrides(given))


def load_estimator(estimator: Estimator, name: str, features: int = 0) -> Model:
    """Return the model of a fitted estimator of scikit-learn.

    It takes float32 [1, features], or the samples of the pipeline's first step.
    """
    if features:
        data = estimator_to_onnx(estimator, features, name)
    else:
        data = convert_estimator(require_estimator(estimator), name)
    taken = features or getattr(estimator, "n_features_in_", 0)
    batch = ModelOverrides(shapes={"X": (1, taken)})
    is_onnx_model = not data.startswith(b"firmwright")
    data = pipeline.complete_model(
        data, Path(name), batch if is_onnx_model else ModelOverrides()
    )
    module = pipeline.load_module_bytes(data, name, name=to_model_identifier(name))
    source = data if module.origin.sha256 == source_digest(data) else None
    return Model(module, source, "")


def model_inputs(model: Model) -> tuple[IoTensor, ...]:
    return tuple(map(_io_tensor, _graph(model).params))


def model_outputs(model: Model) -> tuple[IoTensor, ...]:
    return tuple(map(_io_tensor, _graph(model).results))


def _io_tensor(value: Value) -> IoTensor:
    return IoTensor(value.name, value.name, value.type)


def _graph(model: Model) -> Function:
    entry = model.module.entry
    if not isinstance(entry, Function):
        what = "the model is lowered already."
        raise UsageError(what, where=model.file, hint="use the model file instead.")
    return entry


def find_model_files(folder: str, pattern: str = "*") -> tuple[Path, ...]:
    """Return the model files in `folder` that match the glob `pattern`, by name."""
    root = Path(folder)
    paths = [path for path in root.glob(pattern) if path.suffix in MODEL_SUFFIXES]
    if not paths:
        *others, last = MODEL_SUFFIXES
        what = f"there is no {', '.join(others)} or {last} file."
        hint = "this is not a folder."
        if root.is_dir():
            hint = "name a folder with models."
        raise UsageError(what, where=folder, hint=hint)
    return tuple(sorted(paths))


@contextlib.contextmanager
def provide_file(path: str | Path, content: bytes | None) -> Iterator[Path]:
    """Yield `path`, or a temporary file of that name if `content` is given."""
    if content is None:
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="firmwright-model-") as folder:
        copy = Path(folder) / Path(path).name
        copy.write_bytes(content)
        yield copy


def split_entry_point(path: str | Path) -> tuple[Path, str]:
    """Split `FILE.tflite:SIGNATURE` into file and signature ("" if there is none)."""
    stem, colon, signature = str(path).rpartition(".tflite:")
    if not colon or Path(path).exists():
        return Path(path), ""
    return Path(f"{stem}.tflite"), signature


def partition(
    model: Model,
    targets: str,
    numerics: NumericsProfile | None = None,
    *,
    offload: Mapping[str, str] | None = None,
    where: MatchCondition = match_always,
) -> Model:
    """Assign the operators without a target to the targets, in order of preference.

    The remaining operators run on the core. `offload` maps tensors to the targets (or
    `cpu`) of their operators; `where` is a condition on other matches. Backends may
    depend on `numerics`.
    """
    if model.module.is_started:
        what = "the module is lowered already, so its target is fixed."
        raise UsageError(
            what, where=model.file, hint="partition the model file instead."
        )
    is_partitioned = model.module.results.partitioned is not None
    before = model.module.targets if is_partitioned else {}
    module = replace(model.module, targets=extend_targets(before, targets))
    if numerics:
        module = module.with_numerics(numerics)
    if offload:
        settings = replace(module.settings, offload=tuple(offload.items()))
        module = replace(module, settings=settings)
    requested = parse_targets(targets, tuple(before.values()))
    names = {name for name, target in module.targets.items() if target in requested}
    return replace(model, module=partition_module(module, PassTimer(), names, where))


def save_module(module: IRModule, path: str | Path) -> None:
    """Write the module's text with all that other verbs need to continue from it."""
    write_file(path, print_module(with_backend_records(module)).encode())


def write_file(path: str | Path, data: bytes) -> None:
    """Write a file at a user's path; raise UsageError if that fails."""
    try:
        replace_file(Path(path), data)
    except OSError as error:
        what = f"the file cannot be written: {error.strerror}."
        raise UsageError(what, where=str(path), hint="use another path.") from error


def _read(file: Path) -> bytes:
    try:
        return read_input_bytes(file)
    except OSError as error:
        what = f"the model cannot be read: {error.strerror}."
        hint = "give the path of a .tflite, .onnx, .pt2, .keras, .h5 or .fwir file."
        raise UsageError(what, where=str(file), hint=hint) from error


def _named_source(module: IRModule, file: Path) -> bytes:
    """Return the bytes of the model file that the user names; UsageError for another.

    The source of a model that another compiler has translated, such as Vela, has
    another hash.
    """
    data = _read(file)
    digest = module.origin.sha256
    foreign = {op.name for op in op_table().values() if op.is_precompiled}
    called: set[str] = set()
    for graph in module.graphs:
        called.update(call.op for call in graph.body)
    is_precompiled = not foreign.isdisjoint(called)
    if digest not in ("", source_digest(data)) and not is_precompiled:
        what = "this is not the file that the module was made from: its hash differs."
        hint = "give the file with the sha256 in the module's attribute source_sha256."
        raise UsageError(what, where=str(file), hint=hint)
    return data


def _find_source(module: IRModule, file: Path) -> bytes | None:
    """Search the folder of `file` for its model, first in files with its stem."""
    digest = module.origin.sha256
    if not digest:
        return None
    candidates = [file.with_suffix(suffix) for suffix in MODEL_SUFFIXES]
    for suffix in MODEL_SUFFIXES:
        candidates += sorted(file.parent.glob(f"*{suffix}"))
    for path in candidates:
        if path.is_file():
            data = path.read_bytes()
            if source_digest(data) == digest:
                return data
    return None
