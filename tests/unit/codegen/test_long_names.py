"""Symbols of a model with a long name: no constant has the name of a kernel."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from firmwright.base.resources import digits_dir
from firmwright.pipeline import Options, compile_model, load_module


@pytest.mark.parametrize("length", [37, 47])
def test_constants_and_kernels_have_distinct_names(length: int) -> None:
    name = "m" * length
    module = replace(load_module(digits_dir() / "digits.tflite"), name=name)
    tree = compile_model(module, Options(target="c")).tree
    text = "".join(
        str(tree.files[f"model/{name}{end}"]) for end in (".c", ".h", "_weights.h")
    )
    functions = set(re.findall(rf"\b({name}\w*)\(", text))
    arrays = re.findall(rf"static const \w+ ({name}\w*)\[\d", text)
    assert arrays
    assert not functions.intersection(arrays)
    assert len(set(arrays)) == len(arrays)
