"""Faults in a proof bundle, each of which the checker must reject.

Every fault leaves a bundle with right hashes: it stands for a wrong tool, not for a
changed file. A fault draws its place from a random generator, so that many of a kind
can be planted.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from firmwright.flows.certify import check_bundle as checker

Plant = Callable[["BundleFiles", Random], None]


@dataclass
class BundleFiles:
    """The files that the checker reads, by name, and its facts."""

    files: dict[str, bytes]
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> BundleFiles:
        facts = json.loads((folder / "facts.json").read_text())
        names = ["model.tflite", "image/firmware.elf", "image/disassembly.txt"]
        names += ["orders.npz", *facts["sources"]]
        if "analysis" in facts:
            names.append(facts["analysis"]["log"])
        return cls({name: (folder / name).read_bytes() for name in names}, facts)

    def copy(self) -> BundleFiles:
        return BundleFiles(dict(self.files), json.loads(json.dumps(self.facts)))

    def write(self, folder: Path) -> None:
        """Write a bundle with the hashes of these files."""
        files = {**self.files, "facts.json": json.dumps(self.facts).encode()}
        digests: dict[str, str] = {}
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            digests[name] = hashlib.sha256(data).hexdigest()
        manifest = {"files": digests, "root": checker.merkle_root(digests)}
        (folder / "bundle.json").write_text(json.dumps(manifest))

    def claims(self, name: str) -> list[dict[str, Any]]:
        """Return what is claimed about layers by a name."""
        return [entry[name] for entry in self.facts["layers"].values() if name in entry]

    def edit(self, name: str, place: int, mask: int) -> None:
        data = bytearray(self.files[name])
        data[place] ^= mask
        self.files[name] = bytes(data)

    def substitute(
        self,
        name: str,
        pattern: str,
        change: Callable[[re.Match[str]], str],
        draw: Random,
    ) -> None:
        """Change one place of a text that matches."""
        text = self.files[name].decode()
        match = draw.choice(list(re.finditer(pattern, text)))
        self.files[name] = (
            text[: match.start()] + change(match) + text[match.end() :]
        ).encode()


def first_reason(folder: Path) -> str:
    """Return why the checker rejects a bundle, or ""."""
    try:
        bundle = checker.BundleFolder(folder)
        for claim in checker.CLAIMS:
            claim(bundle)
    except Exception as error:  # noqa: BLE001 (as the program does)
        return f"{type(error).__name__}: {error}"
    return ""


# ---- in the image --------------------------------------------------------------------


def _symbol_place(image: checker.Firmware, symbol: str) -> tuple[int, int]:
    address, size = image.symbols[symbol]
    return image.data.index(image.read(address, size)), size


def instruction(bundle: BundleFiles, draw: Random) -> None:
    """A bit of an instruction that a run executes."""
    image = checker.Firmware(bundle.files["image/firmware.elf"])
    address = int(draw.choice(list(bundle.facts["executions"])))
    start = image.read(address, 2)
    for _, kind, flags, begin, offset, length, *_ in image.sections:
        if flags & 2 and kind != 8 and begin <= address < begin + length:
            place = offset + address - begin
    assert image.data[place : place + 2] == start
    bundle.edit("image/firmware.elf", place + draw.randrange(2), 1 << draw.randrange(8))


def multiplier(bundle: BundleFiles, draw: Random) -> None:
    """A high bit of a multiplier in a table of the image."""
    claims = [c["multiplier"] for c in bundle.claims("requantization")]
    claim = draw.choice([c for c in claims if "symbol" in c])
    image = checker.Firmware(bundle.files["image/firmware.elf"])
    place, size = _symbol_place(image, claim["symbol"])
    entry = draw.randrange(claim["start"], size // 4, claim["stride"])
    bundle.edit("image/firmware.elf", place + 4 * entry + 2, 1 << draw.randrange(2, 8))


def constant(bundle: BundleFiles, draw: Random) -> None:
    """A bit of a weight or a start value in the image, by whatever table."""
    claim = draw.choice(bundle.claims("weights") + bundle.claims("starts"))
    image = checker.Firmware(bundle.files["image/firmware.elf"])
    place, size = _symbol_place(image, claim["symbol"])
    at = place + draw.randrange(size)
    bundle.edit("image/firmware.elf", at, 1 << draw.randrange(8))


def shift(bundle: BundleFiles, draw: Random) -> None:
    """Weights that are all 0, as those of the model if they were shifted so far."""
    claims = [claim for claim in bundle.claims("weights") if "left" in claim]
    claim = draw.choice(claims)
    claim["left"] = 32
    image = checker.Firmware(bundle.files["image/firmware.elf"])
    place, size = _symbol_place(image, claim["symbol"])
    data = bytearray(bundle.files["image/firmware.elf"])
    data[place : place + size] = bytes(size)
    bundle.files["image/firmware.elf"] = bytes(data)


# ---- in the model, which the firmware then does not compute --------------------------


def model_constant(bundle: BundleFiles, draw: Random) -> None:
    """A bit of a weight, a bias or a scale of the model file."""
    graph = checker.Graph(bundle.files["model.tflite"])
    nodes = [n for n in graph.nodes if n.code in checker.ACTIVATION_OPTION]
    node = draw.choice(nodes)
    tensor = graph.tensors[node.inputs[1]]
    data = bundle.files["model.tflite"]
    place = data.index(tensor.values.astype(tensor.kind).tobytes())
    bundle.edit("model.tflite", place + draw.randrange(tensor.values.size), 0x40)


# ---- in the plan and the C -----------------------------------------------------------


def offset(bundle: BundleFiles, draw: Random) -> None:
    """A buffer at the place of another one that is needed at the same time."""
    name = bundle.facts["sources"][0]
    text = bundle.files[name].decode()
    pattern = r"(_IN_\w+\((\w+),\s+)(\d+)(,\s+\d+,\s+\d+\);)"
    places = {m[2]: m for m in re.finditer(pattern, text)}
    operators = [s["nodes"] for s in bundle.facts["steps"]]
    scratch = [n for n, b in bundle.facts["buffers"].items() if "scratch_of" in b]
    moved = draw.choice(scratch)
    graph = checker.Graph(bundle.files["model.tflite"])
    node = graph.nodes[operators[bundle.facts["buffers"][moved]["scratch_of"]][0]]
    used = {node.inputs[0], node.outputs[0]}
    others = [
        n
        for n, b in bundle.facts["buffers"].items()
        if used & set(b.get("tensors", ()))
    ]
    match, other = places[moved], places[draw.choice(others)]
    edited = match[1] + other[3] + match[4]
    bundle.files[name] = (text[: match.start()] + edited + text[match.end() :]).encode()


def size(bundle: BundleFiles, draw: Random) -> None:
    """A buffer that is smaller than its tensor."""
    pattern = r"(_IN_\w+\((?!\w+_(?:COLUMNS|WIDE|PATCH|U|M),)\w+,\s+\d+,\s+)(\d+)(,)"

    def less(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) - draw.randint(1, 4)}{match[3]}"

    bundle.substitute(bundle.facts["sources"][0], pattern, less, draw)


def rounding(bundle: BundleFiles, draw: Random) -> None:
    """A kernel with another final shift than that of its parameters."""
    pattern = r"(= *\w+_saturate_i8_asr)(\d+)\("

    def other(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) + draw.choice((-1, 1))}("

    bundle.substitute(bundle.facts["sources"][0], pattern, other, draw)


# ---- in the certificate --------------------------------------------------------------


def executions(bundle: BundleFiles, draw: Random) -> None:
    """An instruction that runs less often than those before and after it."""
    counts = bundle.facts["executions"]
    address = draw.choice([a for a, count in counts.items() if count > 8])
    counts[address] = draw.randrange(1, counts[address] // 2)


def missing_executions(bundle: BundleFiles, draw: Random) -> None:
    """Instructions that the certificate does not count."""
    counts = bundle.facts["executions"]
    for address in draw.sample(sorted(counts), len(counts) // 20):
        del counts[address]


def stack(bundle: BundleFiles, draw: Random) -> None:
    """A stack that is smaller than the deepest path."""
    bundle.facts["stack_bytes"] -= 4 * draw.randint(1, 20)


def recorded_output(bundle: BundleFiles, draw: Random) -> None:
    """A wrong output of a run."""
    run = draw.choice(bundle.facts["vectors"])
    data = bytearray.fromhex(run["outputs"][0])
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(2, 8)
    run["outputs"][0] = data.hex()


def recorded_layer(bundle: BundleFiles, draw: Random) -> None:
    """A wrong checksum of a layer's result."""
    run = draw.choice(bundle.facts["vectors"])
    run["layers"][draw.choice(sorted(run["layers"]))] ^= 1 << draw.randrange(32)


def recorded_input(bundle: BundleFiles, draw: Random) -> None:
    """A run of other inputs than the recorded ones."""
    run = draw.choice(bundle.facts["vectors"])
    data = bytearray.fromhex(run["inputs"][0])
    for place in draw.sample(range(len(data)), len(data) // 4):
        data[place] ^= 0x80
    run["inputs"][0] = data.hex()


def duration(bundle: BundleFiles, draw: Random) -> None:
    """A run with more instructions than the bound."""
    runs = [run for run in bundle.facts["vectors"] if "instructions" in run]
    run = draw.choice(runs)
    run["instructions"] += sum(bundle.facts["executions"].values()) // draw.randint(
        2, 9
    )


def parameters(bundle: BundleFiles, draw: Random) -> None:
    """A wrong shift, or a wrong column of a table."""
    claim = draw.choice(bundle.claims("requantization"))
    if draw.random() < 0.5:
        claim["shift"] += draw.choice((-1, 1))
    else:
        claim["left"]["values"][0] += draw.choice((-1, 1))


def table_order(bundle: BundleFiles, draw: Random) -> None:
    """An element of a table that has another value, or none, so that one is lost."""
    orders = dict(np.load(io.BytesIO(bundle.files["orders.npz"])))
    numbers = orders[draw.choice(sorted(orders))]
    first, second = draw.sample(range(len(numbers)), 2)
    if draw.random() < 0.5:
        numbers[first] = numbers[second]
    else:
        numbers[first, 0] = -1
    data = io.BytesIO()
    np.savez_compressed(data, **orders)
    bundle.files["orders.npz"] = data.getvalue()


def order(bundle: BundleFiles, draw: Random) -> None:
    """A step that is missing."""
    steps = bundle.facts["steps"]
    del steps[draw.randrange(len(steps))]


def buffers(bundle: BundleFiles, draw: Random) -> None:
    """A tensor that no buffer holds.

    A tensor that shares its buffer with a reshaped one is no fault: it is held.
    """
    alone = [
        b for b in bundle.facts["buffers"].values() if len(b.get("tensors", ())) == 1
    ]
    draw.choice(alone)["tensors"] = []


def alarms(bundle: BundleFiles, draw: Random) -> None:
    """A log of Frama-C with alarms, or with unreached statements."""
    log = bundle.facts["analysis"]["log"]
    text = bundle.files[log].decode()
    if draw.random() < 0.5:
        text = re.sub(
            r"^( +)0 alarms", rf"\g<1>{draw.randint(1, 99)} alarms", text, flags=re.M
        )
    else:
        text = re.sub(
            r"(\d+) statements reached",
            f"{draw.randint(1, 900)} statements reached",
            text,
        )
    bundle.files[log] = text.encode()


KINDS: tuple[Plant, ...] = (
    instruction,
    multiplier,
    constant,
    shift,
    model_constant,
    offset,
    size,
    rounding,
    executions,
    missing_executions,
    stack,
    recorded_output,
    recorded_layer,
    recorded_input,
    duration,
    parameters,
    table_order,
    order,
    buffers,
    alarms,
)


def planted(original: BundleFiles, kind: Plant, count: int) -> Iterator[BundleFiles]:
    """Yield `count` bundles, each with one fault of a kind."""
    for number in range(count):
        bundle = original.copy()
        kind(bundle, Random(f"{kind.__name__} {number}"))
        yield bundle
