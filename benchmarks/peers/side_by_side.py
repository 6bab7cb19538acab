# ruff: noqa: INP001  # a script, not a package
r"""Measure networks beside TensorFlow Lite Micro, and write the table and its page.

    python benchmarks/peers/side_by_side.py measure MODELS IMAGES --cores cortex-m4
    python benchmarks/peers/side_by_side.py measure MODELS          # ours alone
    python benchmarks/peers/side_by_side.py page

MODELS is a folder with the files that networks.csv names by their SHA-256, whose first
ten digits are also the file's name; IMAGES has an image NETWORK.CORE.elf for each
network and `empty.CORE.elf`, whose size is subtracted: programs of tflm_harness.py,
linked with a build of TFLM. Each row of side_by_side.csv is replaced as soon as it is
measured; without IMAGES, the recorded figures of the peer are kept. `page` writes
docs/reference/side-by-side.md from the file.

- Instructions: one run, counted by the same plugin of QEMU on the same input.
- RAM: the workspace of all pools; for TFLM `arena_used_bytes()`, in every row.
- Flash: the linked image less the same one without a model; the model is included.
- Outputs: those of the first run, bit by bit; `tflm` if they are equal with
  `--numerics tflm`, as for operators that TFLM rounds otherwise than LiteRT.
"""

import argparse
import csv
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from enum import StrEnum
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from image_run import TIMEOUT_S, flash_bytes, machine_command, run_image

from firmwright.base.cache_folder import cache_root
from firmwright.base.dtypes import Array
from firmwright.base.errors import DeviceError, FirmwrightError
from firmwright.base.file_lock import hold_lock
from firmwright.boards import load_board
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import ModelSession, open_session
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.model.model_inspection import inspect_module
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IoTensor

HERE = Path(__file__).parent
TABLE = HERE / "side_by_side.csv"
NETWORKS = HERE / "networks.csv"
PAGE = HERE.parent.parent / "docs/reference/side-by-side.md"
BOARDS = {
    "cortex-m4": "mps2-an386",
    "cortex-m55": "mps3-an547",
    "cortex-m0": "mps2-cortex-m0",
    "rv32imac": "qemu-riscv32-virt",
    "rv32imac_zve32x": "qemu-riscv32-virt-v",
}
"""The emulated board of each core; that of the M0 is in the folder boards."""
CONSTANTS_OUTSIDE = {
    ("mobilenet_v2_160", "cortex-m55"): ("mps3-an547-constants", "fsram")
}
"""The board and its constant pool for networks whose program exceeds the core's flash.

The peer's image has its model in the same memory, so that both run from the same ones.
"""
DIGITS = 10
START, END = "<!-- side by side -->", "<!-- end -->"


class Equality(StrEnum):
    """Whether our outputs are the peer's, by default or with `--numerics tflm`.

    `CMSIS_NN` are equal to those of TFLM with CMSIS-NN, while the peer's differ.
    """

    EQUAL = "="
    TFLM = "tflm"
    CMSIS_NN = "CMSIS-NN"
    DIFFERENT = "differ"


@dataclass(frozen=True, slots=True)
class Network:
    """A public network; `source` is its repository and path, or the script."""

    name: str
    sha256: str
    source: str


@dataclass(frozen=True, slots=True)
class Figures:
    """What one system takes: instructions of a run, bytes; `outputs` is a digest."""

    instructions: int
    ram_bytes: int
    flash_bytes: int
    outputs: str


@dataclass(frozen=True, slots=True)
class Row:
    """A network on a core; the fields are the columns of the file.

    `weights_bytes` are the constants of the model's operators, in its element types.
    """

    network: str
    core: str
    macs: int
    weights_bytes: int
    instructions: int
    workspace_bytes: int
    flash_bytes: int
    peer: str
    peer_instructions: int
    peer_arena_bytes: int
    peer_flash_bytes: int
    peer_outputs: str
    outputs: str

    @property
    def ratios(self) -> tuple[float, float, float]:
        """Return ours over theirs: instructions, RAM, flash."""
        return (
            self.instructions / self.peer_instructions,
            self.workspace_bytes / self.peer_arena_bytes,
            self.flash_bytes / self.peer_flash_bytes,
        )

    @property
    def flash_floor(self) -> float:
        """Return the ratio of flash if our code took no bytes.

        Weights that ours does not store (those of constant channels) do not count.
        """
        return min(self.weights_bytes, self.flash_bytes) / self.peer_flash_bytes

    @property
    def is_behind(self) -> bool:
        return max(self.ratios) > 1

    @property
    def peer_figures(self) -> Figures:
        return Figures(
            self.peer_instructions,
            self.peer_arena_bytes,
            self.peer_flash_bytes,
            self.peer_outputs,
        )


def read_networks() -> tuple[Network, ...]:
    with NETWORKS.open(encoding="utf-8", newline="") as file:
        return tuple(Network(**row) for row in csv.DictReader(file))


def read_rows() -> tuple[Row, ...]:
    if not TABLE.is_file():
        return ()
    kinds = {field.name: field.type for field in fields(Row)}
    with TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(
            Row(**{name: kinds[name](cell) for name, cell in row.items()})  # type: ignore[operator]  # int and str
            for row in csv.DictReader(file)
        )


def write_row(row: Row) -> None:
    """Replace the row of the same network and core, in the order of the networks."""
    names = [network.name for network in read_networks()]
    cores = list(BOARDS)

    def place(other: Row) -> tuple[int, int]:
        return cores.index(other.core), names.index(other.network)

    with hold_lock(cache_root() / "side_by_side.lock"):  # processes for several cores
        kept = [other for other in read_rows() if place(other) != place(row)]
        with TABLE.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([field.name for field in fields(Row)])
            writer.writerows(map(astuple, sorted([*kept, row], key=place)))


def digest(outputs: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(outputs)).hexdigest()[:DIGITS]


def input_values(tensor: IoTensor) -> Array:
    """Return the input of the images: (37 i + 11) mod 256 - 128 for element i."""
    count = int(np.prod(tensor.type.shape, dtype=np.int64))
    value = (np.arange(count, dtype=np.int64) * 37 + 11) % 256 - 128
    dtype = tensor.type.dtype.np
    match tensor.type.dtype.name:
        case "float32":
            scaled = value / 128
        case "int16":
            scaled = value * 256
        case "uint8":
            scaled = value + 128
        case _:
            scaled = value
    return scaled.astype(dtype).reshape(tensor.type.shape)


def measure_peer(folder: Path, network: str, core: str) -> Figures:
    """Run an image of the peer; raise DeviceError if there is none or it fails."""
    elf = folder / f"{network}.{core}.elf"
    if not elf.is_file():
        raise DeviceError(f"there is no {elf.name}.")
    run = run_image(elf, machine_command(load_board(BOARDS[core])))
    arena = re.search(r"^arena (\w+)$", run.text, re.MULTILINE)
    if arena is None or not run.text.rstrip().endswith("end"):
        raise DeviceError(f"{elf.name} prints {run.text[-200:]!r}.")
    outputs = re.findall(r"^output (\w+)$", run.text, re.MULTILINE)
    empty = flash_bytes(folder / f"empty.{core}.elf")
    return Figures(
        run.instructions,
        int(arena[1], 16),
        flash_bytes(elf) - empty,
        digest([bytes.fromhex(text) for text in outputs]),
    )


def measure_ours(network: Network, model: Path, core: str, numerics: str) -> Figures:
    board, pool = CONSTANTS_OUTSIDE.get((network.name, core), (BOARDS[core], ""))
    pools = (PoolInfo(pool, access="ro"),) if pool else ()
    compiled = compile_for(
        load_model(model), board, numerics=numerics, const_pools=pools
    )
    io = compiled.module.io
    sample = {tensor.name: input_values(tensor) for tensor in io.inputs}
    image = build_image(compiled)
    outputs: list[str] = []

    def keep_outputs(session: ModelSession) -> None:
        session.device.reset()
        (found,) = session.run_all([sample])
        outputs.append(digest([found[tensor.name].tobytes() for tensor in io.outputs]))

    counts = measure_instructions(
        compiled,
        image=image,
        sample=sample,
        open_with=partial(open_session, timeout_s=TIMEOUT_S),
        after_run=keep_outputs,
    )
    return Figures(
        counts.total.instructions,
        compiled.summary.workspace_bytes,
        image.model_flash_bytes,
        outputs[0],
    )


def compare_outputs(
    ours: Figures, theirs: Figures, network: Network, model: Path, core: str
) -> Equality:
    """Compare with the peer's outputs, then with those that TFLM has on the M4."""
    if ours.outputs == theirs.outputs:
        return Equality.EQUAL
    recorded = {(row.network, row.core): row.peer_outputs for row in read_rows()}
    on_m4 = recorded.get((network.name, "cortex-m4"))
    if ours.outputs == on_m4:
        return Equality.CMSIS_NN
    of_tflm = measure_ours(network, model, core, "tflm").outputs
    if of_tflm == theirs.outputs:
        return Equality.TFLM
    return Equality.CMSIS_NN if of_tflm == on_m4 else Equality.DIFFERENT


def measure_network(
    network: Network, model: Path, core: str, theirs: Figures, peer: str
) -> Row:
    """Measure ours beside the peer's figures."""
    ours = measure_ours(network, model, core, "litert")
    equality = compare_outputs(ours, theirs, network, model, core)
    inspected = inspect_module(load_model(model).module)
    return Row(
        network=network.name,
        core=core,
        macs=inspected.macs or 0,
        weights_bytes=inspected.parameters_bytes,
        instructions=ours.instructions,
        workspace_bytes=ours.ram_bytes,
        flash_bytes=ours.flash_bytes,
        peer=peer,
        peer_instructions=theirs.instructions,
        peer_arena_bytes=theirs.ram_bytes,
        peer_flash_bytes=theirs.flash_bytes,
        peer_outputs=theirs.outputs,
        outputs=equality.value,
    )


def measure_all(args: argparse.Namespace) -> None:
    for core in args.cores:
        for network in read_networks():
            if args.only and network.name not in args.only:
                continue
            recorded = {(row.network, row.core): row for row in read_rows()}
            earlier = recorded.get((network.name, core))
            if args.missing and earlier is not None:
                continue
            model = args.models / f"{network.sha256[:DIGITS]}.tflite"
            if args.images is None and earlier is None:
                continue
            try:
                if args.images is not None:
                    peer = args.peer or (earlier.peer if earlier else "")
                    theirs = measure_peer(args.images, network.name, core)
                else:
                    peer, theirs = earlier.peer, earlier.peer_figures
                row = measure_network(network, model, core, theirs, peer)
            except FirmwrightError as error:
                print(f"{core} {network.name}: {error}", flush=True)
                continue
            write_row(row)
            shown = " ".join(f"{ratio:.2f}" for ratio in row.ratios)
            print(f"{core} {network.name}: {shown} {row.outputs}", flush=True)


def _count(value: int) -> str:
    """Return a count in the unit that suits it, with about three digits."""
    if value >= 1_000_000:
        return f"{value / 1e6:.3g} M" if value < 999e6 else f"{value / 1e6:,.0f} M"
    return f"{value:,}"


def _ratio(value: float) -> str:
    return f"**{value:.2f}**" if value > 1 else f"{value:.2f}"


def make_table(core: str, rows: Sequence[Row]) -> str:
    """Return the table of one core, the least ratio of instructions first."""
    head = (
        "network",
        "MACs",
        "instructions",
        "TFLM",
        "ratio",
        "RAM",
        "TFLM",
        "ratio",
        "flash",
        "TFLM",
        "ratio",
        "weights",
        "outputs",
    )
    lines = [head, ("---", *["--:"] * (len(head) - 2), "---")]
    for row in sorted(rows, key=lambda row: row.ratios[0]):
        instructions, ram, flash = map(_ratio, row.ratios)
        lines.append(
            (
                row.network,
                _count(row.macs),
                _count(row.instructions),
                _count(row.peer_instructions),
                instructions,
                f"{row.workspace_bytes:,}",
                f"{row.peer_arena_bytes:,}",
                ram,
                f"{row.flash_bytes:,}",
                f"{row.peer_flash_bytes:,}",
                flash,
                f"{row.weights_bytes:,}",
                row.outputs,
            )
        )
    return f"## {core}\n\n{_markdown(lines)}\n"


def make_summary(by_core: Mapping[str, Sequence[Row]]) -> str:
    """Return the table of the medians, and of the networks that are behind."""
    medians = ("instructions", "RAM", "flash", "floor of flash")
    lines = [("core", "peer", "networks", *medians, "behind")]
    lines.append(("---", "---", *["--:"] * (len(medians) + 1), "---"))
    for core, rows in by_core.items():
        columns = zip(*((*row.ratios, row.flash_floor) for row in rows), strict=True)
        shown = [_ratio(median(ratios)) for ratios in columns]
        behind = ", ".join(row.network for row in rows if row.is_behind)
        (peer,) = {row.peer for row in rows}
        lines.append((core, peer, str(len(rows)), *shown, behind or "none"))
    return f"{_markdown(lines)}\n"


def make_list_of_missing(by_core: Mapping[str, Sequence[Row]]) -> str:
    """Return a sentence for each core that names the networks without a row."""
    lines: list[str] = []
    for core, rows in by_core.items():
        found = {row.network for row in rows}
        names = [item.name for item in read_networks() if item.name not in found]
        if names:
            lines.append(f"Without a row on {core}: {', '.join(names)}.\n")
    return "\n".join(lines)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def make_page(text: str, rows: Sequence[Row]) -> str:
    """Return the page with the tables of the rows between its markers."""
    by_core: dict[str, list[Row]] = {}
    for row in rows:
        by_core.setdefault(row.core, []).append(row)
    parts = [make_summary(by_core), make_list_of_missing(by_core)]
    parts += [make_table(core, found) for core, found in by_core.items()]
    tables = "\n".join(filter(None, parts))
    before, _, rest = text.partition(f"{START}\n")
    _, _, after = rest.partition(END)
    return f"{before}{START}\n\n{tables}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("measure")
    measure.add_argument("models", type=Path)
    measure.add_argument("images", type=Path, nargs="?")
    measure.add_argument("--cores", nargs="*", default=list(BOARDS), choices=BOARDS)
    measure.add_argument("--only", nargs="*", metavar="NETWORK")
    measure.add_argument("--missing", action="store_true", help="rows not recorded")
    measure.add_argument("--peer", default="", help="the peer's parts and commits")
    commands.add_parser("page")
    args = parser.parse_args()
    os.environ["FIRMWRIGHT_BOARDS"] = str(HERE / "boards")
    if args.command == "measure":
        measure_all(args)
    else:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(make_page(text, read_rows()), encoding="utf-8")


if __name__ == "__main__":
    main()
