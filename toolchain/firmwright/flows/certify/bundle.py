"""Writes a proof bundle: a firmware, and what another program needs to check it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from firmwright.artifacts import Image
from firmwright.base.child_process import Word, find_program, run_program
from firmwright.base.dtypes import Array
from firmwright.base.errors import ToolFailedError, UsageError
from firmwright.base.json_input import Json
from firmwright.base.version import VERSION
from firmwright.boards import Compiler
from firmwright.build.disassembler import disassembly_of
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import SessionOpener
from firmwright.flows.certify import check_bundle as checker
from firmwright.flows.certify.facts import (
    find_buffers,
    find_layers,
    find_live_channels,
    find_steps,
    node_of,
)
from firmwright.flows.certify.run_time_errors import (
    Analysis,
    analysis_command,
    run_analysis,
    write_driver,
)
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.measure.time_bound import TimeBound, bound_time
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.pipeline import Compilation

CHECKER: Final = Path(checker.__file__)
ANALYSIS_TIMEOUT_S: Final = 1200.0
_C_FILES: Final = (".c", "_weights.h")
_COUNTED_RUNS: Final = 4
_CHECK_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class CertifyRequest:
    """How the firmware is reached, and the inputs of the recorded runs."""

    open_with: SessionOpener
    samples: Sequence[Tensors]
    compiler: Compiler | None = None
    analysis_timeout_s: float = ANALYSIS_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class ProofBundle:
    """A bundle that its checker accepted, with the lines that it printed."""

    folder: Path
    root: str
    size_bytes: int
    claims: tuple[str, ...]
    analysis: Analysis | None


def write_bundle(
    compiled: Compilation, request: CertifyRequest, folder: Path
) -> ProofBundle:
    """Write the bundle of a compilation to an empty or new `folder`, and check it.

    Raise UsageError for a model that the checker does not read, and ToolFailedError if
    it rejects the bundle.
    """
    graph = _read_graph(compiled)
    _require_empty(folder)
    image = build_image(compiled, compiler=request.compiler)
    # What has no bound is refused before anything is written.
    bound = bound_time(compiled, image=image, compiler=request.compiler)
    source_folder = folder / "source"
    compiled.save(source_folder)
    (folder / "model.tflite").write_bytes(compiled.source or b"")
    _add_image(compiled, image, folder)
    linked = checker.Firmware(image.elf.read_bytes())
    paths = [source_folder / "model" / f"{compiled.c_prefix}{end}" for end in _C_FILES]
    source = "".join(path.read_text(encoding="utf-8") for path in paths)
    steps = find_steps(compiled, graph)
    live = find_live_channels(compiled, graph)
    facts: dict[str, Json] = {
        "numerics": compiled.summary.numerics,
        "sources": [path.relative_to(folder).as_posix() for path in paths],
        "live": {tensor: list(channels) for tensor, channels in live.items()},
    }
    facts["steps"] = [{"nodes": list(nodes)} for nodes in steps]
    facts["buffers"] = find_buffers(compiled, graph, source, steps)
    network = checker.QuantizedNetwork(graph, compiled.summary.numerics, live)
    found = find_layers(compiled, network, linked, source)
    facts["layers"] = found.layers
    write_orders(found.orders, folder / "orders.npz")
    facts |= _bound_facts(compiled, linked, bound)
    runs = record_runs(compiled, graph, request.samples, request.open_with)
    counts = _count_instructions(compiled, request)
    for run, count in zip(runs, counts, strict=False):
        run["instructions"] = count
    facts["vectors"] = list(runs)
    analysis = _analyze(compiled, folder, request.analysis_timeout_s)
    if analysis is not None:
        facts["analysis"] = {
            "log": "analysis/frama-c.txt",
            "command": list(analysis.command),
        }
    _write_json(folder / "facts.json", facts)
    shutil.copyfile(CHECKER, folder / CHECKER.name)
    root = _write_manifest(compiled, folder)
    size_bytes = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    return ProofBundle(folder, root, size_bytes, _check(folder), analysis)


def write_orders(orders: Mapping[str, Array], path: Path) -> None:
    arrays: dict[str, Any] = dict(orders)
    np.savez_compressed(path, **arrays)


def _read_graph(compiled: Compilation) -> checker.Graph:
    """Return the graph that the checker reads; raise UsageError if it does not."""
    hint = "use a .tflite model with int8 operators of docs/reference/proof-bundles.md."
    if not compiled.source or compiled.source[4:8] != b"TFL3":
        what = "the checker of proof bundles reads .tflite files only."
        raise UsageError(what, where=compiled.module.name, hint=hint)
    if compiled.options.harden:
        what = "the checker of proof bundles does not read hardened firmware."
        raise UsageError(what, where=compiled.module.name, hint="leave out --harden.")
    try:
        graph = checker.Graph(compiled.source)
        checker.require_known(graph)
    except (checker.Rejected, ValueError) as error:
        raise UsageError(f"{error}.", where=compiled.module.name, hint=hint) from error
    return graph


def _require_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "a proof bundle needs a new or empty folder."
        raise UsageError(what, where=str(folder), hint="name another folder.")


def _add_image(compiled: Compilation, image: Image, folder: Path) -> None:
    target = folder / "image"
    target.mkdir()
    shutil.copyfile(image.elf, target / "firmware.elf")
    text = disassembly_of(compiled.board, image.elf)
    # The second line names the file by its path on this computer.
    lines = [line for line in text.splitlines() if "file format" not in line]
    text = "\n".join(lines) + "\n"
    (target / "disassembly.txt").write_text(text, encoding="utf-8", newline="\n")


def _bound_facts(
    compiled: Compilation, linked: checker.Firmware, bound: TimeBound
) -> dict[str, Json]:
    pattern = re.compile(rf"{compiled.c_prefix}_run(_abi_[0-9a-f]+)?")
    (name,) = filter(pattern.fullmatch, linked.symbols)
    executions: dict[str, Json] = {}
    for address, count in sorted(bound.path.counts.items()):
        if count:
            executions[str(address)] = count
    return {
        "run": name,
        "instructions": bound.instructions,
        "cycles": bound.cycles,
        "stack_bytes": bound.stack.size_bytes,
        "executions": executions,
    }


def record_runs(
    compiled: Compilation,
    graph: checker.Graph,
    samples: Sequence[Tensors],
    open_with: SessionOpener,
) -> list[dict[str, Json]]:
    """Run the firmware; return inputs, outputs and checksums of layers' results."""
    io = compiled.module.io
    runs: list[dict[str, Json]] = []
    with open_with(compiled, variant="release") as session:
        for sample in samples:
            outputs = session.device.run(sample)
            inputs = [_hex(sample[tensor.name]) for tensor in io.inputs]
            results = [_hex(outputs[tensor.name]) for tensor in io.outputs]
            runs.append({"inputs": list(inputs), "outputs": list(results)})
    tensors: dict[int, int] = {}
    for operator in compiled.summary.operators:
        node = node_of(operator)
        if node is not None and graph.nodes[node].code != checker.SOFTMAX:
            tensors[operator.index] = graph.nodes[node].outputs[0]
    with open_with(compiled, variant="profile") as session:
        for sample, run in zip(samples, runs, strict=True):
            session.device.write_inputs(sample)
            checksums = dict.fromkeys(tensors, 0)
            for index, data in session.device.taps():
                if index in checksums:
                    checksums[index] = zlib.crc32(data, checksums[index])
            run["layers"] = {str(tensors[i]): crc for i, crc in checksums.items()}
    return runs


def _count_instructions(compiled: Compilation, request: CertifyRequest) -> list[int]:
    counts: list[int] = []
    for sample in request.samples[:_COUNTED_RUNS]:
        measured = measure_instructions(
            compiled, compiler=request.compiler, sample=sample
        )
        counts.append(measured.total.instructions)
    return counts


def _hex(array: Array) -> str:
    return array.tobytes().hex()


def _analyze(compiled: Compilation, folder: Path, timeout_s: float) -> Analysis | None:
    """Analyze the C with Frama-C, if it is installed, and keep its output."""
    if not find_program("frama-c"):
        return None
    model = folder / "source" / "model"
    target = folder / "analysis"
    target.mkdir()
    driver = write_driver(model, compiled.c_prefix, target / "driver.c")
    command = analysis_command(folder, model, compiled.c_prefix, driver)
    analysis = run_analysis(command, folder, timeout_s)
    log = target / "frama-c.txt"
    log.write_text(analysis.log, encoding="utf-8", newline="\n")
    return analysis


def _write_manifest(compiled: Compilation, folder: Path) -> str:
    files: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            files[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    root = checker.merkle_root(files)
    summary = compiled.summary
    manifest: dict[str, Json] = {
        "schema": 1,
        "model": summary.model,
        "board": summary.board,
        "tool": f"firmwright {VERSION}",
        "compiler": {
            "tool": summary.compiler.tool,
            "flags": list(summary.compiler.flags),
        },
        "inline_asm": compiled.options.inline_asm,
        "files": dict(files),
        "root": root,
    }
    _write_json(folder / "bundle.json", manifest)
    return root


def _write_json(path: Path, data: Json) -> None:
    text = json.dumps(data, indent=1, sort_keys=True) + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")


def _check(folder: Path) -> tuple[str, ...]:
    """Return what the checker in the bundle prints; raise if it rejects the bundle."""
    command: list[Word] = [sys.executable, "-I", folder / CHECKER.name, folder]
    title = "the checker of the bundle"
    status, text = run_program(command, title, timeout_s=_CHECK_TIMEOUT_S)
    lines = tuple(text.splitlines())
    if status:
        what = f"the bundle was rejected: {lines[-1] if lines else ''}"
        raise ToolFailedError(what, where=str(folder), hint="report this.")
    return lines
