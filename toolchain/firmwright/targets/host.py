"""The machine that compiles: portable C99, run here."""

from __future__ import annotations

from firmwright.targets.target_kind import TargetKind

KIND = TargetKind("host", "portable C99 for the machine that compiles")
