"""Kernels in one firmware are held against their layer's reference, value by value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from firmwright.boards import load_board
from firmwright.flows.compiling import module_after
from firmwright.flows.inputs import generated
from firmwright.flows.kernels import OUTPUT, KernelLayer, checked_module, layer_module
from firmwright.flows.model import load_model
from firmwright.flows.sessions import open_session
from firmwright.ir.graph.evaluate import describe
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.nodes import Binary, BufferStore, IntImm, Seq
from firmwright.ir.tir.rewrite import rewrite_func
from firmwright.ir.tir.schedule import Alternative
from firmwright.ir.tir.walk import Node
from firmwright.pipeline import Options, compile_model, configured, lowering_of

OPTIONS = Options(board="host")


def silent(kernel: Alternative) -> Alternative:
    """A kernel that writes nothing."""
    return replace(kernel, function=replace(kernel.function, body=Seq(())))


def one_off(kernel: Alternative) -> Alternative:
    """A kernel that gets the lowest bit of everything wrong."""

    def rule(node: Node) -> Node | None:
        if isinstance(node, BufferStore) and node.buffer.name == "y":
            flipped = Binary("xor", node.value, IntImm(1, node.buffer.dtype))
            return replace(node, value=flipped)
        return None

    return replace(kernel, function=rewrite_func(kernel.function, rule))


def layers(path: Path) -> list[tuple[OpCall, Alternative]]:
    """Two calls of the digits example, with the kernel that is right."""
    module = module_after(load_model(path), "order", OPTIONS)
    found = []
    for index in (1, 2):
        call = describe(module.entry.body[index], module)
        alone = configured(layer_module(call), load_board("host"), OPTIONS)
        found.append((call, lowering_of(alone, OPTIONS).kernel(0, "default", {})))
    return found


@pytest.mark.host_c
def test_every_value_that_is_wrong_or_not_written_is_counted(digits_path: Path) -> None:
    (first, right), (second, other) = layers(digits_path)
    tried = [
        KernelLayer(first, right, (right, silent(right), one_off(right))),
        KernelLayer(second, other, (one_off(other), other)),
    ]
    compiled = compile_model(checked_module(tried, load_board("host"), OPTIONS), OPTIONS)
    with open_session(compiled, in_process=True) as session:
        for sample in generated(compiled.module.io.inputs, 4).samples:
            (outputs,) = session.run_all([sample])
            all_of_first, all_of_second = first.output.elements, second.output.elements
            expected = [0, all_of_first, all_of_first, all_of_second, 0]
            np.testing.assert_array_equal(outputs[OUTPUT], expected)
