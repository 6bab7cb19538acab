"""Sweeps of random graphs with the operators of each frontend, and their report.

    PYTHONPATH=toolchain python -m tests.fuzz.operator_sweeps [--graphs 1000]
    PYTHONPATH=toolchain python -m tests.fuzz.operator_sweeps --board microbit --graphs 40

The first form compares 1,000 graphs of each frontend, in equal parts of its generators,
on this PC with LiteRT or ONNX Runtime. Names of generators as arguments choose some,
and --first other seeds. The report lists the graphs that the compiler or the runtime
refuses, or that are too large for the board, with the reasons. The command fails if a
graph differs, a process ends early, or the compiler refuses 5 % of the graphs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

from firmwright.base.errors import FirmwrightError
from tests.fuzz.merged_graphs import CALLS_PER_IMAGE, Sweep
from tests.fuzz.random_tflite import random_graph
from tests.fuzz.random_tflite_layers import random_operator_graph
from tests.fuzz.random_tflite_rare import random_rare_graph
from tests.fuzz.random_tflite_states import random_stateful_graph
from tests.onnx.random_classical_models import random_classical_model
from tests.onnx.random_flow_graphs import random_flow_model
from tests.onnx.random_further_graphs import random_further_model
from tests.onnx.random_layer_graphs import random_float_model
from tests.onnx.random_qdq_graphs import random_qdq_model
from tests.onnx.random_qoperator_graphs import random_qoperator_model
from tests.onnx.random_rare_graphs import random_rare_model

GENERATORS: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "tflite-plain": ("litert", random_graph),
    "tflite-layers": ("litert", random_operator_graph),
    "tflite-rare": ("litert", random_rare_graph),
    "tflite-state": ("litert", random_stateful_graph),
    "onnx-layers": ("onnxruntime", random_float_model),
    "onnx-rare": ("onnxruntime", random_rare_model),
    "onnx-further": ("onnxruntime", random_further_model),
    "onnx-bodies": ("onnxruntime", random_flow_model),
    "onnx-qdq": ("onnxruntime", random_qdq_model),
    "onnx-qoperator": ("onnxruntime", random_qoperator_model),
    "onnx-classical": ("onnxruntime", random_classical_model),
}
"""The reference runtime and the function of each generator."""
GRAPHS, BLOCK = 1000, 25
CALLS_PER_BOARD_IMAGE = 60
REFUSED_SHARE = 0.05
"""The share of refused graphs that is too large."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some seeds of a generator, which one process compares."""

    name: str
    seeds: Sequence[int]
    board: str


@dataclass
class Report:
    """The results of a generator, and the blocks whose process ended early."""

    sweep: Sweep
    ended: list[str] = field(default_factory=list)


def sweep_of(name: str, board: str = "host") -> Sweep:
    """Return the empty sweep of a generator."""
    runtime, make = GENERATORS[name]
    calls = CALLS_PER_IMAGE if board == "host" else CALLS_PER_BOARD_IMAGE
    return Sweep(runtime, make, board, calls)


def run_block(block: Block) -> Sweep:
    return sweep_of(block.name, block.board).run(block.seeds)


def run_alone(block: Block) -> Sweep | str:
    """Run a block in a process of its own; return why it ended if it did."""
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            return pool.submit(run_block, block).result()
    except (BrokenProcessPool, FirmwrightError) as error:
        return f"seeds {block.seeds[0]} to {block.seeds[-1]}: {error}"


def blocks(names: Sequence[str], graphs: int, first: int, board: str) -> list[Block]:
    """Return the blocks of `graphs` seeds of each frontend, shared by its generators."""
    found: list[Block] = []
    for frontend in ("tflite", "onnx"):
        own = [name for name in names if name.startswith(frontend)]
        for index, name in enumerate(own):
            count = graphs // len(own) + (index < graphs % len(own))
            for start in range(first, first + count, BLOCK):
                seeds = range(start, min(start + BLOCK, first + count))
                found.append(Block(name, seeds, board))
    return found


def report_lines(reports: dict[str, Report]) -> Iterator[str]:
    """Yield a table of all generators, and the reasons of what was not compared."""
    yield "| graphs | compared | refused | not run by the reference | too large | differing |"
    yield "|---|--:|--:|--:|--:|--:|"
    for name, report in reports.items():
        own = report.sweep
        numbers = (
            own.compared,
            own.refused_models,
            len(own.not_computed),
            len(own.too_large),
            len(own.differing),
        )
        yield f"| {name} | {' | '.join(map(str, numbers))} |"
    for name, report in reports.items():
        own = report.sweep
        for reason, count in own.refused.most_common():
            yield f"{name}, refused {count} times: {reason}"
        for what, texts in (
            ("not run", own.not_computed),
            ("too large", own.too_large),
            ("differs", own.differing),
            ("ended", report.ended),
        ):
            for text in texts:
                yield f"{name}, {what}: {' '.join(text.split())[:300]}"


def is_passed(reports: dict[str, Report]) -> bool:
    refused = sum(report.sweep.refused_models for report in reports.values())
    compared = sum(report.sweep.compared for report in reports.values())
    if any(report.sweep.differing or report.ended for report in reports.values()):
        return False
    return compared > 0 and refused < REFUSED_SHARE * (refused + compared)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("generators", nargs="*", help=f"of {', '.join(GENERATORS)}")
    parser.add_argument("--graphs", type=int, default=GRAPHS)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--board", default="host")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args(words)
    names = args.generators or list(GENERATORS)
    unknown = sorted(set(names) - set(GENERATORS))
    if unknown:
        parser.error(f"no generator {unknown[0]}; there are {', '.join(GENERATORS)}")
    work = blocks(names, args.graphs, args.first, args.board)
    reports = {name: Report(sweep_of(name, args.board)) for name in names}
    begun = time.monotonic()
    with ThreadPoolExecutor(args.jobs) as executor:
        for block, result in zip(work, executor.map(run_alone, work), strict=True):
            report = reports[block.name]
            match result:
                case str():
                    report.ended.append(result)
                case Sweep():
                    report.sweep.add(result)
            print(
                f"{time.monotonic() - begun:.0f} s: {block.name} {block.seeds[0]}-"
                f"{block.seeds[-1]}, {report.sweep.compared} compared",
                file=sys.stderr,
            )
    print("\n".join(report_lines(reports)))
    return 0 if is_passed(reports) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
