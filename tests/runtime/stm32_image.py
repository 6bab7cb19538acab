"""An image without a program, for tests of tools that write images to a board."""

from pathlib import Path

from firmwright.artifacts import Image, ImageSizes, StackUsage

HEX = ":020000040800F2\n:04000000DEADBEEFC4\n:00000001FF\n"


def stm32_image(folder: Path) -> Image:
    """Write and return an image of four bytes at the beginning of an STM32's flash."""
    (folder / "fw.hex").write_text(HEX)
    (folder / "fw.bin").write_bytes(bytes.fromhex("deadbeef"))
    nothing = StackUsage("", 0, ())
    return Image(
        board="any",
        variant="release",
        directory=folder,
        elf=folder / "fw.elf",
        bin=folder / "fw.bin",
        hex=folder / "fw.hex",
        library=None,
        sizes=ImageSizes((), (), ()),
        model_flash_bytes=0,
        model_ram_bytes=0,
        stack=nothing,
        firmware_stack=nothing,
    )
