"""Sections and symbols of real ELF files of both classes."""

import subprocess
from pathlib import Path

import pytest

from firmwright.base.errors import ToolFailedError
from firmwright.build.elf_reader import read_sections_and_symbols

SOURCE = """
const char constant[100] = {1};
int initialised[10] = {1};
int zeros[50];
int function(void) { return initialised[0] + zeros[0] + constant[0]; }
"""


@pytest.mark.parametrize(
    "compiler",
    [
        pytest.param("cc", marks=pytest.mark.host_c),
        pytest.param("arm-none-eabi-gcc", marks=pytest.mark.qemu),
    ],
)
def test_symbols_are_found_with_their_kinds_and_sizes(
    compiler: str, tmp_path: Path
) -> None:
    (tmp_path / "a.c").write_text(SOURCE)
    command = [compiler, "-fno-common", "-c", "a.c", "-o", "a.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    _, symbols = read_sections_and_symbols(tmp_path / "a.o")
    kinds = {s.name: (s.kind, s.size_bytes) for s in symbols}
    assert kinds["constant"] == ("rodata", 100)
    assert kinds["initialised"] == ("data", 40)
    assert kinds["zeros"] == ("bss", 200)
    assert kinds["function"][0] == "text"


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", b"\x7fELF\x02\x02", b"MZ" + bytes(64)]
)
def test_a_file_other_than_little_endian_elf_is_rejected(
    data: bytes, tmp_path: Path
) -> None:
    (tmp_path / "a.elf").write_bytes(data)
    with pytest.raises(ToolFailedError):
        read_sections_and_symbols(tmp_path / "a.elf")
