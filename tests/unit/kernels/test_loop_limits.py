"""The limit of a loop, in a register or in memory."""

from __future__ import annotations

import pytest

from firmwright.base.dtypes import INT32, UINT32
from firmwright.kernels.assembly import ProgramForms, body_text, macro_definitions
from firmwright.kernels.isa.dsp import smlad
from firmwright.kernels.isa.thumb2 import ldr
from firmwright.kernels.program import Program
from firmwright.kernels.program_builder import ProgramBuilder


def loop_of(words: int) -> Program:
    """Return a loop that holds `words` words of weights at a time."""
    k = ProgramBuilder("held")
    w, x = k.pointer("w", UINT32), k.pointer("x", UINT32)
    sums = k.registers("c", words, INT32)
    with k.loop("steps", 1) as i:
        column = k(ldr, x[i])
        weights = [k(ldr, w[i * words + place]) for place in range(words)]
        for weight, total in zip(weights, sums, strict=True):
            k(smlad, weight, column, total, into=total)
    return k.build()


@pytest.mark.parametrize(("words", "is_in_memory"), [(2, False), (3, True)])
def test_a_limit_without_a_register_is_a_variable_in_memory(
    words: int, is_in_memory: bool
) -> None:
    forms = ProgramForms(loop_of(words), None, "Weights that are held.")
    body, macros = body_text(forms), "\n".join(macro_definitions(forms))
    assert ('[left] "+m"(left)' in macros) == is_in_memory
    assert ("\nint32_t left = steps;" in f"\n{body}") == is_in_memory
    assert "left" in body
