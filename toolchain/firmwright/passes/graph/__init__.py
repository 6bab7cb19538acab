"""Passes over graph functions, in the order in which they run."""

from __future__ import annotations

from firmwright.ir.module import Pass
from firmwright.passes.graph import dead_calls, fold_pad

PASSES: tuple[Pass, ...] = (fold_pad.PASS, dead_calls.PASS)
