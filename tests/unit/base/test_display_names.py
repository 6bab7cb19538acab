"""Long names of converters are replaced for people; those of the author are kept."""

import pytest

from firmwright.base.display_names import display_name, format_shape

LONG = "functional_1_activation_Relu_functional_1_batch_normaliz_1"


@pytest.mark.parametrize(
    ("name", "shape", "shown"),
    [
        ("conv_2d_1", (1, 25, 5, 64), "conv_2d_1"),
        (LONG, (1, 25, 5, 64), "conv2d 2, 25x5x64"),
        (LONG, (3, 5, 64), "conv2d 2, 3x5x64"),
        (LONG, (1, 12), "conv2d 2, 12"),
        (LONG, (1,), "conv2d 2, 1"),
        (LONG, (), "conv2d 2, scalar"),
    ],
)
def test_a_long_name_gives_way_to_kind_number_and_shape(
    name: str, shape: tuple[int, ...], shown: str
) -> None:
    assert display_name(name, "conv2d", 2, shape) == shown


def test_open_sizes_are_question_marks() -> None:
    assert format_shape((1, -1, 3)) == "1x?x3"
