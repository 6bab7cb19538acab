"""A small end-to-end test: a text module is compiled to C and run on the host.

It takes a few seconds: run it first after a change, and read it first for an overview.
"""

import numpy as np
import pytest

from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.ir.printer import parse_module

TEXT = """firmwright ir 2
module @tiny

const @half = i8[4] [8, 16, 24, 32]

graph @main(%x: i8[2,4]) -> (%y) {
  %c = const @half: i8[4]
  %y: i8[2,4] = @shifted(%x, %c)
}

func @shifted(in x: i8[2,4], in c: i8[4], out y: i8[2,4]) {
  for row in 0..2 {
    for i in 0..4 {
      y[row, i] = max(x[row, i], c[i])
    }
  }
}
"""


@pytest.mark.host_c
def test_text_model_compiles_and_computes():
    model = Model(parse_module(TEXT, "tiny.fwir"))
    compiled = compile_for(model)
    x = np.array([[0, 20, 30, -40], [100, -100, 24, 33]], np.int8)
    with open_session(compiled) as session:
        y = session.run(x)
    assert y.tolist() == np.maximum(x, [8, 16, 24, 32]).tolist()
