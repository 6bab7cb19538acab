"""Portable C99, for a core of which nothing is known."""

from __future__ import annotations

from firmwright.targets.target_kind import TargetKind

KIND = TargetKind("c", "portable C99 for any core")
