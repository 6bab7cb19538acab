"""Signed updates for the boot loader MCUboot: a board's slots, imgtool, and SMP."""

from firmwright.base.extensions import Extension

EXTENSION = Extension(
    name="mcuboot",
    board_tables=(f"{__name__}.slots",),
    export_commands=(f"{__name__}.commands",),
    boot_loaders=(f"{__name__}.commands",),
    command_line=(__name__,),
    code_options=("imgtool-args",),
)
