"""Data sets for a model: samples, and labels if there are any.

A data set is a folder with a subfolder for each class, a folder with `labels.csv`, a
folder of samples without labels, a file with all samples, or a Python generator.
Integers of an input's type are quantized values, floats real ones; `convert_samples`
converts both for each model.
"""

from __future__ import annotations

import csv
import runpy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from firmwright.base.array_files import read_npy, read_npz
from firmwright.base.dtypes import INT8, Array
from firmwright.base.errors import UsageError
from firmwright.base.input_files import check_regular_file, read_input_rows
from firmwright.flows.samples.input_values import (
    HalfRounding,
    LevelUse,
    convert_values,
    describe_use,
)
from firmwright.flows.samples.sample_batches import Tensors, arrays_by_name
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.module import IoTensor

LABELS_FILE = "labels.csv"
LABEL_KEYS = ("labels", "label", "y")
FORMS_HINT = (
    "give a folder with a subfolder of .npy, .npz or .bin files for each class, a "
    f"folder with {LABELS_FILE} (lines FILE,LABEL), or an .npz file with the arrays x "
    "and y."
)
Item = tuple[str, Tensors, Sequence[str]]
"""A file, its arrays, and the words of its label."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Samples by input name, as they were stored, with their names.

    `labels` has one row for each sample. `classes` are the names of the classes if they
    are known.
    """

    where: str
    samples: tuple[Tensors, ...]
    names: tuple[str, ...]
    labels: Array | None = None
    classes: tuple[str, ...] = ()

    def spread(self, count: int) -> Dataset:
        """Return at most `count` samples, evenly spaced."""
        chosen = evenly_spaced(len(self.samples), count)
        labels = None if self.labels is None else self.labels[chosen]
        names = tuple(self.names[index] for index in chosen)
        samples = tuple(self.samples[index] for index in chosen)
        return replace(self, samples=samples, names=names, labels=labels)


def evenly_spaced(total: int, count: int) -> list[int]:
    """Return `count` of the indices below `total`, all of them if there are fewer.

    They are spread evenly, because the samples of a class often follow each other.
    """
    chosen = min(total, count)
    return [number * total // chosen for number in range(chosen)]


def read_dataset(
    data: str | Path | Mapping[str, Array],
    inputs: Sequence[IoTensor],
    labels: str | Path = "",
    classes: Sequence[str] = (),
) -> Dataset:
    """Read a data set, or take arrays by name, for a model with these inputs.

    `labels` is an .npy file, or a text file with a line LABEL for each sample or, for a
    folder, a line FILE,LABEL for each file. `classes` are the names of the classes in
    the model's order. A UsageError names an invalid file.
    """
    where = "the arrays" if isinstance(data, Mapping) else str(data)
    values: Array | Sequence[Sequence[str]] | None = None
    if isinstance(data, str | Path) and Path(data).is_dir():
        table = Path(data) / LABELS_FILE
        if str(labels).endswith(".csv"):
            table = Path(labels)
        items: list[Item] = list(_folder_items(Path(data), table, inputs))
        labels = "" if Path(labels) == table else labels
    elif ".py:" in where:
        items = list(_generator_items(where))
    else:
        given = data if isinstance(data, Mapping) else _read_file(Path(data), inputs)
        arrays = dict(given)
        key = _label_key(arrays, inputs)
        values = np.asarray(arrays.pop(key)) if key else None
        if len(arrays) == len(inputs) == 1:
            arrays = {inputs[0].name: next(iter(arrays.values()))}
        items = [("", arrays, ())]
    samples: list[Tensors] = []
    sample_names, words = [], []
    for name, item, label in items:
        parts = _split(item, inputs, str(Path(where, name)))
        samples += parts
        if name and len(parts) == 1:
            sample_names.append(name)
        else:
            sample_names += [f"{name}[{number}]" for number in range(len(parts))]
        words += [label] * len(parts)
    if not samples:
        raise UsageError("there are no samples.", where=where, hint=FORMS_HINT)
    if str(labels).endswith(".npy"):
        values = read_npy(labels)
    elif labels:
        values = _rows(Path(labels))
    elif any(words):
        values = words
    names = tuple(sample_names)
    dataset = Dataset(where, tuple(samples), names, classes=tuple(classes))
    if values is None:
        return dataset
    return _with_labels(dataset, values, str(labels) or where)


def _label_key(arrays: Mapping[str, Array], inputs: Sequence[IoTensor]) -> str:
    """Return the key of the labels among arrays by name, "" if there are none."""
    names = {tensor.name for tensor in inputs}
    for key in LABEL_KEYS:
        if key in arrays and key not in names:
            return key
    return ""


def _folder_items(
    root: Path, table: Path, inputs: Sequence[IoTensor]
) -> Iterator[Item]:
    """Yield the files of `table`, or else of the class folders, or of the folder."""
    if table.is_file():
        rows = _rows(table)
        if not (root / rows[0][0]).exists():
            del rows[0]  # the heading
    else:
        inside = _visible(root)
        folders = [path for path in inside if path.is_dir()]
        if 0 < len(folders) < len(inside):
            files = [path for path in inside if path not in folders]
            what = f"there are files ({files[0].name})"
            what += f" and subfolders ({folders[0].name})."
            raise UsageError(what, where=str(root), hint=FORMS_HINT)
        rows = []
        for folder in folders:
            for file in _visible(folder):
                rows.append([f"{folder.name}/{file.name}", folder.name])
        if not folders:
            rows = [[path.name] for path in inside]
    for name, *label in rows:
        yield name, _read_file(root / name, inputs), label


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _generator_items(text: str) -> Iterator[Item]:
    """Call FUNCTION of FILE.py:FUNCTION, which yields arrays, lists or mappings."""
    file, _, name = text.rpartition(":")
    try:
        items = list(runpy.run_path(file)[name]())
    except Exception as error:
        what = f"the generator fails: {type(error).__name__}: {error}."
        raise UsageError(what, where=text, hint="use FILE.py:FUNCTION.") from error
    for number, item in enumerate(items):
        listed = item if isinstance(item, list | tuple | Mapping) else [item]
        if not isinstance(listed, Mapping):
            listed = {f"input_{k + 1}": value for k, value in enumerate(listed)}
        arrays = {key: np.asarray(value) for key, value in listed.items()}
        yield str(number), arrays, ()


def _split(arrays: Tensors, inputs: Sequence[IoTensor], where: str) -> list[Tensors]:
    """Return the samples in `arrays`, with or without axes of samples and the batch."""
    by_name = arrays_by_name(arrays, inputs, where)
    columns: dict[str, list[Array]] = {}
    for tensor in inputs:
        columns[tensor.name] = _samples_of(by_name[tensor.name], tensor, where)
    if len({len(column) for column in columns.values()}) != 1:
        counts = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
        raise UsageError(
            f"the inputs have different numbers of samples: {counts}.", where=where
        )
    samples: list[Tensors] = []
    for row in zip(*columns.values(), strict=True):
        samples.append(dict(zip(columns, row, strict=True)))
    return samples


def _samples_of(array: Array, tensor: IoTensor, where: str) -> list[Array]:
    shape = tensor.type.shape
    for samples in (
        array[None],
        array[None, None],
        array,
        array[:, None] if array.ndim else array,
    ):
        if samples.shape[1:] == shape and array.dtype.kind in "iufb" and len(samples):
            return list(samples)
    raise UsageError(
        f"{tensor.name} is {array.dtype} {list(array.shape)}; the model needs "
        f"{list(shape)}, optionally with a leading axis for samples, as "
        f"{tensor.type.dtype.name} or as floats.",
        where=where,
    )


def _read_file(file: Path, inputs: Sequence[IoTensor]) -> Mapping[str, Array]:
    """Return the arrays of an .npz, .npy or raw file, which has the input's type."""
    if file.suffix == ".npz":
        return read_npz(file)
    if len(inputs) != 1:
        names = ", ".join(tensor.name for tensor in inputs)
        what = f"a single array cannot be a sample of {len(inputs)} inputs."
        raise UsageError(
            what, where=str(file), hint=f"use an .npz file with the arrays {names}."
        )
    (tensor,) = inputs
    if file.suffix == ".npy":
        return {tensor.name: read_npy(file)}
    if not file.exists():
        raise UsageError("there is no such file.", where=str(file))
    try:
        if file.is_file() and file.suffix != ".bin":
            raise ValueError(f"{file.suffix or 'such'} files are not read")
        check_regular_file(file)
        values = np.fromfile(file, tensor.type.dtype.np)
        return {tensor.name: values.reshape(-1, *tensor.type.shape)}
    except (OSError, ValueError) as error:
        hint = (
            "preprocess the data as for training, and save it with numpy.save(path, "
            "array)."
        )
        raise UsageError(
            f"this is not a sample: {error}.", where=str(file), hint=hint
        ) from error


def _rows(file: Path) -> list[list[str]]:
    try:
        rows = read_input_rows(file)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        what = f"the labels cannot be read: {error}."
        raise UsageError(what, where=str(file)) from error
    if not rows or len({len(row) for row in rows}) > 1:
        raise UsageError(
            "the lines have no labels, or different numbers of them.", where=str(file)
        )
    return rows


def _with_labels(
    dataset: Dataset, values: Array | Sequence[Sequence[str]], where: str
) -> Dataset:
    """Add labels; words are indices of the class names, by default alphabetical."""
    labels = np.atleast_1d(values)
    if len(labels) != len(dataset.samples):
        what = f"there are {len(labels)} labels for {len(dataset.samples)} samples."
        raise UsageError(what, where=where, hint="give one label for each sample.")
    if labels.dtype.kind != "U":
        return replace(dataset, labels=labels)
    classes = dataset.classes
    try:
        if not set(labels.flat) <= set(classes):
            numbers = labels.astype(np.float64)
            whole = np.all(numbers == np.rint(numbers))
            chosen = numbers.astype(np.int64) if whole else numbers
            return replace(dataset, labels=chosen)
    except ValueError as error:
        if classes:
            unknown = [str(word) for word in labels.flat if word not in classes]
            what = f"the label {unknown[0]!r} is not one of the classes."
            hint = f"the classes are {', '.join(classes)}."
            raise UsageError(what, where=where, hint=hint) from error
        classes = tuple(sorted(map(str, set(labels.flat))))
    indices = {name: index for index, name in enumerate(classes)}
    numbered = np.array([indices[word] for word in labels.flat])
    return replace(dataset, labels=numbered, classes=classes)


def convert_samples(
    samples: Iterable[Tensors],
    inputs: Sequence[IoTensor],
    stored: Sequence[IoTensor],
    where: str,
    rounding: HalfRounding = HalfRounding.AWAY_FROM_ZERO,
) -> tuple[tuple[dict[str, Array], ...], tuple[str, ...]]:
    """Return samples for `inputs` from a data set that was read for `stored` ones.

    The second item are warnings about their use of the inputs' ranges.
    """
    rows: list[dict[str, Array]] = []
    uses: dict[str, list[LevelUse | None]] = {tensor.name: [] for tensor in inputs}
    for sample in samples:
        row = {}
        for tensor, source in zip(inputs, stored, strict=True):
            values = sample[source.name]
            if tensor is not source and values.dtype.kind in "iu":
                stored_values, _ = convert_values(values, source, rounding, where)
                values = real_values(stored_values, source.type)
            row[tensor.name], use = convert_values(values, tensor, rounding, where)
            uses[tensor.name].append(use)
        rows.append(row)
    warnings: list[str] = []
    for tensor in inputs:
        warnings += describe_use(tensor, uses[tensor.name])
    return tuple(rows), tuple(warnings)


def real_values(values: Array, type_: TensorType) -> Array:
    """Return the real values of a tensor; floats and plain integers are unchanged."""
    quantization = type_.quantization
    if quantization is None or values.dtype.kind == "f":
        return values
    whole = stored_integers(values, type_).astype(np.float64)
    return (whole - quantization.zero_point) * quantization.scale


def stored_integers(values: Array, type_: TensorType) -> Array:
    """Return a runtime's integers as the module stores them: uint8 as int8."""
    if values.dtype == np.uint8 and type_.dtype == INT8:
        return values.astype(np.int16) - 128
    return values
