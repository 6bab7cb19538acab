"""Suggestions for misspelled names."""

from __future__ import annotations

from firmwright.base.suggestions import suggest_name

TENSORS = [
    f"functional_1/block_{n}/activation/Relu;functional_1/block_{n}/BatchNorm"
    for n in range(9)
]


def test_a_part_of_a_fused_name_names_its_tensor() -> None:
    flat = "functional_1/flatten/Reshape"
    dense = "functional_1/dense/MatMul;functional_1/dense/BiasAdd"
    names = [*TENSORS, flat, dense]
    for part in ("functional_1/dense/BiasAdd", "dense/BiasAdd", "functional_1/dense"):
        assert suggest_name(part, names) == dense
    assert suggest_name("block_7/BatchNorm", names) == TENSORS[7]
    assert (
        suggest_name("functional_1/block_3/activation/Relu;gone", names) == TENSORS[3]
    )
    assert suggest_name("block", names).startswith(
        f"one of {TENSORS[0]}, {TENSORS[1]}, "
    )


def test_otherwise_the_closest_names_are_listed_first() -> None:
    assert suggest_name("lock_7/BatchNorm", TENSORS).startswith(
        f"one of {TENSORS[7]}, "
    )
    assert suggest_name("bise", ["bias", "x"]) == "bias"
    assert suggest_name("q", ["y", "x"]) == "one of x, y"
