"""Passes over PrimFuncs, and their places around memory planning."""

from __future__ import annotations

from firmwright.ir.module import Pass
from firmwright.passes.tir import (
    dead_code,
    hoist_params,
    load_constants,
    merge_constants,
    merge_functions,
    narrow_index,
    overlap_devices,
    place_constants,
    simplify,
    unroll,
)

BEFORE_PLANNING: tuple[Pass, ...] = (
    unroll.PASS,
    simplify.PASS,
    narrow_index.PASS,
    dead_code.PASS,
    merge_constants.PASS,
    place_constants.PASS,
    load_constants.PASS,
    overlap_devices.PASS,
)
AFTER_PLANNING: tuple[Pass, ...] = (merge_functions.PASS,)
UNLINKED: tuple[Pass, ...] = (hoist_params.PASS,)
CLEAN_UP: tuple[Pass, ...] = (Pass("clean-up", dead_code.run),)
