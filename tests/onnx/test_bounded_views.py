"""Splits and concatenations of models with an axis of several sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.base.dtypes import INT64
from firmwright.base.errors import ModelError
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.verify.access_checking import open_checked_session
from firmwright.flows.verify.verification import verify
from firmwright.ir import tir
from firmwright.ir.bounded_axis import BoundedAxis
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import prim_calls, rewrite_func
from firmwright.ir.tir.verify import verify_module
from firmwright.ops.registry import op_table
from firmwright.pipeline import Compilation
from firmwright.schedules.registry import INTRINSICS
from tests.onnx.onnx_models import Net, quantized_tensor
from tests.onnx.test_bounded_axes import CORTEX_M4, Shapes, load


def bands_net(*, is_quantized: bool) -> bytes:
    """Combine the three rows of a tensor; the axis is the innermost one."""
    net = Net(7)
    x = net.input("x", (1, 3, "time"))
    if is_quantized:
        x = quantized_tensor(net, x, 0.05, False)
    a, b, c = net.node("Split", x, net.weight(np.ones(3, np.int64)), outputs=3, axis=1)
    if is_quantized:
        a, b, c = (quantized_tensor(net, part, 0.05, False) for part in (a, b, c))
    rows = [net.node("Add", a, b), net.node("Tanh", net.node("Mul", b, c))]
    if is_quantized:
        rows = [quantized_tensor(net, row, 0.1, False) for row in rows]
    joined = net.node("Concat", *rows, axis=1)
    if is_quantized:
        joined = quantized_tensor(net, joined, 0.1, False)
    return net.model(net.node("Relu", joined))


def compile_bands(folder: Path, least: int, *, is_quantized: bool) -> Compilation:
    data = bands_net(is_quantized=is_quantized)
    shapes: Shapes = {"x": (1, 3, "time")}
    model = load(folder, data, shapes, BoundedAxis("time", least, 5))
    return compile_for(model, target=CORTEX_M4)


@pytest.fixture(scope="module")
def bands(tmp_path_factory: pytest.TempPathFactory) -> Compilation:
    return compile_bands(tmp_path_factory.mktemp("bands"), 1, is_quantized=False)


def operators(module: IRModule) -> set[str]:
    """Return the operators that have kernels."""
    calls = prim_calls(module.aot_main.body)
    return {str(module.kernel(call.callee).attrs.get("op")) for call in calls}


def test_parts_along_other_axes_are_views_at_offsets_that_the_size_determines(
    bands: Compilation,
) -> None:
    module = bands.module
    assert not operators(module) & {"split", "concatenation", "strided_slice"}
    assert verify(bands, samples=5, open_with=open_checked_session).exact
    views: list[tir.AccessPtr] = []

    def farther(node: Any) -> Any:
        if isinstance(node, tir.DeclBuffer) and node.source.buffer.name == "x":
            views.append(node.source)
            further = tir.Binary("mul", node.source.offset, tir.IntImm(2, INT64))
            return replace(node, source=replace(node.source, offset=further))
        return None

    main = rewrite_func(module.aot_main, farther)
    assert len(views) == 3
    with pytest.raises(
        ModelError, match=r"the offset is in 4\.\.20, outside of 0\.\.10"
    ):
        verify_module(module.with_function(main), op_table(), INTRINSICS)


def test_the_largest_size_alone_has_the_kernel_that_is_faster_for_it(
    bands: Compilation,
) -> None:
    """Five steps at once are faster; 5 is a multiple of no number of rows."""
    assert "if (n_time == 5) {" in bands.tree.encoded()["model/net.c"].decode()


def test_parts_without_aligned_offsets_are_copies(tmp_path: Path) -> None:
    compiled = compile_bands(tmp_path, 3, is_quantized=True)
    assert operators(compiled.module) & {"split", "strided_slice"}
    assert verify(compiled, samples=3, open_with=open_checked_session).exact
