"""The emulator's command line, and the wait for its GDB stub."""

import socket
from pathlib import Path

from firmwright.artifacts import PreloadedMemory
from firmwright.device import qemu_process
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


def test_a_socket_that_exists_does_not_listen_yet(tmp_path: Path) -> None:
    path = tmp_path / "stub"
    with socket.socket(socket.AF_UNIX) as server:
        assert not qemu_process._is_listening(path)
        server.bind(str(path))
        assert path.exists()
        assert qemu_process._is_listening(path) != Path("/proc/net/unix").exists()
        server.listen()
        assert qemu_process._is_listening(path)
