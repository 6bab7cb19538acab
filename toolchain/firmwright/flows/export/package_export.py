"""Exports models as packages for build systems, with tests of reference outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from firmwright.artifacts import SourceTree
from firmwright.base.array_files import read_npz_bytes
from firmwright.base.dtypes import Array
from firmwright.base.errors import InternalError, UsageError
from firmwright.base.rounding import round_up
from firmwright.codegen.emit_options import DEFAULT_LICENSE
from firmwright.codegen.model_interface import collect_device_calls
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.export.package_selftest import selftest_sources
from firmwright.flows.model.model import write_file
from firmwright.flows.predict.memory_prediction import predict_stack_bytes
from firmwright.flows.samples.reference_outputs import (
    compute_reference,
    reference_runtime,
)
from firmwright.flows.samples.sample_batches import (
    Tensors,
    generate_largest,
    npz_bytes,
)
from firmwright.ir.printer import print_module
from firmwright.package.export_format import (
    ExportFormat,
    describe_usage,
    export_package,
    find_export_format,
    package_path,
)
from firmwright.package.export_input import (
    NO_METADATA,
    ExportInput,
    PackageMetadata,
    PackageTests,
)
from firmwright.package.option_serialization import serialize_options
from firmwright.package.package_files import collect_package_files
from firmwright.package.project_writer import write_project
from firmwright.partitioning.backend_libraries import find_waits
from firmwright.pipeline import Bundle, Compilation

STACK_MARGIN_BYTES = 64
"""The error that a predicted stack may have (docs/developing/predictions.md)."""
_STACK_ALIGN = 8
KNOWN_ANSWER_COUNT = 8
"""The number of samples with known answers in a package's tests."""


@dataclass(frozen=True, slots=True)
class ExportedPackage:
    """The files of a package, its path, and how a build uses it, as Markdown.

    `stacks` has what the headers state about the stack of a run, by model.
    """

    tree: SourceTree
    path: Path
    usage: str
    stacks: Mapping[str, str]


def export_model(
    compiled: Compilation | Bundle,
    form: str | ExportFormat,
    output: str | Path | None = None,
    *,
    with_tests: bool = False,
    measure_stack: bool = False,
    metadata: PackageMetadata = NO_METADATA,
) -> ExportedPackage:
    """Write the package in a format, or in that of a name, to `output`.

    By default the package has its usual name.
    """
    exported = _export_input(compiled, metadata)
    headers: dict[str, str] = {}
    stacks: dict[str, str] = {}
    for part in parts_of(compiled):
        stack = _measured_stack(part) if measure_stack else _predicted_stack(part)
        if stack is not None:
            header = f"model/{part.c_prefix}.h"
            headers[header] = _with_stack_size(part, header, stack)
            how = "measured" if measure_stack else "predicted, with a margin"
            stacks[part.module.name] = f"{stack.size_bytes:,} bytes, {how}"
    tree = SourceTree({**exported.tree.files, **headers})
    exported = replace(exported, tree=tree)
    chosen = find_export_format(form) if isinstance(form, str) else form
    option = "--with-tests" if with_tests else f"--format {chosen.name}"
    if isinstance(compiled, Bundle) and (with_tests or not chosen.takes_several_models):
        what = f"{option} accepts a single model; {len(compiled.parts)} were given."
        raise UsageError(what, hint="export the models separately with it.")
    if with_tests and not chosen.takes_tests:
        what = f"a package in the format {chosen.name} cannot contain tests."
        raise UsageError(what, hint="omit --with-tests, or give another --format.")
    tests: PackageTests | None = None
    if with_tests and isinstance(compiled, Compilation):
        tests = _tests(compiled)
    usage = describe_usage(
        exported, chosen, str(output or package_path(exported, chosen))
    )
    tree = export_package(exported, chosen, tests)
    path = Path(output or package_path(exported, chosen))
    if chosen.archive is not None:
        write_file(path, chosen.archive.pack(tree))
    else:
        write_project(tree, path)
    return ExportedPackage(tree, path, usage, stacks)


def _export_input(
    compiled: Compilation | Bundle, metadata: PackageMetadata
) -> ExportInput:
    parts = parts_of(compiled)
    metadata = replace(metadata, license=parts[0].options.license or DEFAULT_LICENSE)
    tree = compiled.tree
    if isinstance(compiled, Compilation):
        tree = compiled.recorded_tree
    for part in parts:
        waits = find_waits(part.module)
        devices: dict[str, str] = {}
        for item in collect_device_calls(part.module.aot_main):
            devices[item.name] = waits.get(item.name, "")
        tree = tree.merged(selftest_sources(part, devices))
    exported = ExportInput(tree, compiled.summary, metadata)
    if isinstance(compiled, Bundle):
        return exported
    return replace(exported, text=print_module(compiled.module), devices=devices)


@dataclass(frozen=True, slots=True)
class _Stack:
    """The stack of a run in bytes, and where the figure comes from."""

    size_bytes: int
    origin: str


def _measured_stack(compiled: Compilation) -> _Stack:
    """Build the model's firmware, and return the worst path of a run."""
    image, name = build_image(compiled), compiled.c_prefix
    if not image.stack_is_known:
        what = "the stack of a run is not known."
        raise UsageError(what, where=name, hint="omit --measure-stack.")
    if image.stack.unbounded:
        what = f"the stack of a run is unbounded: {image.stack.unbounded[0]}."
        raise UsageError(what, where=name, hint="omit --measure-stack.")
    return _Stack(image.stack.size_bytes, "with the compiler and flags named above")


def _predicted_stack(compiled: Compilation) -> _Stack | None:
    """Return the predicted stack with a margin; None if it is not known."""
    predicted = predict_stack_bytes(compiled)
    if predicted is None:
        return None
    size_bytes = round_up(predicted + STACK_MARGIN_BYTES, _STACK_ALIGN)
    origin = (
        f"predicted, with a margin of {STACK_MARGIN_BYTES}; export --measure-stack "
        "measures it"
    )
    return _Stack(size_bytes, origin)


def _with_stack_size(compiled: Compilation, path: str, stack: _Stack) -> str:
    """Return the model's header with the stack of a run."""
    text = str(compiled.tree.files[path])
    head, mark, rest = text.partition("/* Operators that the model")
    if not mark:
        raise InternalError("the header does not describe the operators.", where=path)
    note = f"/* The stack of a run in bytes, {stack.origin}. */\n"
    macro = f"#define {compiled.c_prefix.upper()}_STACK_BYTES {stack.size_bytes}\n\n"
    return "".join((head, note, macro, mark, rest))


def parts_of(compiled: Compilation | Bundle) -> tuple[Compilation, ...]:
    return compiled.parts if isinstance(compiled, Bundle) else (compiled,)


def _tests(compiled: Compilation) -> PackageTests:
    if compiled.source is None:
        what = (
            "a package's tests include the model file, which is not known for this "
            "module."
        )
        hint = "export the model file, or give --reference-model FILE."
        raise UsageError(what, where=compiled.module.name, hint=hint)
    suffixes = {"onnxruntime": "onnx", "pytorch": "pt2"}
    suffix = suffixes.get(reference_runtime(compiled), "tflite")
    return PackageTests(
        model_file=f"{compiled.module.name}.{suffix}",
        model=compiled.source,
        known_answers=known_answers(compiled, KNOWN_ANSWER_COUNT),
        options=_repeated_options(compiled),
    )


_ALWAYS_REPEATED = ("numerics", "optimize", "planner", "preserve_input")
_NOT_REPEATED = frozenset(
    {
        "board",
        "license",
        "name",
        "tuning",
        "passes",
        "ram_bytes",
        "flash_bytes",
        "sections",
    }
)
"""Options that change the model's files alone, which tests take from the package."""
_OPTION_NAMES = {
    "const_pools": "--const-pool",
    "pools": "--pool",
    "pool_assignments": "--assign-pool",
    "device_assignments": "--assign-device",
}


def _repeated_options(compiled: Compilation) -> tuple[str, ...]:
    """Return the options with which a package's tests compile, as NAME=VALUE.

    Raises:
        UsageError: an option, or a custom operator, has no such form.
    """
    hint = "omit --with-tests; the package has a known-answer test in C, too."
    if any(path.startswith("backend/custom/") for path in compiled.tree.files):
        what = (
            "a package's tests cannot repeat --custom-op: they import the model "
            "without it."
        )
        raise UsageError(what, where=compiled.module.name, hint=hint)
    changed = set(serialize_options(compiled.options)) - _NOT_REPEATED
    names = [*_ALWAYS_REPEATED, *sorted(changed.difference(_ALWAYS_REPEATED))]
    for name in names:
        if not isinstance(getattr(compiled.options, name), str | bool):
            option = _OPTION_NAMES.get(name, f"--{name.replace('_', '-')}")
            what = f"a package's tests cannot repeat {option}."
            raise UsageError(what, where=compiled.module.name, hint=hint)
    return tuple(f"{name}={getattr(compiled.options, name)}" for name in names)


def with_package_sources(compiled: Compilation, folder: Path) -> Compilation:
    """Return `compiled` with the C of an exported package."""
    files: dict[str, str | bytes] = {}
    for packaged in collect_package_files(compiled.tree):
        file = folder / packaged.name
        if isinstance(packaged.data, str):
            files[packaged.path] = file.read_text(encoding="utf-8")
        else:
            files[packaged.path] = file.read_bytes()
    return replace(compiled, tree=SourceTree({**compiled.tree.files, **files}))


def known_answers(compiled: Compilation, count: int) -> bytes:
    """Return an .npz of samples and reference outputs.

    The keys are `in/TENSOR` and `out/TENSOR`.
    """
    samples = generate_largest(compiled.module, count).samples
    outputs = compute_reference(compiled, samples).outputs
    arrays: dict[str, Array] = {}
    for prefix, rows in ((_INPUT, samples), (_OUTPUT, outputs)):
        for name in rows[0]:
            arrays[prefix + name] = np.stack([row[name] for row in rows])
    return npz_bytes(arrays)


_INPUT, _OUTPUT = "in/", "out/"
"""The prefixes of the keys of known answers."""


def read_known_answers(data: bytes) -> list[tuple[Tensors, Tensors]]:
    """Return the inputs and outputs in data from `known_answers`, a pair per sample."""
    arrays = read_npz_bytes(data)
    inputs = _with_prefix(arrays, _INPUT)
    outputs = _with_prefix(arrays, _OUTPUT)
    count = len(next(iter(inputs.values())))
    answers: list[tuple[Tensors, Tensors]] = []
    for index in range(count):
        sample = {name: array[index] for name, array in inputs.items()}
        expected = {name: array[index] for name, array in outputs.items()}
        answers.append((sample, expected))
    return answers


def _with_prefix(arrays: Tensors, prefix: str) -> dict[str, Array]:
    """Return the arrays whose keys have a prefix, by the rest of their keys."""
    found: dict[str, Array] = {}
    for key, array in arrays.items():
        if key.startswith(prefix):
            found[key.removeprefix(prefix)] = array
    return found
