"""Measured search: `tune` for kernels, and the partition method `collage` for backends.

Both run code on a board or emulator and write logs.
"""

from firmwright.base.extensions import Extension

EXTENSION = Extension(
    name="tune",
    command_line=(__name__,),
    partition_methods=(f"{__name__}.partition_search",),
)
