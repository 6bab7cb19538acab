"""Ways to firmware besides a UART: memory, other emulators, what packages offer."""

import re
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from firmwright.artifacts import SourceTree
from firmwright.base.errors import DeviceError, ToolMissingError, UsageError
from firmwright.boards import Board, load_board
from firmwright.boards.scaffold import create_board
from firmwright.build import build_project, write_project
from firmwright.device import Session, open_transport, transport_plugins
from firmwright.device.emulators import fvp_command, renode_command
from firmwright.device.transport_plugins import TransportRequest

ROOT = Path(__file__).parents[3]
X = "serving_default_x:0"


def variant_of(name: str, folder: Path, pattern: str, text: str) -> Board:
    """The board `name` with other lines in its file."""
    file = create_board("other", name, folder)
    changed, count = re.subn(pattern, text, file.read_text(), flags=re.S)
    assert count == 1
    file.write_text(changed)
    return load_board("other", (folder,))


@pytest.mark.qemu
def test_the_link_goes_through_memory(tmp_path: Path) -> None:
    console = '\n[console]\ndriver = "rtt"\n'
    board = variant_of("mps2-an386", tmp_path, r"\n\[counter\]", f"{console}\n[counter]")
    app = (ROOT / "tests/runtime/tiny_app.c").read_text()
    write_project(board, SourceTree({"firmware/fwr_app.c": app}), tmp_path / "project")
    image = build_project(tmp_path / "project")
    values = (np.arange(600) % 60).astype(np.int8)
    with Session(open_transport(board, image.elf)) as session:
        assert session.info.board == "other"
        outputs = session.run({X: values})
        assert next(iter(outputs.values())).tolist() == (2 * values).tolist()
        assert session.execute(3).runs == 3, "between runs the line is looked at"


def test_a_probe_that_is_not_there_is_named() -> None:
    with pytest.raises(DeviceError, match="there is no stub to connect to"):
        open_transport(load_board("nucleo-h743zi"), Path(), port="rtt://localhost:1")


def opened_by(tmp_path: Path, kind: str, more: str) -> TransportRequest:
    board = variant_of(
        "mps2-an386", tmp_path, r"\[run\].*?(?=\n\[)", f'[run]\nkind = "{kind}"\n{more}'
    )
    return TransportRequest(board, Path("f.elf"), "", 115200)


def test_renode_is_told_platform_image_and_uart(tmp_path: Path) -> None:
    more = 'machine = "platforms/cpus/stm32f4.repl"\nargs = ["sysbus.usart2"]\n'
    assert renode_command(opened_by(tmp_path, "renode", more), 1234) == [
        "renode",
        "--disable-xwt",
        "--plain",
        "--console",
        "-e",
        "mach create; machine LoadPlatformDescription @platforms/cpus/stm32f4.repl; "
        'sysbus LoadELF @f.elf; emulation CreateServerSocketTerminal 1234 "link" false; '
        "connector Connect sysbus.usart2 link; start",
    ]


def test_an_fvp_is_told_image_and_terminal(tmp_path: Path) -> None:
    more = 'program = "FVP_MPS2_Cortex-M33"\nmachine = "fvp_mps2"\nargs = ["-C", "a=1"]\n'
    words = fvp_command(opened_by(tmp_path, "fvp", more))
    assert words[0] == "FVP_MPS2_Cortex-M33"
    assert words[1:5:2] == ["-C", "-C"]
    assert words[2:6:2] == [
        "fvp_mps2.telnetterminal0.start_telnet=0",
        "fvp_mps2.telnetterminal0.quiet=0",
    ]
    assert words[5:] == ["-C", "a=1", "-a", "f.elf"]


@pytest.mark.parametrize(
    ("kind", "more", "missing"),
    [
        ("renode", 'program = "no-such-renode"\nmachine = "m"\n', "no-such-renode"),
        ("fvp", 'program = "FVP_none"\nmachine = "m"\n', "FVP_none"),
    ],
)
def test_an_emulator_that_is_not_there_is_named(
    kind: str, more: str, missing: str, tmp_path: Path
) -> None:
    way = opened_by(tmp_path, kind, more)
    with pytest.raises(ToolMissingError, match=f"{missing} is not installed"):
        open_transport(way.board, way.elf)


class Line:
    """What a package's opener gives."""

    name = "acme"

    def __init__(self, way: TransportRequest) -> None:
        self.way = way


def test_a_package_brings_ways_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("acme", f"{__name__}:Line", transport_plugins.ENTRY_POINT_GROUP)
    monkeypatch.setattr(transport_plugins, "entry_points", lambda group: [point])
    monkeypatch.setattr(EntryPoint, "load", lambda self: Line)
    way = opened_by(tmp_path, "plugin", 'program = "acme"\n')
    by_board = open_transport(way.board, way.elf)
    assert isinstance(by_board, Line)
    by_port = open_transport(load_board("nucleo-h743zi"), way.elf, port="acme://7")
    assert isinstance(by_port, Line)
    assert by_port.way.port == "acme://7"
    unknown = replace(way.board, run=replace(way.board.run, program="other"))
    with pytest.raises(UsageError, match="no package offers the transport 'other'"):
        open_transport(unknown, way.elf)
