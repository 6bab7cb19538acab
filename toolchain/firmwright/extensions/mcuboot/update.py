"""Updates for MCUboot: exports and reads signed images of firmware and constants."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from firmwright.artifacts import MARKER
from firmwright.base.errors import UsageError
from firmwright.base.input_files import read_input_text
from firmwright.base.json_input import (
    JsonObject,
    as_object,
    as_objects,
    as_text,
    parse_json,
)
from firmwright.boards import Board
from firmwright.build import build_project
from firmwright.extensions.mcuboot.signing import MANIFEST, ImageSigning, sign_update
from firmwright.extensions.mcuboot.slots import McubootSlots
from firmwright.extensions.mcuboot.smp_update import SignedImage, read_signed_image
from firmwright.flows.board.firmware_images import build_image
from firmwright.package.metadata_reader import parse_metadata
from firmwright.package.project_writer import write_project
from firmwright.pipeline import Bundle, Compilation

_SLOT_KEYS = ("slot_index_primary", "slot_index_secondary")


@dataclass(frozen=True, slots=True)
class Update:
    """An update folder: the name of its board, and its images."""

    board: str
    images: tuple[SignedImage, ...]


def export_update(
    source: Compilation | Bundle | Path,
    board: Board,
    output: Path,
    signing: ImageSigning,
    only: int | None = None,
) -> tuple[str, ...]:
    """Write the signed images, or `only` that number; return the file names."""
    slots = board.table(McubootSlots)
    if slots is None:
        what = "the board's file does not describe the slots of an MCUboot."
        hint = "add a table [mcuboot] to it, as in examples/mcuboot/boards."
        raise UsageError(what, where=board.name, hint=hint)
    files = _project_files(source)
    metadata = files[MARKER]
    facts = parse_metadata(metadata.decode("utf-8", "replace"), MARKER, ["model"])
    payloads = _payloads(source, board, slots, files, only)
    tree = sign_update(payloads, as_text(facts["model"]), board, metadata, signing)
    write_project(tree, output)
    return tuple(file for file in tree.files if file.endswith(".bin"))


def _project_files(source: Compilation | Bundle | Path) -> Mapping[str, bytes]:
    if not isinstance(source, Path):
        return source.project().encoded()
    files = {}
    for path in (source / MARKER, *source.glob("model/*.bin")):
        files[path.relative_to(source).as_posix()] = path.read_bytes()
    return files


def _payloads(
    source: Compilation | Bundle | Path,
    board: Board,
    slots: McubootSlots,
    files: Mapping[str, bytes],
    only: int | None,
) -> dict[int, bytes]:
    """Return firmware and constants of each region with a slot, by image number."""
    payloads: dict[int, bytes] = {}
    for number, (region, _) in enumerate(slots.slots):
        if only not in (None, number):
            continue
        if region == board.flash.name:
            if isinstance(source, Path):
                image = build_project(source)
            else:
                image = build_image(source)
            # The board has flash.
            assert image.bin is not None
            payloads[number] = image.bin.read_bytes()
        for path, data in files.items():
            if path.startswith("model/") and path.endswith(f"_{region}.bin"):
                payloads[number] = data
    if only is not None and only not in payloads:
        region = slots.slots[only][0] if only < len(slots.slots) else ""
        what = f"there is nothing for image {only}."
        hint = "omit --image."
        if region:
            hint = f"compile with --const-pool {region}:external."
        raise UsageError(what, where=board.name, hint=hint)
    return payloads


def read_update(folder: Path) -> Update:
    """Read an update folder; raise UsageError for damaged or unsigned images."""
    try:
        manifest = parse_json(read_input_text(folder / MANIFEST))
        files = as_objects(as_object(manifest)["files"])
        entries = [_read_entry(entry) for entry in files]
        board = str(files[0]["board"])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as problem:
        what = f"this is not an update for MCUboot: {problem}."
        hint = "create one with firmwright export --format mcuboot."
        raise UsageError(what, where=str(folder), hint=hint) from problem
    images: list[SignedImage] = []
    for entry in entries:
        slots = (entry.primary_slot, entry.secondary_slot)
        image = read_signed_image(folder / entry.file, entry.number, *slots)
        images.append(image)
    return Update(board, tuple(images))


@dataclass(frozen=True, slots=True)
class _ManifestEntry:
    """A file of a manifest with its image number; slots are None if not stated."""

    file: str
    number: int
    primary_slot: int | None
    secondary_slot: int | None


def _read_entry(entry: JsonObject) -> _ManifestEntry:
    """Return an entry; raise KeyError, TypeError or ValueError if it is malformed."""
    slots: list[int | None] = []
    for key in _SLOT_KEYS:
        slots.append(int(str(entry[key])) if key in entry else None)
    file = Path(str(entry["file"])).name
    return _ManifestEntry(file, int(str(entry["image_index"])), *slots)
