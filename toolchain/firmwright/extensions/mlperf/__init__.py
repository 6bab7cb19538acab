"""MLPerf Tiny: its firmware, a client of its protocol, and the verb `mlperf`."""

from firmwright.base.extensions import Extension

EXTENSION = Extension(
    name="mlperf", command_line=(__name__,), firmware_mains=(f"{__name__}.benchmark",)
)
