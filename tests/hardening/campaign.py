"""Counts what random single-bit flips do to a model's run on mps2-an386 in QEMU.

PYTHONPATH=toolchain python -m tests.hardening.campaign MODEL FLIPS [--plain] [--seed N]

FLIPS bits are flipped in each place, at random times of the run. `--plain` counts the
same without `--harden`. It prints the table of docs/reference/hardening.md.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from firmwright.artifacts import SymbolSize
from firmwright.compilation_summary import PlannedBuffer
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.pipeline import Compilation
from tests.hardening.qemu_injector import (
    REGISTERS,
    CorruptedFirmware,
    Effect,
    Flip,
    Interface,
)

BOARD = "mps2-an386"
INSTRUCTIONS_PER_TICK = 40
PLACES = ("weights", "activations", "scratch", "registers", "stack")
_SLOT = re.compile(r"/\* (\d+): [^;]*;[^;]*?(\d+)u, sums \+ \2[,)]")


@dataclass(frozen=True)
class Campaign:
    """A firmware with the places in which its bits are flipped."""

    compiled: Compilation
    firmware: CorruptedFirmware
    pool_address: int
    constants: tuple[SymbolSize, ...]
    rng: np.random.Generator
    places: list[str] = field(default_factory=list)
    """Where bits of the workspace were flipped."""

    def count(self, place: str, flips: int) -> Counter[Effect]:
        counts: Counter[Effect] = Counter()
        for _ in range(flips):
            effect = self.flip(place)
            counts[effect] += 1
            if effect is Effect.SILENT and place == "activations":
                print(f"silent: {self.places[-1]}", flush=True)
        return counts

    def flip(self, place: str) -> Effect:
        match place:
            case "weights":
                return self._flip_weight()
            case "registers":
                flip: Flip = self._flip_register
            case "stack":
                flip = self._flip_stack
            case _:
                flip = partial(self._flip_workspace, is_scratch=place == "scratch")
        effect = self.firmware.inject(self.rng, flip)
        if place in ("registers", "stack"):
            self.firmware.restore()
        return effect

    def _flip_weight(self) -> Effect:
        """Flip a bit that stays for the next run, which must find it."""
        sizes = np.array([item.size_bytes for item in self.constants])
        symbol = self.constants[self.rng.choice(len(sizes), p=sizes / sizes.sum())]
        address = symbol.address + int(self.rng.integers(symbol.size_bytes))
        bit = int(self.rng.integers(8))

        def flip(firmware: CorruptedFirmware) -> None:
            firmware.flip_memory(address, bit)

        effect = self.firmware.inject(self.rng, flip)
        if effect is Effect.MASKED:
            effect = self.firmware.run()
        if effect in (Effect.MASKED, Effect.SILENT, Effect.DETECTED):
            flip(self.firmware)
        return effect

    def _flip_register(self, firmware: CorruptedFirmware) -> None:
        number = int(self.rng.choice(REGISTERS))
        firmware.flip_register(number, int(self.rng.integers(32)))

    def _flip_stack(self, firmware: CorruptedFirmware) -> None:
        stack = firmware.used_stack
        if stack:
            address = int(self.rng.choice(stack))
            firmware.flip_memory(address, int(self.rng.integers(8)))

    def _flip_workspace(self, firmware: CorruptedFirmware, *, is_scratch: bool) -> None:
        buffers = list(self._live_buffers(is_scratch=is_scratch))
        if buffers:
            sizes = np.array([buffer.size_bytes for buffer in buffers])
            buffer = buffers[self.rng.choice(len(sizes), p=sizes / sizes.sum())]
            place = buffer.offset + int(self.rng.integers(buffer.size_bytes))
            bit = int(self.rng.integers(8))
            firmware.flip_memory(self.pool_address + place, bit)
            where = f"{buffer.name} + {place - buffer.offset}, bit {bit}"
            self.places.append(f"{where}, in {firmware.function}")

    def _live_buffers(self, *, is_scratch: bool) -> Iterator[PlannedBuffer]:
        """Yield the buffers that are needed while the present operator runs."""
        plan = self.compiled.summary.plan
        assert plan is not None
        operator = self._present_operator()
        times = [t for t, op in enumerate(plan.operator_by_time) if op == operator]
        for buffer in plan.buffers:
            is_live = any(buffer.lives_at(time) for time in times)
            if is_live and (buffer.kind == "scratch") is is_scratch:
                yield buffer

    def _present_operator(self) -> int:
        summary = self.compiled.summary
        if summary.options.get("harden"):
            assert summary.plan is not None
            source = str(self.compiled.tree.files[f"model/{summary.model}.c"])
            (sums,) = (b for b in summary.plan.buffers if b.name == "sums")
            for operator, slot in _SLOT.findall(source):
                address = self.pool_address + sums.offset + 4 * int(slot)
                if self.firmware.stub.word(address) == 0:
                    return int(operator)
            return summary.operators[-1].index
        kernel = self.firmware.function
        running = [row.index for row in summary.operators if row.kernel in kernel]
        every = [row.index for row in summary.operators]
        return int(self.rng.choice(running or every))


def start_campaign(model: Path, seed: int = 0, *, harden: bool = True) -> Campaign:
    compiled = compile_for(load_model(model), BOARD, harden=harden)
    image = build_image(compiled)
    symbols = {item.name: item for item in image.sizes.symbols}
    pool = symbols["pool_sram"].address
    io = compiled.summary.io
    sample = generate_samples(compiled.module.io.inputs, 1).samples[0]
    inputs: dict[int, bytes] = {}
    for tensor in io.inputs:
        inputs[pool + int(tensor.offset or 0)] = sample[tensor.name].tobytes()
    outputs = {pool + int(t.offset or 0): t.size_bytes for t in io.outputs}
    name = compiled.summary.model
    constants: list[SymbolSize] = []
    for item in image.sizes.symbols:
        is_own = item.name.startswith(f"{name}_") and item.kind == "rodata"
        if is_own and item.name not in (f"{name}_id", f"{name}_version"):
            constants.append(item)
    machine = compiled.board.run.machine
    firmware = CorruptedFirmware(image, machine, Interface(inputs, outputs))
    rng = np.random.default_rng(seed)
    return Campaign(compiled, firmware, pool, tuple(constants), rng)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("flips", type=int)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--places", default=",".join(PLACES))
    given = parser.parse_args()
    campaign = start_campaign(given.model, given.seed, harden=not given.plain)
    effects = tuple(Effect)
    print(f"{campaign.firmware.ticks * INSTRUCTIONS_PER_TICK:,} instructions")
    print("| place | injected |", " | ".join(effects), "|")
    for place in given.places.split(","):
        counts = campaign.count(place, given.flips)
        cells = " | ".join(f"{counts[effect]:,}" for effect in effects)
        print(f"| {place} | {given.flips:,} | {cells} |", flush=True)
    campaign.firmware.close()


if __name__ == "__main__":
    main()
