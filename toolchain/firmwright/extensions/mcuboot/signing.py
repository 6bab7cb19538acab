"""Signs the images of an update for MCUboot by imgtool.

An update is a folder of signed images with a manifest.json in the format of nRF
Connect's packages, which other SMP clients read too.
"""

import importlib.util
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firmwright.artifacts import MARKER, SourceTree
from firmwright.base.child_process import Word, python_command, run_program
from firmwright.base.errors import ToolMissingError, UsageError
from firmwright.boards import Board
from firmwright.extensions.mcuboot.slots import McubootSlots

MANIFEST: Final = "manifest.json"
SIGN_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ImageSigning:
    """The key file and version of images, and further arguments of `imgtool sign`."""

    key: Path
    version: str
    more: tuple[str, ...] = ()


def sign_update(
    payloads: Mapping[int, bytes],
    name: str,
    board: Board,
    metadata: bytes,
    signing: ImageSigning,
) -> SourceTree:
    """Return the update with the image of each payload, by image number."""
    if importlib.util.find_spec("imgtool") is None:
        what = "imgtool, which signs images for MCUboot, is not installed."
        raise ToolMissingError(what, hint="pip install 'firmwright[mcuboot]'.")
    if not signing.key.is_file():
        hint = f"create one: imgtool keygen -k {signing.key} -t ecdsa-p256."
        what = "there is no such key file."
        raise UsageError(what, where=str(signing.key), hint=hint)
    slots = board.table(McubootSlots)
    # The caller selected the payloads by the slots.
    assert slots is not None
    content: dict[str, str | bytes] = {MARKER: metadata}
    entries = []
    for number, payload in payloads.items():
        region, slot_bytes = slots.slots[number]
        file = f"{name}_{region}.signed.bin"
        image = _sign(payload, slots, slot_bytes, signing)
        content[file] = image
        entry = {
            "type": "application" if number == 0 else "model",
            "board": board.name,
            "image_index": str(number),
            "version_MCUBOOT": signing.version,
            "size": len(image),
            "file": file,
        }
        if slots.smp_server == "mcuboot":
            # With MCUBOOT_SERIAL_DIRECT_IMAGE_UPLOAD, the slots of all images are
            # numbered from 1.
            entry["slot_index_primary"] = str(2 * number + 1)
            entry["slot_index_secondary"] = str(2 * number + 2)
        entries.append(entry)
    manifest = {"format-version": 1, "name": name, "files": entries}
    return SourceTree({**content, MANIFEST: json.dumps(manifest, indent=2) + "\n"})


def _sign(
    payload: bytes, slots: McubootSlots, slot_bytes: int, signing: ImageSigning
) -> bytes:
    """Return the payload with header and signature, for a slot of `slot_bytes`."""
    with tempfile.TemporaryDirectory(prefix="firmwright-sign-") as folder:
        source = Path(folder) / "payload.bin"
        target = Path(folder) / "signed.bin"
        source.write_bytes(payload)
        command: list[Word] = [*python_command("imgtool.main", "sign", "--pad-header")]
        command += ["--key", signing.key, "--version", signing.version]
        command += ["--header-size", hex(slots.header_bytes)]
        command += ["--slot-size", hex(slot_bytes)]
        command += ["--align", str(slots.align), *signing.more]
        command += [source, target]
        options = "--key, --package-version, --imgtool-args"
        run_program(
            command,
            "imgtool",
            timeout_s=SIGN_TIMEOUT_S,
            # --imgtool-args may name files relative to the current folder.
            folder=Path.cwd(),
            failure="imgtool did not sign the image.",
            hint=f"check {options} and the board's [mcuboot].",
        )
        return target.read_bytes()
