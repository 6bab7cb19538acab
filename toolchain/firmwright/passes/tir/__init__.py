"""Passes over PrimFuncs."""

from __future__ import annotations

from firmwright.ir.module import Pass
from firmwright.passes.tir import (
    assign_constant_memory,
    async_device_calls,
    dce,
    dedupe_functions,
    externalize_constants,
    merge_constants,
    narrow_index,
    simplify,
    stage_constants,
    unroll,
)

BEFORE_PLANNING: tuple[Pass, ...] = (
    unroll.PASS,
    simplify.PASS,
    narrow_index.PASS,
    dce.PASS,
    merge_constants.PASS,
    assign_constant_memory.PASS,
    stage_constants.PASS,
    async_device_calls.PASS,
)
AFTER_PLANNING: tuple[Pass, ...] = (dedupe_functions.PASS,)
UNLINKED: tuple[Pass, ...] = (externalize_constants.PASS,)
CLEAN_UP: tuple[Pass, ...] = (Pass("final-dce", dce.run),)
