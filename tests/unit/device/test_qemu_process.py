"""The emulator's command line."""

from pathlib import Path

from firmwright.artifacts import PreloadedMemory
from firmwright.device.qemu_process import QemuCommand


def test_files_are_put_into_memory_by_the_generic_loader() -> None:
    loads = (
        PreloadedMemory(Path("/tmp/a,b.bin"), 0x2100_0000),
        PreloadedMemory(Path("c.bin"), 0x10),
    )
    words = QemuCommand("mps2-an386", Path("fw.elf"), loads=loads).arguments()
    devices = [words[i + 1] for i, word in enumerate(words) if word == "-device"]
    assert devices == [
        "loader,file=/tmp/a,,b.bin,addr=0x21000000,force-raw=on",
        f"loader,file={Path.cwd()}/c.bin,addr=0x10,force-raw=on",
    ]
    assert "-device" not in QemuCommand("mps2-an386", Path("fw.elf")).arguments()
