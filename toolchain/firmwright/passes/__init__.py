"""Passes `IRModule -> IRModule`, one per file.

A pass shares what it does not change and returns the identical module if it changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from firmwright.ir.module import Pass
from firmwright.passes import graph, tir

BY_NAME: Mapping[str, Pass] = {
    step.name: step
    for step in (
        *graph.PASSES,
        *tir.BEFORE_PLANNING,
        *tir.AFTER_PLANNING,
        *tir.UNLINKED,
        *tir.CLEAN_UP,
    )
}
