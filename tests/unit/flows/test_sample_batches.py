"""Arrays by name or position become samples; errors for others list both."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.array_files import read_npz
from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.base.errors import UsageError
from firmwright.base.quant import Quantization
from firmwright.flows.samples.sample_batches import (
    SampleBatch,
    generate_samples,
    make_batch,
    stack_outputs,
    write_npz,
)
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.module import IoTensor

IMAGE = IoTensor(
    "image", "image", TensorType((1, 2), INT8, Quantization((0.5,), (-3,)))
)
SOUND = IoTensor("sound", "sound", TensorType((3,), FLOAT32))
BOTH = (IMAGE, SOUND)
ARRAYS = {
    "image": np.array([[1, 2]], np.int8),
    "sound": np.array([0.5, 1.5, 2.5], np.float32),
}


def test_arrays_by_name_are_one_sample():
    batch = make_batch(ARRAYS, BOTH, "in.npz")
    assert not batch.stacked
    assert list(batch.samples[0]) == ["image", "sound"]
    assert batch.samples[0]["sound"].tolist() == [0.5, 1.5, 2.5]


def test_arrays_by_position_count_from_one():
    by_position = {"input_1": ARRAYS["image"], "input_2": ARRAYS["sound"]}
    batch = make_batch(by_position, BOTH, "in.npz")
    assert batch.samples[0]["image"].tolist() == [[1, 2]]


def test_names_take_precedence_over_positions():
    first = IoTensor("input_2", "a", TensorType((1,), INT8))
    second = IoTensor("input_1", "b", TensorType((1,), INT8))
    arrays = {"input_1": np.array([1], np.int8), "input_2": np.array([2], np.int8)}
    sample = make_batch(arrays, (first, second), "in.npz").samples[0]
    assert {name: int(value[0]) for name, value in sample.items()} == {
        "input_2": 2,
        "input_1": 1,
    }


def test_additional_leading_axis_means_many_samples():
    many = {name: np.stack([array] * 3) for name, array in ARRAYS.items()}
    many["image"][2] = 7
    batch = make_batch(many, BOTH, "in.npz")
    assert batch.stacked
    assert len(batch.samples) == 3
    assert batch.samples[2]["image"].tolist() == [[7, 7]]


@pytest.mark.parametrize(
    "keys", [["image"], ["image", "input_2"], ["input_0", "input_1"], []]
)
def test_unknown_keys_error_lists_names_and_positions(keys):
    arrays = dict.fromkeys(keys, ARRAYS["image"])
    with pytest.raises(UsageError) as raised:
        make_batch(arrays, BOTH, "in.npz")
    assert str(raised.value) == (
        f"in.npz: the keys are {', '.join(sorted(keys)) or 'none'}. Try: use all tensor names "
        "(image, sound) or all positions (input_1, input_2)."
    )


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2,), np.int8),
        np.zeros((1, 1, 1, 2), np.int8),
        np.zeros((1, 3), np.int8),
    ],
)
def test_shapes_are_never_converted(array):
    with pytest.raises(
        UsageError,
        match=r"the model needs int8 \[1, 2\], or \[N, 1, 2\] or \[N, 2\] for N",
    ):
        make_batch({"image": array}, [IMAGE], "in.npz")


def test_samples_may_follow_each_other_on_the_batch_axis():
    arrays = {"image": np.arange(6, dtype=np.int8).reshape(3, 2)}
    batch = make_batch(arrays, [IMAGE], "in.npz")
    assert (len(batch.samples), batch.on_batch_axis) == (3, True)
    assert batch.samples[2]["image"].tolist() == [[4, 5]]
    both = {**arrays, "sound": np.zeros((3, 3), np.float32)}
    assert len(make_batch(both, BOTH, "in.npz").samples) == 3


def test_a_wrong_type_is_named_with_the_conversion():
    with pytest.raises(UsageError, match=r"Try: convert the array to float32\."):
        make_batch({"sound": np.zeros((4, 3), np.bool_)}, [SOUND], "in.npz")


def test_different_sample_counts_are_an_error():
    arrays = {
        "image": np.zeros((2, 1, 2), np.int8),
        "sound": np.zeros((3, 3), np.float32),
    }
    with pytest.raises(UsageError, match="image 2, sound 3"):
        make_batch(arrays, BOTH, "in.npz")
    with pytest.raises(UsageError, match="image no, sound 3"):
        make_batch({**arrays, "image": ARRAYS["image"]}, BOTH, "in.npz")


def test_zero_samples_are_an_error():
    with pytest.raises(UsageError, match="no sample"):
        make_batch({"image": np.zeros((0, 1, 2), np.int8)}, [IMAGE], "in.npz")
    with pytest.raises(UsageError, match="0 is not a valid number"):
        generate_samples([IMAGE], 0)


def test_generated_samples_start_with_the_zero_point():
    batch = generate_samples(BOTH, 4)
    assert batch.samples[0]["image"].tolist() == [[-3, -3]]
    assert batch.samples[1]["image"].tolist() == [[127, 127]]
    assert len(batch.samples) == 4


def test_npz_round_trip_is_ordered_and_deterministic(tmp_path: Path):
    arrays = {
        "z": np.arange(6, dtype=np.int16).reshape(2, 3),
        "a/b": np.array(1.5, np.float32),
    }
    write_npz(tmp_path / "one.npz", arrays)
    write_npz(tmp_path / "two.npz", arrays)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    found = read_npz(tmp_path / "one.npz")
    assert list(found) == ["z", "a/b"]
    assert found["z"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["a/b"].shape == ()


def test_invalid_npz_is_a_usage_error(tmp_path: Path):
    text = tmp_path / "text.npz"
    text.write_text("not a zip")
    single = tmp_path / "single.npy"
    np.save(single, np.zeros(3))
    objects = tmp_path / "objects.npz"
    np.savez(objects, x=np.array([{}], dtype=object))
    cut = tmp_path / "cut.npz"
    np.savez(cut, x=np.zeros(100))
    cut.write_bytes(cut.read_bytes()[:200])
    for file in (text, single, objects, cut):
        with pytest.raises(UsageError, match=r"not an \.npz file of plain arrays"):
            read_npz(file)
    with pytest.raises(UsageError, match="No such file"):
        read_npz(tmp_path / "absent.npz")


def test_outputs_get_a_leading_axis_only_if_the_inputs_had_one():
    outputs = [{"y": np.zeros((1, 2))}, {"y": np.ones((1, 2))}]
    many = SampleBatch(({}, {}))
    assert stack_outputs(outputs, many)["y"].shape == (2, 1, 2)
    assert stack_outputs(outputs, replace(many, on_batch_axis=True))["y"].shape == (
        2,
        2,
    )
    assert stack_outputs(outputs[:1], SampleBatch(({},), stacked=False))["y"].shape == (
        1,
        2,
    )
