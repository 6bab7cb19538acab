"""Sends signed images to an SMP server: MCUboot's serial recovery or an application.

smpclient implements SMP. A running image is never confirmed here, but by the
application, because MCUboot's serial recovery marks the secondary slot for any hash.
"""

import asyncio
import contextlib
import hashlib
import importlib
import logging
import re
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from firmwright.base import errors
from firmwright.base.input_files import read_input_bytes
from firmwright.device.errors import Timeouts
from firmwright.device.link_protocol import Command
from firmwright.device.request_channel import RequestChannel
from firmwright.device.serial_port import SerialTransport

log = logging.getLogger(__name__)
PATIENCE_S: Final = 20.0
"""The time limit for an answer; the board may have to be restarted by hand."""
_KNOCK_S: Final = 0.25
_RESET_S: Final = 2.5
_REQUEST_S: Final = 30.0
"""The server verifies all signatures before it lists images."""
_LINK: Final = Timeouts(hello_s=3.0, answer_s=0.5, first_wait_s=0.05, last_wait_s=0.1)
_HASHES: Final = {0x10: "sha256", 0x11: "sha384", 0x12: "sha512"}
"""Hash functions by type of TLV."""
_SIGNATURES: Final = range(0x20, 0x30)

Version = tuple[int, ...]
Outcome = Literal["installed", "test", "permanent", "unconfirmed"]


@dataclass(frozen=True, slots=True)
class SignedImage:
    """A signed image; uploads name its slots by `primary` and `secondary`."""

    number: int
    file: str
    data: bytes
    version: Version
    digest: bytes
    primary: int | None
    secondary: int


@dataclass(frozen=True, slots=True)
class ImageOutcome:
    """An image's state after an update; `sent_bytes` is 0 if the device had it."""

    image: int
    file: str
    version: str
    state: Outcome
    sent_bytes: int


def read_signed_image(
    file: Path, number: int, primary: int | None, secondary: int | None
) -> SignedImage:
    """Read an image; raise UsageError if it is incomplete, changed or not signed."""
    try:
        data = read_input_bytes(file)
        info = _smpclient("mcuboot").ImageInfo.load_file(str(file))
    except errors.FirmwrightError:
        raise
    except (
        OSError,
        ValueError,
        struct.error,
        _smpclient("mcuboot").MCUBootImageError,
    ) as error:
        reason = f"it is not a complete image of MCUboot ({error})"
        raise _damaged(file, reason) from error
    # The file: header, image and protected TLVs, which are hashed; then other TLVs.
    head, tlvs = info.header, {tlv.header.type: tlv.value for tlv in info.tlvs}
    hashed_bytes = head.hdr_size + head.img_size + head.protect_tlv_size
    if hashed_bytes + info.tlv_info.tlv_tot > len(data):
        raise _damaged(file, "its end is missing")
    digest = _digest_of(data[:hashed_bytes], tlvs)
    if digest is None:
        raise _damaged(file, "its content does not have the hash that it states")
    if not any(kind in tlvs for kind in _SIGNATURES):
        raise _damaged(file, "it has no signature")
    version = (head.ver.major, head.ver.minor, head.ver.revision, head.ver.build_num)
    place = number if secondary is None else secondary
    return SignedImage(number, file.name, data, version, digest, primary, place)


def _digest_of(hashed: bytes, tlvs: Mapping[int, bytes]) -> bytes | None:
    """Return the first hash in the TLVs; None without one or if it is another's."""
    for kind, function in _HASHES.items():
        if kind in tlvs:
            digest = tlvs[kind]
            is_right = hashlib.new(function, hashed).digest() == digest
            return digest if is_right else None
    return None


def send_update(
    images: Sequence[SignedImage], port: str, *, confirm: bool = False
) -> tuple[ImageOutcome, ...]:
    """Send the images, mark them, and restart the device.

    They are marked for a test or, with `confirm`, as permanent. Raise DeviceError if
    the server does not answer or accept an image, and UsageError, before anything is
    sent, if the device runs a newer version.
    """
    logging.getLogger("smpclient").setLevel(logging.CRITICAL)
    smpclient = _smpclient()
    try:
        return asyncio.run(_send_update(images, port, confirm))
    except (
        TimeoutError,
        smpclient.exceptions.SMPClientException,
        _smpclient("transport").SMPTransportDisconnected,
    ) as error:
        what = f"the transfer by SMP failed: {str(error)[:200]}."
        hint = "flash again; the running image is unchanged."
        raise errors.DeviceError(what, where=port, hint=hint) from error


def _smpclient(module: str = "") -> Any:
    try:
        importlib.import_module("smpclient.transport.serial")
        return importlib.import_module(f"smpclient.{module}" if module else "smpclient")
    except ImportError as error:
        what = "smpclient, which sends images to MCUboot, is not installed."
        hint = "pip install 'firmwright[mcuboot]'."
        raise errors.ToolMissingError(what, hint=hint) from error


def _damaged(file: Path, reason: str) -> errors.UsageError:
    hint = "export the update again: firmwright export --format mcuboot."
    what = f"MCUboot would refuse this image: {reason}."
    return errors.UsageError(what, where=str(file), hint=hint)


async def _send_update(
    images: Sequence[SignedImage], port: str, confirm: bool
) -> tuple[ImageOutcome, ...]:
    smpclient, os_group = _smpclient(), _smpclient("requests.os_management")
    await _await_server(port)
    transport = _smpclient("transport.serial").SMPSerialTransport()
    async with smpclient.SMPClient(transport, port, _REQUEST_S) as client:
        try:
            before = await _states(client, port)
            for image in images:
                _check_version(image, before, port)
            running = {place: state.hash for place, state in before.items()}
            new: list[SignedImage] = []
            first: list[SignedImage] = []
            for image in images:
                place = (image.number, 0)
                if running.get(place) != image.digest:
                    new.append(image)
                    if place not in before and image.primary is not None:
                        first.append(image)
            for image in new:
                await _upload(client, image, port, to_primary=image in first)
            for image in new:
                if image not in first:
                    group = _smpclient("requests.image_management")
                    marking = group.ImageStatesWrite(hash=image.digest, confirm=confirm)
                    await _states(client, port, marking)
        finally:
            # Also after an error: the device leaves serial recovery.
            failure = smpclient.exceptions.SMPClientException
            with contextlib.suppress(TimeoutError, failure):
                await client.request(os_group.ResetWrite(), _RESET_S)

    marked: Outcome = "permanent" if confirm else "test"
    outcomes = []
    for image in images:
        state, sent_bytes = marked, len(image.data)
        if image not in new:
            is_confirmed = before[image.number, 0].confirmed
            state = "installed" if is_confirmed else "unconfirmed"
            sent_bytes = 0
        elif image in first:
            state = "installed"
        outcome = ImageOutcome(
            image=image.number,
            file=image.file,
            version=_text(image.version),
            state=state,
            sent_bytes=sent_bytes,
        )
        outcomes.append(outcome)
    return tuple(outcomes)


async def _await_server(port: str) -> None:
    """Wait for an SMP server; restart our firmware into the boot loader once."""
    smpclient, os_group = _smpclient(), _smpclient("requests.os_management")
    deadline, has_restarted = time.monotonic() + PATIENCE_S, False
    while time.monotonic() < deadline:
        transport = _smpclient("transport.serial").SMPSerialTransport()
        client = smpclient.SMPClient(transport, port, _KNOCK_S)
        with contextlib.suppress(TimeoutError, smpclient.exceptions.SMPClientException):
            await client.connect()
            await client.request(os_group.EchoWrite(d="firmwright"))
            await client.disconnect()
            return
        await client.disconnect()
        if not has_restarted:
            has_restarted = True
            _restart_firmware(port)
    what = f"no SMP server answered within {PATIENCE_S:g} s."
    hint = (
        "restart the board during the attempt; MCUboot needs "
        "MCUBOOT_SERIAL_WAIT_FOR_DFU, or the application an SMP server."
    )
    raise errors.DeviceTimeoutError(what, where=port, hint=hint)


def _restart_firmware(port: str) -> None:
    with contextlib.closing(SerialTransport(port)) as line:
        channel = RequestChannel(line, _LINK)
        for command in (Command.HELLO, Command.RESET):
            with contextlib.suppress(errors.DeviceError):
                channel.request(command)


async def _states(
    client: Any, port: str, request: Any = None
) -> Mapping[tuple[int, int], Any]:
    """Return the device's images by image number and slot; MCUboot lists valid ones."""
    group = _smpclient("requests.image_management")
    answer = await client.request(request or group.ImageStatesRead())
    if _smpclient("generics").error(answer):
        status = getattr(answer, "rc", None) or getattr(answer, "err", "unknown")
        what = f"the SMP server refuses to list or mark images (status {status})."
        hint = "build MCUboot with MCUBOOT_SERIAL_IMG_GRP_HASH and _IMAGE_STATE."
        raise errors.DeviceError(what, where=port, hint=hint)
    return {(state.image or 0, state.slot): state for state in answer.images}


def _check_version(
    image: SignedImage, before: Mapping[tuple[int, int], Any], port: str
) -> None:
    running = before.get((image.number, 0))
    if running is None:
        return
    have = tuple(map(int, re.findall(r"\d+", running.version)))
    if image.version[:3] < have[:3]:
        runs = f"the device runs version {running.version} of image {image.number}"
        what = f"{runs}; {image.file} is older, {_text(image.version)}."
        why = "roll-back protection refuses older ones"
        hint = f"export it with a higher --package-version; {why}."
        raise errors.UsageError(what, where=port, hint=hint)


async def _upload(
    client: Any, image: SignedImage, port: str, *, to_primary: bool
) -> None:
    place = image.primary if to_primary else image.secondary
    async for offset in client.upload(image.data, place):
        log.info("%s: %d of %d bytes", image.file, offset, len(image.data))
    states = await _states(client, port)
    state = states.get((image.number, 0 if to_primary else 1))
    if state is None or state.hash != image.digest:
        what = f"MCUboot does not accept image {image.number}, {image.file}."
        counter = "a --security-counter that is not lower"
        hint = f"sign it by the device's key, with {counter}."
        raise errors.DeviceError(what, where=port, hint=hint)


def _text(version: Version) -> str:
    text = ".".join(map(str, version[:3]))
    return f"{text}+{version[3]}" if version[3] else text
