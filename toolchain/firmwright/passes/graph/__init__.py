"""Passes over graph functions."""

from __future__ import annotations

from firmwright.ir.module import Pass
from firmwright.passes.graph import (
    cse,
    dce,
    fold_pad,
    fold_scale,
    fold_transpose,
    fuse_activations,
    fuse_expressions,
    sink_transposes,
)

PASSES: tuple[Pass, ...] = (
    cse.PASS,
    sink_transposes.PASS,
    fold_scale.PASS,
    fuse_activations.PASS,
    fuse_expressions.PASS,
    fold_transpose.PASS,
    fold_pad.PASS,
    dce.PASS,
)
