"""Suggestions for misspelled names."""

from __future__ import annotations

from firmwright.base.suggestions import suggest_name

TENSORS = [
    f"functional_1/block_{n}/activation/Relu;functional_1/block_{n}/BatchNorm"
    for n in range(9)
]


def test_the_closest_names_are_listed_first() -> None:
    names = [*TENSORS, "functional_1/dense/MatMul;functional_1/dense/BiasAdd"]
    assert suggest_name("dense/BiasAdd", names).startswith(
        f"one of {names[-1]}, functional_1/"
    )
    assert suggest_name("block_7/BatchNorm", names).startswith(f"one of {TENSORS[7]}, ")
    assert suggest_name("bise", ["bias", "x"]) == "bias"
    assert suggest_name("q", ["y", "x"]) == "one of x, y"
