"""Portable C99 for an unspecified core."""

from firmwright.targets.target_kind import TargetKind

KIND = TargetKind("c", "portable C99 for any core")
