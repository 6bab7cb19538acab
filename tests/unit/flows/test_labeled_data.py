"""Data sets are read in every form, or refused with the file and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.base.errors import UsageError
from firmwright.base.quant import Quantization
from firmwright.flows.samples.labeled_data import (
    Dataset,
    convert_samples,
    evenly_spaced,
    read_dataset,
    real_values,
)
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.module import IoTensor

IMAGE = IoTensor(
    "image", "image", TensorType((1, 2, 2), INT8, Quantization((0.5,), (-128,)))
)
REAL = IoTensor("x", "x", TensorType((1, 2, 2), FLOAT32))
VALUES = np.arange(12, dtype=np.int8).reshape(3, 1, 2, 2)
GENERATOR = """
import numpy
def samples():
    for k in range(3):
        yield [numpy.full((1, 2, 2), k, numpy.int8)]
def fails():
    yield {}["a"]
"""


def class_folders(root: Path) -> None:
    for name, values in zip(("b/1.npy", "a/2.npy", "a/3.npy"), VALUES, strict=True):
        (root / name).parent.mkdir(exist_ok=True)
        np.save(root / name, values[0])  # without the batch


def numbered_folders(root: Path) -> None:
    for label in (10, 9):
        (root / str(label)).mkdir()
        np.save(root / f"{label}/all.npy", VALUES[:2])


def table(root: Path) -> None:
    for number, values in enumerate(VALUES):
        values.tofile(root / f"{number}.bin")
    lines = ("file, label", "2.bin, 0", "0.bin, 1", "1.bin, 0")
    (root / "labels.csv").write_text("\n".join(lines), encoding="utf-8")


def table_of_values(root: Path) -> None:
    np.savez(root / "a.npz", image=VALUES[0])
    (root / "labels.csv").write_text("a.npz,0.5,1,2\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("write", "names", "labels", "classes"),
    [
        (class_folders, ["a/2.npy", "a/3.npy", "b/1.npy"], [0, 0, 1], ("a", "b")),
        (
            numbered_folders,
            ["10/all.npy[0]", "10/all.npy[1]", "9/all.npy[0]", "9/all.npy[1]"],
            [[10], [10], [9], [9]],
            (),
        ),
        (table, ["2.bin", "0.bin", "1.bin"], [[0], [1], [0]], ()),
        (table_of_values, ["a.npz"], [[0.5, 1, 2]], ()),
    ],
)
def test_folders(
    write: Callable[[Path], None],
    names: list[str],
    labels: list[object],
    classes: tuple[str, ...],
    tmp_path: Path,
) -> None:
    write(tmp_path)
    found = read_dataset(tmp_path, [IMAGE])
    assert list(found.names) == names
    assert np.asarray(found.labels).tolist() == labels
    assert found.classes == classes
    assert all(sample["image"].shape == (1, 2, 2) for sample in found.samples)


def test_a_folder_without_labels_gets_them_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number, values in enumerate(VALUES):
        np.save(tmp_path / f"data/{number}.npy", values)
    assert read_dataset(tmp_path / "data", [IMAGE]).labels is None
    np.save(tmp_path / "y.npy", np.array([2, 0, 1]))
    assert labels_of(read_dataset(tmp_path / "data", [IMAGE], tmp_path / "y.npy")) == [
        2,
        0,
        1,
    ]
    (tmp_path / "y.csv").write_text("1.npy,no\n0.npy,yes\n", encoding="utf-8")
    found = read_dataset(tmp_path / "data", [IMAGE], tmp_path / "y.csv", ["yes", "no"])
    assert (found.names, labels_of(found)) == (("1.npy", "0.npy"), [1, 0])
    (tmp_path / "y.txt").write_text("yes\nno\nyes\n", encoding="utf-8")
    found = read_dataset(tmp_path / "data", [IMAGE], tmp_path / "y.txt")
    assert (found.classes, labels_of(found)) == (("no", "yes"), [1, 0, 1])


def labels_of(data: Dataset) -> list[int]:
    return np.asarray(data.labels).ravel().tolist()


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": VALUES, "y": [0, 1, 2]},
        {"image": VALUES[:, 0], "labels": [0, 1, 2]},
        {"input_1": VALUES, "label": ["a", "b", "c"]},
    ],
)
def test_arrays(arrays: Mapping[str, object], tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", **arrays)
    taken = {name: np.asarray(values) for name, values in arrays.items()}
    for found in (
        read_dataset(tmp_path / "all.npz", [IMAGE]),
        read_dataset(taken, [IMAGE]),
    ):
        assert labels_of(found) == [0, 1, 2]
        assert found.names == ("[0]", "[1]", "[2]")
        np.testing.assert_array_equal([s["image"] for s in found.samples], VALUES)


def test_generator(tmp_path: Path) -> None:
    (tmp_path / "calibrate.py").write_text(GENERATOR, encoding="utf-8")
    found = read_dataset(f"{tmp_path}/calibrate.py:samples", [IMAGE])
    assert [int(sample["image"].max()) for sample in found.samples] == [0, 1, 2]
    with pytest.raises(UsageError, match="the generator fails: KeyError: 'a'"):
        read_dataset(f"{tmp_path}/calibrate.py:fails", [IMAGE])
    with pytest.raises(UsageError, match="the generator fails: KeyError: 'other'"):
        read_dataset(f"{tmp_path}/calibrate.py:other", [IMAGE])


def test_samples_are_chosen_evenly() -> None:
    found = read_dataset(
        {"x": np.repeat(VALUES, 4, axis=0), "y": np.arange(12)}, [IMAGE]
    )
    assert labels_of(found.spread(4)) == [0, 3, 6, 9]
    assert labels_of(found.spread(99)) == list(range(12))
    assert labels_of(found.spread(5)) == [0, 2, 4, 7, 9]
    assert labels_of(found.spread(11)) == list(range(11))


def test_exactly_as_many_samples_are_chosen_as_were_asked_for() -> None:
    for total in (1, 7, 57, 360):
        for count in range(1, total + 2):
            chosen = evenly_spaced(total, count)
            assert len(set(chosen)) == min(count, total)
            assert set(chosen) <= set(range(total))
    assert evenly_spaced(360, 60) == list(range(0, 360, 6))
    assert evenly_spaced(9, 0) == evenly_spaced(0, 9) == []


@pytest.mark.parametrize(
    ("arrays", "labels", "what"),
    [
        (
            {"x": VALUES[:, :, :, :1], "y": [0]},
            "",
            r"image is int8 \[3, 1, 2, 1\]; the model needs",
        ),
        ({"x": VALUES, "y": [0, 1]}, "", "there are 2 labels for 3 samples"),
        ({"x": VALUES, "z": VALUES}, "", "the keys are x, z"),
        (
            {"x": VALUES},
            "one,a\ntwo\n",
            "the lines have no labels, or different numbers of them",
        ),
        ({"x": VALUES}, "", "the labels cannot be read"),
        ({"x": VALUES.astype(str)}, "no", r"image is <U4 \[3, 1, 2, 2\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    arrays: dict[str, object], labels: str, what: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "all.npz", **arrays)
    file = tmp_path / "labels.txt" if "y" not in arrays else ""
    if labels:
        (tmp_path / "labels.txt").write_text(labels, encoding="utf-8")
    with pytest.raises(UsageError, match=what):
        read_dataset(tmp_path / "all.npz", [IMAGE], file)


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({}, r"there are no samples\. Try: give a folder"),
        (
            {"1.png": b"", "2.png": b""},
            r"1\.png: this is not a sample: \.png files are not read",
        ),
        (
            {"a/1.bin": bytes(4), "2.bin": bytes(4)},
            r"files \(2\.bin\) and subfolders \(a\)",
        ),
        ({"a/1.bin": bytes(5)}, r"1\.bin: this is not a sample: cannot reshape"),
        (
            {"labels.csv": b"1.bin,0\n2.bin,1\n", "1.bin": bytes(4)},
            r"2\.bin: there is no such file",
        ),
        ({"1.npy": b"no array"}, r"1\.npy: this is not a \.npy file of plain numbers"),
    ],
)
def test_folders_that_do_not_fit_are_refused(
    files: dict[str, bytes], what: str, tmp_path: Path
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=what):
        read_dataset(tmp_path, [IMAGE])


def test_a_label_that_is_not_a_class_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"'maybe' is not one of the classes\. .*are yes, no"
    ):
        read_dataset(
            {"x": VALUES, "y": np.array(["yes", "no", "maybe"])},
            [IMAGE],
            "",
            ["yes", "no"],
        )


def test_a_model_with_two_inputs_needs_both() -> None:
    second = IoTensor("second", "second", REAL.type)
    with pytest.raises(
        UsageError, match="different numbers of samples: image 3, second 2"
    ):
        read_dataset({"image": VALUES, "second": VALUES[:2]}, [IMAGE, second])


def test_real_values_are_quantized_and_stored_ones_dequantized() -> None:
    real = [{"image": np.array([[[-1, 0.24], [0.25, 900]]], np.float64)}]
    (sample,), _ = convert_samples(real, [IMAGE], [IMAGE], "here")
    assert sample["image"].dtype == np.int8
    assert sample["image"].ravel().tolist() == [-128, -128, -127, 127]
    (sample,), _ = convert_samples(real, [REAL], [IMAGE], "here")
    np.testing.assert_array_equal(sample["x"], np.float32(real[0]["image"]))
    stored = [{"image": VALUES[1]}]
    (sample,), _ = convert_samples(stored, [IMAGE], [IMAGE], "here")
    np.testing.assert_array_equal(sample["image"], VALUES[1])
    (sample,), _ = convert_samples(stored, [REAL], [IMAGE], "here")
    np.testing.assert_array_equal(sample["x"], (VALUES[1].astype(np.float32) + 128) / 2)
    wide = [{"image": VALUES[1].astype(np.int64)}]
    (sample,), _ = convert_samples(wide, [REAL], [IMAGE], "here")
    np.testing.assert_array_equal(sample["x"], (VALUES[1].astype(np.float32) + 128) / 2)
    pixels = [{"image": np.full((1, 2, 2), 200, np.uint8)}]
    with pytest.raises(UsageError, match="image is uint8 with values from 200 to 200"):
        convert_samples(pixels, [IMAGE], [IMAGE], "here")


def test_uint8_layers_are_those_stored_as_int8() -> None:
    assert real_values(np.array([0, 255], np.uint8), IMAGE.type).tolist() == [0, 127.5]
