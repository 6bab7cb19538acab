"""Kernels in one firmware are held against their layer's reference, value by value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from firmwright.boards import load_board
from firmwright.extensions.tune.kernel_comparison import (
    MISMATCH_COUNT_OUTPUT,
    KernelComparison,
    comparison_module,
    layer_module,
)
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import module_after
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.ir import tir
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.traversal import Node, rewrite_func
from firmwright.ops.schedule import LoweringCandidate
from firmwright.ops.tuning_records import DEFAULT_CHOICE
from firmwright.pipeline import Options, compile_model, configure_module, make_lowering

OPTIONS = Options(board="host")


def silent(kernel: LoweringCandidate) -> LoweringCandidate:
    """A kernel that writes nothing."""
    return replace(kernel, function=replace(kernel.function, body=tir.Seq(())))


def one_off(kernel: LoweringCandidate) -> LoweringCandidate:
    """A kernel that gets the lowest bit of everything wrong."""

    def rule(node: Node) -> Node | None:
        if isinstance(node, tir.BufferStore) and node.buffer.name == "y":
            flipped = tir.Binary("xor", node.value, tir.IntImm(1, node.buffer.dtype))
            return replace(node, value=flipped)
        return None

    return replace(kernel, function=rewrite_func(kernel.function, rule))


def layers(path: Path) -> list[tuple[OpCall, LoweringCandidate]]:
    """Two calls of the digits example, with the kernel that is right."""
    module = module_after(load_model(path), "reorder-calls", OPTIONS)
    found = []
    for index in (1, 2):
        call = make_op_call(module.entry.body[index], module)
        alone = configure_module(layer_module(call), load_board("host"), OPTIONS)
        found.append((call, make_lowering(alone, OPTIONS).kernel(0, DEFAULT_CHOICE)))
    return found


@pytest.mark.host_c
def test_wrong_and_unwritten_values_are_counted(digits_path: Path) -> None:
    (first, right), (second, other) = layers(digits_path)
    tried = [
        KernelComparison(first, right, (right, silent(right), one_off(right))),
        KernelComparison(second, other, (one_off(other), other)),
    ]
    compiled = compile_model(
        comparison_module(tried, load_board("host"), OPTIONS), OPTIONS
    )
    with open_session(compiled, in_process=True) as session:
        for sample in generate_samples(compiled.module.io.inputs, 4).samples:
            (outputs,) = session.run_all([sample])
            all_of_first, all_of_second = first.output.elements, second.output.elements
            expected = [0, all_of_first, all_of_first, all_of_second, 0]
            np.testing.assert_array_equal(outputs[MISMATCH_COUNT_OUTPUT], expected)
