"""Passes over graph functions, in the order in which they run."""

from __future__ import annotations

from firmwright.ir.module import Pass
from firmwright.passes.graph import (
    common_calls,
    dead_calls,
    fold_pad,
    fold_scale,
    fold_transpose,
    fuse_activations,
    fuse_expressions,
    layout,
)

PASSES: tuple[Pass, ...] = (
    common_calls.PASS,
    layout.PASS,
    fold_scale.PASS,
    fuse_activations.PASS,
    fuse_expressions.PASS,
    fold_transpose.PASS,
    fold_pad.PASS,
    dead_calls.PASS,
)
