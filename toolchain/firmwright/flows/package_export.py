"""Exports a compilation as a package for another build system, optionally with tests.

The tests compare the model's outputs with the reference outputs for samples that `verify` uses.
"""

import io
from pathlib import Path

import numpy as np

from firmwright.artifacts import SourceTree
from firmwright.base.errors import UsageError
from firmwright.codegen.model_interface import collect_device_calls
from firmwright.flows.model import write_file
from firmwright.flows.reference_outputs import compute_reference, reference_runtime
from firmwright.flows.sample_batches import Tensors, generate_samples, npz_bytes
from firmwright.ir import tir
from firmwright.ir.printer import print_module
from firmwright.package import export_formats
from firmwright.package.custom_main import use_custom_main
from firmwright.package.model_library_format import tar_tree
from firmwright.package.project_writer import write_project
from firmwright.pipeline import Bundle, Compilation

KNOWN_ANSWER_COUNT = 8
"""The number of samples with known answers in a package's tests."""


def export_model(
    compiled: Compilation, form: str, output: str | Path, *, with_tests: bool = False
) -> SourceTree:
    main = compiled.module.entry
    assert isinstance(main, tir.PrimFunc)  # compiled to the end
    devices = tuple(device.name for device in collect_device_calls(main))
    text = print_module(compiled.module)
    exported = export_formats.ExportInput(compiled.tree, compiled.summary, text, devices)
    tree = export_formats.export_package(exported, form, _tests(compiled) if with_tests else None)
    if form == "mlf":
        write_file(output, tar_tree(tree))
    elif form in export_formats.ARCHIVES:
        write_file(output, export_formats.zip_tree(tree))
    else:
        write_project(tree, Path(output))
    return tree


def save_with_main(compiled: Compilation | Bundle, main: str | Path, output: str | Path) -> None:
    try:
        text = Path(main).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = f"the main program cannot be read: {error}."
        hint = "give the path of a C file with --main."
        raise UsageError(what, where=str(main), hint=hint) from error
    write_project(use_custom_main(compiled.project(), text), Path(output))


def _tests(compiled: Compilation) -> export_formats.PackageTests:
    if compiled.source is None:
        what = "a package's tests include the model file, which is not known for this module."
        hint = "export the model file, or give --reference-model FILE."
        raise UsageError(what, where=compiled.module.name, hint=hint)
    names = ("numerics", "optimize", "planner", "preserve_input")
    suffixes = {"onnxruntime": "onnx", "pytorch": "pt2"}
    suffix = suffixes.get(reference_runtime(compiled), "tflite")
    return export_formats.PackageTests(
        model_file=f"{compiled.module.name}.{suffix}",
        model=compiled.source,
        known_answers=known_answers(compiled, KNOWN_ANSWER_COUNT),
        options=tuple(f"{name}={getattr(compiled.options, name)}" for name in names),
    )


def known_answers(compiled: Compilation, count: int) -> bytes:
    """Return an .npz of samples and reference outputs, with keys `in/TENSOR` and `out/TENSOR`."""
    samples = generate_samples(compiled.module.io.inputs, count).samples
    outputs = compute_reference(compiled, samples).outputs
    arrays = {
        **{f"in/{name}": np.stack([s[name] for s in samples]) for name in samples[0]},
        **{f"out/{name}": np.stack([o[name] for o in outputs]) for name in outputs[0]},
    }
    return npz_bytes(arrays)


def read_known_answers(data: bytes) -> list[tuple[Tensors, Tensors]]:
    """Return the inputs and outputs in data from `known_answers`, one pair for each sample."""
    archive = np.load(io.BytesIO(data), allow_pickle=False)
    inputs = {key[3:]: archive[key] for key in archive.files if key.startswith("in/")}
    outputs = {key[4:]: archive[key] for key in archive.files if key.startswith("out/")}
    count = len(next(iter(inputs.values())))
    return [
        ({n: a[k] for n, a in inputs.items()}, {n: a[k] for n, a in outputs.items()})
        for k in range(count)
    ]
