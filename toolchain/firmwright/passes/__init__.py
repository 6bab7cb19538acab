"""Passes `IRModule -> IRModule`, one a file, by name.

Every pass leaves what it does not change the same object, and returns the identical module if it
changes nothing. Where they stand in a compilation is the pipeline's business.
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
