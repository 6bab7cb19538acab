"""Calibration samples from a folder of .npy and .npz files, one sample each.

Samples follow the order of the file names. A .npy file holds the only input; an .npz file holds all
inputs by tensor name or as `input_K`. A batch axis of one may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from firmwright.base.errors import UsageError
from firmwright.flows.sample_batches import Array, Tensors, make_batch, read_npz
from firmwright.ir.module import IoTensor

SUFFIXES = (".npy", ".npz")


def read_calibration_samples(folder: str | Path, inputs: Sequence[IoTensor]) -> tuple[Tensors, ...]:
    """Return all samples in `folder`, at least one; a UsageError names an invalid file."""
    hint = "save one file per sample: numpy.save('DIR/0001.npy', array)."
    try:
        files = sorted(path for path in Path(folder).iterdir() if path.suffix in SUFFIXES)
    except OSError as error:
        what = f"the samples cannot be read: {error.strerror}."
        raise UsageError(what, where=str(folder), hint=hint) from error
    if not files:
        raise UsageError("this folder has no .npy or .npz files.", where=str(folder), hint=hint)
    return tuple(sample for file in files for sample in _samples(file, inputs))


def _samples(file: Path, inputs: Sequence[IoTensor]) -> tuple[Tensors, ...]:
    arrays = read_npz(file) if file.suffix == ".npz" else _only_input(file, inputs)
    shapes = {tensor.name: tensor.type.shape for tensor in inputs}
    shapes |= {f"input_{k + 1}": tensor.type.shape for k, tensor in enumerate(inputs)}
    fitted = {name: _with_batch(array, shapes.get(name, ())) for name, array in arrays.items()}
    return make_batch(fitted, inputs, str(file)).samples


def _only_input(file: Path, inputs: Sequence[IoTensor]) -> dict[str, Array]:
    if len(inputs) != 1:
        names = ", ".join(tensor.name for tensor in inputs)
        raise UsageError(
            f"a single array cannot be a sample of {len(inputs)} inputs.",
            where=str(file),
            hint=f"use an .npz file with the arrays {names}.",
        )
    try:
        return {inputs[0].name: np.asarray(np.load(file, allow_pickle=False))}
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(
            f"this is not a .npy file of plain numbers: {error}.",
            where=str(file),
            hint="write it with numpy.save(path, array).",
        ) from error


def _with_batch(array: Array, shape: tuple[int, ...]) -> Array:
    return array[np.newaxis] if (1, *array.shape) == shape else array
