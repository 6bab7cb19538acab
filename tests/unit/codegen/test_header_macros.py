"""Macros of the header are distinct, whatever the names of inputs are."""

from __future__ import annotations

import re

import pytest

from firmwright.flows.model.compilation import compile_for
from firmwright.graph_builder import GraphBuilder


@pytest.mark.parametrize("name", ["e", "E", "ok", "operators", "more"])
def test_no_input_has_the_macros_of_errors(name: str) -> None:
    g = GraphBuilder("m")
    x = g.input(name, (1, 8), "float32")
    compiled = compile_for(g.model(g.call("relu", x)), target="c")
    header = str(compiled.tree.files["model/m.h"])
    macros = re.findall(r"^#define ([A-Z_0-9]+)", header, re.MULTILINE)
    assert "M_E_SIZE" in macros
    assert len(set(macros)) == len(macros)
