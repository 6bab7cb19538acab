"""Transports other than a UART: memory, debug probes and plug-ins."""

import re
from dataclasses import replace
from importlib import invalidate_caches
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from firmwright.artifacts import SourceTree
from firmwright.base.errors import DeviceError, UsageError
from firmwright.boards import Board, load_board
from firmwright.boards.new_board import copy_board
from firmwright.build import build_project
from firmwright.build.project_files import project_files
from firmwright.cli.main import main
from firmwright.device import transport_plugins
from firmwright.device.session import Session
from firmwright.device.transport_plugins import TransportRequest
from firmwright.device.transport_selection import open_transport

ROOT = Path(__file__).parents[3]
X = "serving_default_x:0"


def variant_of(name: str, folder: Path, pattern: str, text: str) -> Board:
    """Return the board `name` with part of its file replaced."""
    file = copy_board("other", name, folder)
    changed, count = re.subn(pattern, text, file.read_text(), flags=re.S)
    assert count == 1
    file.write_text(changed)
    return load_board("other", (folder,))


@pytest.mark.qemu
def test_the_link_works_through_memory(tmp_path: Path) -> None:
    console = '\n[console]\ndriver = "rtt"\n'
    board = variant_of(
        "mps2-an386", tmp_path, r"\n\[counter\]", f"{console}\n[counter]"
    )
    app = (ROOT / "tests/runtime/tiny_app.c").read_text()
    SourceTree({"firmware/fwr_app.c": app}).merged(project_files(board)).write(
        tmp_path / "project"
    )
    image = build_project(tmp_path / "project")
    values = (np.arange(600) % 60).astype(np.int8)
    with Session(open_transport(board, image.elf)) as session:
        assert session.info.board == "other"
        outputs = session.run({X: values})
        assert next(iter(outputs.values())).tolist() == (2 * values).tolist()
        assert session.execute(3).runs == 3, "the link is polled between runs"


def test_a_missing_debug_probe_is_an_error() -> None:
    with pytest.raises(DeviceError, match="cannot connect to the stub"):
        open_transport(load_board("nucleo-h743zi"), Path(), port="rtt://localhost:1")


def plugin_request(tmp_path: Path) -> TransportRequest:
    board = variant_of(
        "mps2-an386",
        tmp_path,
        r"\[run\].*?(?=\n\[)",
        '[run]\nkind = "plugin"\nprogram = "acme"\n',
    )
    return TransportRequest(board, Path("f.elf"), "", 115200)


class AcmeTransport:
    """The transport of a plug-in package."""

    name = "acme"

    def __init__(self, request: TransportRequest) -> None:
        self.request = request


PLUGIN = """
from firmwright.device.process_transport import ProcessTransport

def open_acme(request):
    if not request.elf.is_file():
        raise AssertionError(f"{request.elf} is not an image")
    return ProcessTransport([request.elf], name=f"acme at {request.port}")
"""


@pytest.mark.host_c
def test_a_port_of_an_installed_plugin_gets_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "acme_link.py").write_text(PLUGIN)
    info = tmp_path / "acme_link-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-link\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(
        "[firmwright.transports]\nacme = acme_link:open_acme\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    invalidate_caches()
    digits = str(ROOT / "examples/01_digits/digits.tflite")
    verify = ["verify", digits, "--board", "host", "--samples", "1"]
    assert main([*verify, "--port", "acme://7"]) == 0
    assert "bit" in capsys.readouterr().out


def test_a_package_provides_a_transport(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint(
        "acme", f"{__name__}:AcmeTransport", transport_plugins.ENTRY_POINT_GROUP
    )
    monkeypatch.setattr(transport_plugins, "entry_points", lambda group: [point])
    monkeypatch.setattr(
        transport_plugins, "load_entry_point", lambda point: AcmeTransport
    )
    request = plugin_request(tmp_path)
    by_board = open_transport(request.board, request.elf)
    assert isinstance(by_board, AcmeTransport)
    by_port = open_transport(load_board("nucleo-h743zi"), request.elf, port="acme://7")
    assert isinstance(by_port, AcmeTransport)
    assert by_port.request.port == "acme://7"
    unknown = replace(request.board, run=replace(request.board.run, program="other"))
    with pytest.raises(UsageError, match="no package provides the transport 'other'"):
        open_transport(unknown, request.elf)
