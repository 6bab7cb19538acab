from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.errors import UsageError
from firmwright.oracle.random_samples import SampleInput, make_sample, make_samples

INT8 = SampleInput("image", (2, 3), np.dtype(np.int8), zero_point=-7)
FLOAT = SampleInput("sound", (4,), np.dtype(np.float32))
PINNED_INT8 = [[31, 83, 123], [0, 124, 110]]
PINNED_FLOAT = [-0.2073123, -1.3543429, -0.7782571, -0.5442117]


def test_the_first_three_samples_are_zero_points_maxima_and_minima() -> None:
    values = [
        int(np.unique(tensors["image"])[0]) for tensors in make_samples([INT8], 3)
    ]
    assert values == [-7, 127, -128]
    floats = [
        float(np.unique(tensors["sound"])[0]) for tensors in make_samples([FLOAT], 3)
    ]
    assert floats == [0.0, 1.0, -1.0]


def test_a_drawn_sample_follows_the_definition() -> None:
    rng = np.random.Generator(np.random.PCG64([5, 3]))
    image = rng.integers(-128, 127, (2, 3), np.int8, endpoint=True)
    sound = rng.standard_normal((4,)).astype(np.float32)
    drawn = make_sample([INT8, FLOAT], 3, seed=5)
    np.testing.assert_array_equal(drawn["image"], image)
    np.testing.assert_array_equal(drawn["sound"], sound)


def test_drawn_samples_keep_their_values_across_releases() -> None:
    assert make_sample([INT8], 3)["image"].tolist() == PINNED_INT8
    assert make_sample([FLOAT], 4, seed=1)["sound"].tolist() == pytest.approx(
        PINNED_FLOAT, rel=1e-6
    )


def test_a_sample_does_not_depend_on_the_number_of_samples() -> None:
    last = list(make_samples([INT8, FLOAT], 6, seed=2))[5]
    alone = make_sample([INT8, FLOAT], 5, seed=2)
    assert all(np.array_equal(last[name], alone[name]) for name in alone)


def test_seeds_and_indices_give_different_samples() -> None:
    wide = SampleInput("x", (64,), np.dtype(np.int16))
    drawn = {
        make_sample([wide], k, seed)["x"].tobytes() for k in (3, 4) for seed in (0, 1)
    }
    assert len(drawn) == 4


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64])
def test_integers_reach_both_ends_of_their_range(dtype: type[np.integer]) -> None:
    spec = SampleInput("x", (1,), np.dtype(dtype))
    info = np.iinfo(dtype)
    assert make_sample([spec], 1)["x"].tolist() == [info.max]
    assert make_sample([spec], 2)["x"].tolist() == [info.min]
    narrow = SampleInput("x", (4096,), np.dtype(dtype), value_range=(3, 9))
    drawn = make_sample([narrow], 3)["x"]
    assert (drawn.min(), drawn.max(), drawn.dtype) == (3, 9, np.dtype(dtype))


def test_booleans_are_drawn_as_booleans() -> None:
    spec = SampleInput("mask", (256,), np.dtype(np.bool_))
    drawn = make_sample([spec], 3)["mask"]
    assert drawn.dtype == np.bool_
    assert 0 < int(drawn.sum()) < 256


def test_a_type_without_samples_is_an_error() -> None:
    with pytest.raises(UsageError) as caught:
        make_sample([SampleInput("text", (1,), np.dtype("U3"))], 0 + 1)
    assert "input 'text' has type <U3, for which no samples are defined." in str(
        caught.value
    )


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UsageError):
        make_sample([INT8], 3, seed=-1)
