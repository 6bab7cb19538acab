"""Signed images for MCUboot: imgtool reads them; a stand-in takes them by SMP."""

from __future__ import annotations

import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import threading
import tty
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from firmwright.base.errors import DeviceError, UsageError
from firmwright.cli.main import main
from firmwright.extensions.mcuboot.smp_update import send_update
from firmwright.extensions.mcuboot.update import read_update

pytest.importorskip("imgtool", reason="needs the extra mcuboot")
packet = pytest.importorskip("smp.packet", reason="needs the extra mcuboot")
cbor2 = pytest.importorskip("cbor2", reason="needs the extra mcuboot")

ROOT = Path(__file__).parents[3]
BOARDS = ROOT / "examples/mcuboot/boards"
BOARD = ("--board", "mps2-an386-mcuboot", "--boards-dir", BOARDS)
SECURITY_COUNTER = 0x50
HEADER = "!BBHHBB"
IMAGE = "digits_model.signed.bin"


def imgtool(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "imgtool.main", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("key") / "key.pem"
    assert imgtool("keygen", "-k", file, "-t", "ecdsa-p256").returncode == 0
    return file


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    words = (
        "compile",
        ROOT / "examples/01_digits/digits.tflite",
        *BOARD,
        "--const-pool",
        "model:external",
        "-o",
        folder,
    )
    assert main([str(word) for word in words]) == 0
    return folder


@pytest.fixture
def export(fw, project: Path, key: Path, tmp_path: Path):
    def run(version: str, *more: object) -> Path:
        folder = tmp_path / version
        signed = (
            "--format",
            "mcuboot",
            "--key",
            key,
            "--package-version",
            version,
            "--image",
            1,
        )
        done = fw("export", project, *BOARD[2:], *signed, *more, "-o", folder)
        assert done.status == 0, done.err
        return folder

    return run


def test_imgtool_accepts_the_exported_constants(fw, export, key: Path, project: Path):
    folder = export("1.2.3+4", "--security-counter", 7)
    payload = (project / "model/digits_model.bin").read_bytes()
    data = (folder / IMAGE).read_bytes()
    magic, load, header, protected, size, flags, *version = struct.unpack_from(
        "<IIHHIIBBHI", data
    )
    assert (magic, load, header, size, flags) == (0x96F3B83D, 0, 0x200, len(payload), 0)
    assert version == [1, 2, 3, 4]
    assert data[header : header + size] == payload
    area = data[header + size : header + size + protected]
    assert struct.pack("<HHI", SECURITY_COUNTER, 4, 7) in area
    said = imgtool("verify", "-k", key, folder / IMAGE)
    assert "Image was correctly validated" in said.stdout, said
    (entry,) = json.loads((folder / "manifest.json").read_text())["files"]
    assert (entry["file"], entry["image_index"], entry["version_MCUBOOT"]) == (
        IMAGE,
        "1",
        "1.2.3+4",
    )
    assert (entry["slot_index_primary"], entry["slot_index_secondary"]) == ("3", "4")
    shown = fw("flash", folder, "--runner", "mcuboot", "--dry-run").out
    assert shown == f"{IMAGE}: image 1, {len(data):,} bytes\n"


def test_images_that_mcuboot_would_refuse_are_not_sent(
    export, key: Path, tmp_path: Path
):
    folder = export("1.0.0")
    good = (folder / IMAGE).read_bytes()
    read_update(folder)
    for change in (40, 0x200, len(good) // 2, 20, 8):
        bad = bytearray(good)
        bad[change] ^= 1
        (folder / IMAGE).write_bytes(bad)
        with pytest.raises(UsageError, match="MCUboot would refuse this image"):
            read_update(folder)
    for size in (0, 20, 0x200, len(good) // 2, len(good) - 1):
        (folder / IMAGE).write_bytes(good[:size])
        with pytest.raises(UsageError, match="MCUboot would refuse this image"):
            read_update(folder)
    (tmp_path / "payload").write_bytes(b"weights" * 9)
    options = ("-v", "1.0.0", "-H", "0x200", "--pad-header", "-S", "0x10000")
    assert (
        imgtool("sign", *options, tmp_path / "payload", folder / IMAGE).returncode == 0
    )
    with pytest.raises(UsageError, match="it has no signature"):
        read_update(folder)
    (folder / "manifest.json").write_text('{"files": [{"file": "../../etc/passwd"}]}')
    with pytest.raises(UsageError, match="this is not an update"):
        read_update(folder)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--package-version", "1.0.0"), "signed images need --key."),
        (("--key", "KEY"), "signed images need --package-version."),
        (
            ("--key", "absent.pem", "--package-version", "1.0.0"),
            "there is no such key file.",
        ),
        (
            ("--key", "KEY", "--package-version", "1.0.0-rc"),
            "imgtool did not sign the image.",
        ),
        (
            ("--key", "KEY", "--package-version", "1.0.0", "--image", "2"),
            "nothing for image 2.",
        ),
    ],
)
def test_wrong_options_are_explained(fw, key, project, tmp_path, arguments, what):
    words = [str(key) if word == "KEY" else word for word in arguments]
    image = () if "--image" in words else ("--image", "1")
    done = fw(
        "export",
        project,
        *BOARD[2:],
        "--format",
        "mcuboot",
        *words,
        *image,
        "-o",
        tmp_path,
    )
    assert done.status != 0
    assert what in done.err
    assert "Traceback" not in done.err


def test_only_updates_are_confirmed(fw, project: Path):
    said = fw("flash", project, *BOARD[2:], "--runner", "pyocd", "--confirm")
    assert (said.status, "--confirm needs --runner mcuboot" in said.err) == (2, True)
    said = fw("flash", project, "--runner", "mcuboot", "--port", "/dev/null")
    assert (said.status, "this is not an update for MCUboot" in said.err) == (2, True)


def test_a_board_without_slots_is_refused(fw, key: Path, digits_path: Path):
    signed = ("--format", "mcuboot", "--key", key, "--package-version", "1.0.0")
    done = fw("export", digits_path, "--board", "mps2-an386", *signed)
    assert (done.status, "does not describe the slots" in done.err) == (2, True)


# ---- sending: to a stand-in, which keeps the states that MCUboot would ---------------


@dataclass
class StandIn:
    """An SMP server at a pseudo terminal with the commands of serial recovery.

    It is not MCUboot. `slots` has images by upload id. Ids in `rejected` are not
    listed, as images with a wrong signature are not. With `in_application`, uploads
    name images, as for the server of Zephyr applications, and go to secondary slots.
    """

    in_application: bool = False
    slots: dict[int, bytes] = field(default_factory=dict)
    marked: dict[int, bool] = field(default_factory=dict)
    rejected: tuple[int, ...] = ()
    restarts: int = 0
    uploading: int = 0

    def __post_init__(self) -> None:
        self.ours, theirs = pty.openpty()
        tty.setraw(theirs)
        self.port = os.ttyname(theirs)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        decoder, text = packet.decode(), b""
        while True:
            text += os.read(self.ours, 4096)
            while b"\n" in text:
                line, text = text.split(b"\n", 1)
                if packet.START_DELIMITER in line:
                    decoder = packet.decode()
                    next(decoder)
                try:
                    decoder.send(line + b"\n")
                except StopIteration as whole:
                    for part in packet.encode(self.answer(whole.value)):
                        os.write(self.ours, part)

    def answer(self, frame: bytes) -> bytes:
        op, flags, _, group, sequence, command = struct.unpack_from(HEADER, frame)
        body = cbor2.dumps(self.execute(group, command, op & 7, cbor2.loads(frame[8:])))
        return (
            struct.pack(HEADER, op + 1, flags, len(body), group, sequence, command)
            + body
        )

    def execute(
        self, group: int, command: int, op: int, body: dict[str, Any]
    ) -> dict[str, Any]:
        match group, command, op:
            case 0, 0, _:
                return {"r": body["d"]}
            case 0, 5, _:
                self.restarts += 1
                return {"rc": 0}
            case 0, 6, _:
                return {"buf_size": 1024, "buf_count": 1}
            case 1, 0, _:
                for place in self.slots:
                    if op == 2 and self.state(place)["hash"] == body["hash"]:
                        self.marked[place] = body["confirm"]
                listed = sorted(self.slots.keys() - set(self.rejected))
                return {"images": [self.state(place) for place in listed]}
            case 1, 1, _:
                if body["off"] == 0:
                    number = body.get("image", 0)
                    self.uploading = 2 * number + 2 if self.in_application else number
                    self.slots[self.uploading] = b""
                self.slots[self.uploading] += body["data"]
                return {"rc": 0, "off": len(self.slots[self.uploading])}
        return {"rc": 8}

    def state(self, place: int) -> dict[str, Any]:
        data = self.slots[place]
        header, protected, size = struct.unpack_from("<HHI", data, 8)
        version = struct.unpack_from("<BBH", data, 20)
        at = data.index(struct.pack("<HH", 0x10, 32), header + size + protected) + 4
        return {
            "image": (place - 1) // 2,
            "slot": (place - 1) % 2,
            "hash": data[at : at + 32],
            "version": ".".join(map(str, version)),
            "confirmed": place % 2 == 1,
        }


def test_updates_are_sent_marked_and_not_sent_twice(fw, export):
    device = StandIn()
    first, second = export("1.0.0"), export("1.1.0")
    send = ("--runner", "mcuboot", "--port", device.port, "--json")
    (sent,) = fw("flash", first, *send).json["images"]
    assert (sent["state"], sent["sent_bytes"]) == ("installed", len(device.slots[3]))
    (sent,) = fw("flash", second, *send).json["images"]
    assert (sent["state"], sent["image"], sent["version"]) == ("test", 1, "1.1.0")
    assert device.slots[4] == (second / IMAGE).read_bytes()
    assert device.marked == {4: False}
    (sent,) = fw("flash", second, *send, "--confirm").json["images"]
    assert (sent["state"], device.marked) == ("permanent", {4: True})
    device.slots[3] = device.slots.pop(4)  # as MCUboot after the restart
    (sent,) = fw("flash", second, *send).json["images"]
    assert (sent["state"], sent["sent_bytes"]) == ("installed", 0)
    assert (device.restarts, 4 in device.slots) == (4, False)
    older = fw("flash", first, *send[:-1])
    assert "the device runs version 1.1.0 of image 1" in older.err
    assert (device.restarts, 4 in device.slots) == (5, False)


def test_the_server_of_an_application_gets_images_by_number(
    fw, project: Path, key: Path, tmp_path: Path
):
    boards = tmp_path / "boards"
    shutil.copytree(BOARDS, boards)
    (file,) = boards.glob("*/board.toml")
    file.write_text(
        file.read_text().replace("[mcuboot]", '[mcuboot]\nsmp_server = "application"')
    )
    device = StandIn(in_application=True)
    for version, state in (("1.0.0", "test"), ("1.1.0", "permanent")):
        folder = tmp_path / version
        signed = (
            "--format",
            "mcuboot",
            "--key",
            key,
            "--package-version",
            version,
            "--image",
            1,
        )
        assert (
            fw("export", project, "--boards-dir", boards, *signed, "-o", folder).status
            == 0
        )
        entry = json.loads((folder / "manifest.json").read_text())["files"][0]
        assert "slot_index_primary" not in entry
        confirm = ("--confirm",) if state == "permanent" else ()
        send = ("--runner", "mcuboot", "--port", device.port, "--json", *confirm)
        (sent,) = fw("flash", folder, *send).json["images"]
        assert (sent["state"], device.slots[4]) == (
            state,
            (folder / IMAGE).read_bytes(),
        )
        assert device.marked == {4: state == "permanent"}
        device.slots = {3: device.slots[4]}  # as MCUboot after the restart
    assert device.restarts == 2


def test_an_image_that_the_device_does_not_list_is_an_error(export):
    device = StandIn(rejected=(3,))
    with pytest.raises(DeviceError, match="MCUboot does not accept image 1"):
        send_update(read_update(export("1.0.0")).images, device.port)
    assert device.restarts == 1, "the device does not stay in serial recovery"


def test_a_missing_package_names_the_extra(export, monkeypatch: pytest.MonkeyPatch, fw):
    folder = export("1.0.0")
    monkeypatch.setitem(sys.modules, "smpclient.transport.serial", None)
    said = fw("flash", folder, "--runner", "mcuboot", "--port", "/dev/null")
    assert "pip install 'firmwright[mcuboot]'" in said.err
