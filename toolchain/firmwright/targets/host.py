"""The machine that runs the compiler, with portable C99."""

from firmwright.targets.target_kind import TargetKind

KIND = TargetKind("host", "portable C99 for the machine that compiles")
