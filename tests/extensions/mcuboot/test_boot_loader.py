"""The guide to signed updates with MCUboot itself in QEMU, and images it must refuse.

MCUBOOT_PATH names a copy of github.com/mcu-tools/mcuboot, from which the guide's
commands build it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from firmwright.cli.option_values import const_pool
from firmwright.extensions.mcuboot.smp_update import _await_server
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.reference_outputs import compute_reference
from firmwright.pipeline import Compilation

ROOT = Path(__file__).parents[3]
PATH_VARIABLE = "MCUBOOT_PATH"
CHECKOUT = os.environ.get(PATH_VARIABLE, "")
RUN_HERE = re.compile(
    r"<!-- not run: run by tests/extensions/mcuboot/test_boot_loader.py -->\n```sh\n(.*?)```",
    re.DOTALL,
)
PORT = "/dev/pts/3"
"""The port in the guide."""
SECONDS = 300
SERIAL_RECOVERY_S = 2.0
"""Longer than the example's boot loader listens before it swaps images."""
SHA256, WORD = 0x10, "<HH"
LISTED, NOT_LISTED = True, False
IMAGES = tuple(np.load(ROOT / "examples/01_digits/digits_test.npz")["input_1"][:4])

pytestmark = [
    pytest.mark.deep,
    pytest.mark.qemu,
    pytest.mark.skipif(
        not CHECKOUT, reason=f"{PATH_VARIABLE} does not name a copy of MCUboot"
    ),
]
pytest.importorskip("imgtool", reason="needs the extra mcuboot")


@dataclass
class Guide:
    """A copy of the example for the guide's commands, and the started emulator."""

    folder: Path
    emulator: subprocess.Popen[str] | None = None
    port: str = PORT

    def run(self, command: str) -> str:
        command = command.replace(PORT, self.port)
        if command.startswith("qemu-system-arm"):
            self.emulator = subprocess.Popen(
                command.removesuffix("&").split(),
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert self.emulator.stdout is not None
            line = self.emulator.stdout.readline()
            self.port = re.findall(r"/dev/pts/\d+", line)[0]
            return line
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def imgtool_sign(self, *options: object, key: str = "key.pem") -> bytes:
        """Sign the retrained constants."""
        payload = self.folder / "v1.2.0.payload"
        signed = (self.folder / "v1.2.0/digits_model.signed.bin").read_bytes()
        size = struct.unpack_from("<I", signed, 12)[0]
        payload.write_bytes(signed[0x200 : 0x200 + size])
        fixed = "--header-size 0x200 --pad-header --slot-size 0x8000 --align 4"
        keys = f"--key {key}" if key else ""
        more = " ".join(map(str, options))
        self.run(f"imgtool sign {fixed} {keys} {more} {payload.name} attack.bin")
        return (self.folder / "attack.bin").read_bytes()


@pytest.fixture
def guide(tmp_path: Path, digits_path: Path) -> Iterator[Guide]:
    folder = tmp_path / "example"
    shutil.copytree(
        ROOT / "examples/mcuboot", folder, ignore=shutil.ignore_patterns("build")
    )
    (folder / "mcuboot").symlink_to(Path(CHECKOUT).resolve())
    shutil.copy(digits_path, folder / "digits.tflite")
    (folder / "retrained.tflite").write_bytes(retrain(digits_path))
    made = Guide(folder)
    yield made
    if made.emulator is not None:
        made.emulator.kill()
        made.emulator.communicate()


def retrain(model: Path) -> bytes:
    """Return the model with the rows of its last layer in reverse order."""
    data = model.read_bytes()
    constants = load_model(str(model)).module.constants
    for name in ("weights", "bias"):
        old = constants[f"fully_connected_1/{name}"].data
        new = np.frombuffer(old, np.uint8).reshape(10, -1)[::-1].tobytes()
        assert data.count(old) == 1
        data = data.replace(old, new)
    return data


def compiled(guide: Guide, model: str) -> Compilation:
    board, pools = "mps2-an386-mcuboot", (const_pool("model:external"),)
    folders = (guide.folder / "boards",)
    loaded = load_model(str(guide.folder / model))
    return compile_for(loaded, board, board_dirs=folders, const_pools=pools)


def outputs(guide: Guide) -> list[np.ndarray]:
    """Return the outputs of the application, whose model id is that of its build."""
    with open_session(compiled(guide, "digits.tflite"), port=guide.port) as session:
        return [session.run(image).ravel() for image in IMAGES]


def reference(guide: Guide, model: str) -> list[np.ndarray]:
    """Return LiteRT's outputs."""
    build = compiled(guide, model)
    (name,) = (tensor.name for tensor in build.module.io.inputs)
    found = compute_reference(build, [{name: image} for image in IMAGES]).outputs
    return [next(iter(output.values())).ravel() for output in found]


async def force(port: str, data: bytes) -> bool:
    """Send an image past our checks; return whether MCUboot lists and marks it."""
    import smpclient

    image_group = smpclient.requests.image_management
    await _await_server(port)
    transport = smpclient.transport.serial.SMPSerialTransport()
    async with smpclient.SMPClient(transport, port, 30) as client:
        async for _ in client.upload(data, 4):
            pass
        found = (await client.request(image_group.ImageStatesRead())).images
        sent = [state for state in found if (state.image, state.slot) == (1, 1)]
        for state in sent:
            await client.request(
                image_group.ImageStatesWrite(hash=state.hash, confirm=True)
            )
        await client.request(smpclient.requests.os_management.ResetWrite())
    return bool(sent)


def with_wrong_weight(data: bytes) -> bytes:
    """Change a byte of the payload and the hash: only the signature tells."""
    header, protected, size = struct.unpack_from("<HHI", data, 8)
    hashed = header + size + protected
    changed = bytearray(data)
    changed[header + 5] ^= 0x40
    at = data.index(struct.pack(WORD, SHA256, 32), hashed) + 4
    changed[at : at + 32] = hashlib.sha256(changed[:hashed]).digest()
    return bytes(changed)


def test_mcuboot_takes_signed_updates_and_refuses_others(guide: Guide) -> None:
    text = (ROOT / "docs/reference/mcuboot.md").read_text(encoding="utf-8")
    commands = [line for block in RUN_HERE.findall(text) for line in block.splitlines()]
    said: dict[str, str] = {}
    for command in commands:
        said[command] = guide.run(command)
        if " flash " in command:
            time.sleep(SERIAL_RECOVERY_S)
    second = [text for command, text in said.items() if "flash v1.1.0" in command]
    assert "installed" in second[-1]

    before, expected = (
        reference(guide, name) for name in ("digits.tflite", "retrained.tflite")
    )
    assert not np.array_equal(expected, before)
    assert np.array_equal(outputs(guide), expected), "the new weights are in use"
    assert "installed" in guide.run(
        f"firmwright flash v1.2.0 --runner mcuboot --port {PORT}"
    )

    good = ("--version", "1.3.0", "--security-counter", 2)
    guide.run("imgtool keygen -k other.pem -t ecdsa-p256")
    valid = guide.imgtool_sign(*good)
    attacks = {
        "cut": (valid[:-100], NOT_LISTED),
        "changed": (with_wrong_weight(valid), NOT_LISTED),
        "changed, with a trailer": (
            with_wrong_weight(guide.imgtool_sign(*good, "--pad", "--confirm")),
            NOT_LISTED,
        ),
        "unsigned": (guide.imgtool_sign(*good, key=""), NOT_LISTED),
        "another key": (guide.imgtool_sign(*good, key="other.pem"), NOT_LISTED),
        "lower counter": (
            guide.imgtool_sign("--version", "1.3.0", "--security-counter", 1),
            NOT_LISTED,
        ),
        "older": (
            guide.imgtool_sign("--version", "1.1.9", "--security-counter", 2),
            LISTED,
        ),
    }
    for attack, (data, is_listed) in attacks.items():
        assert asyncio.run(force(guide.port, data)) == is_listed, attack
        assert np.array_equal(outputs(guide), expected), attack

    revert = (
        "firmwright export digits.tflite --board mps2-an386-mcuboot --boards-dir boards"
    )
    revert += " --const-pool model:external --format mcuboot --key key.pem --security-counter 2"
    guide.run(f"{revert} --package-version 1.4.0 -o unconfirmed")
    sent = guide.run(f"firmwright flash unconfirmed --runner mcuboot --port {PORT}")
    assert "test: the application confirms it" in sent
    assert np.array_equal(outputs(guide), before), "in its test the update runs"
    again = guide.run(f"firmwright flash unconfirmed --runner mcuboot --port {PORT}")
    assert "unconfirmed: the application has not confirmed it" in again
    assert np.array_equal(outputs(guide), expected), "MCUboot has reverted it"
