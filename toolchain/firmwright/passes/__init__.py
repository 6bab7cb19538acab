"""Passes `IRModule -> IRModule`, one per file; they share unchanged nodes, or the whole module."""

from collections.abc import Mapping

from firmwright.ir.module import Pass
from firmwright.passes.graph import (
    cse,
    depthwise_to_conv2d,
    fold_constant_channels,
    fold_pad,
    fold_scale,
    fold_transpose,
    fuse_activations,
    fuse_expressions,
    sink_transposes,
)
from firmwright.passes.graph import dce as graph_dce
from firmwright.passes.tir import (
    assign_constant_memory,
    async_device_calls,
    dedupe_functions,
    externalize_constants,
    merge_constants,
    narrow_index,
    simplify,
    stage_constants,
    unroll,
)
from firmwright.passes.tir import dce as tir_dce

_MODULES = (
    cse, sink_transposes, fold_scale, fuse_activations, fuse_expressions, fold_transpose, fold_pad,
    depthwise_to_conv2d, fold_constant_channels, graph_dce, unroll, simplify, narrow_index, tir_dce,
    merge_constants, assign_constant_memory, stage_constants, async_device_calls, dedupe_functions,
    externalize_constants,
)  # fmt: skip
BY_NAME: Mapping[str, Pass] = {module.PASS.name: module.PASS for module in _MODULES}
"""The passes that need only the module; `ir/pass_catalog.txt` gives their order."""
