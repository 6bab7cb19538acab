"""Models in which defects are planted, and the check of their C against the reference.

A subject is a model (`digits`, `kws`, `net SEED`) compiled for a target, with samples
and the reference values of every layer. `judged` builds a module's C under
AddressSanitizer and UBSan with a harness that prints every operator's output, and
compares all of it. The unmodified module is checked when a subject is created.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from firmwright.artifacts import SourceTree
from firmwright.base.errors import FirmwrightError
from firmwright.codegen.emit_options import EmitOptions
from firmwright.codegen.model_emitter import emit_model
from firmwright.flows.board.model_session import make_library_model
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.reference_outputs import (
    ReferenceOutputs,
    compute_reference,
)
from firmwright.flows.samples.sample_batches import Tensors, generate_samples
from firmwright.flows.verify.first_divergence import (
    _comparable_operators,
    _ComparableOperator,
)
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.tir.verify import verify_module
from firmwright.ops.registry import op_table
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.pipeline import Compilation, Options, compile_model, remaining_passes
from firmwright.schedules.registry import INTRINSICS
from tests.fuzz.random_networks import random_network
from tests.mutation.mutants import SURVIVED, Outcome, caught

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "01_digits"
TIMEOUT_S = 60
FLAGS = ("-std=c99", "-O1", "-ffp-contract=off", "-w")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
PROBE = """
#include <stdint.h>
#include <stdio.h>
static void dump(uint32_t index, uint32_t phase, const void *data, uint32_t bytes)
{
    if (phase == 1) {
        fwrite(&index, 4, 1, stdout);
        fwrite(&bytes, 4, 1, stdout);
        fwrite(data, 1, bytes, stdout);
    }
}
"""


@dataclass(frozen=True)
class Subject:
    """An unmodified compilation with its samples and reference values."""

    name: str
    compiled: Compilation
    unplanned: IRModule
    samples: tuple[Tensors, ...]
    folder: Path

    @cached_property
    def reference(self) -> ReferenceOutputs:
        return compute_reference(self.compiled, self.samples, layers=True)

    @cached_property
    def layers(self) -> tuple[_ComparableOperator, ...]:
        return tuple(_comparable_operators(self.compiled, self.reference.layers[0]))

    def emitted(self, module: IRModule) -> SourceTree:
        """Return the module's generated C."""
        table = collect_intrinsics(module, INTRINSICS)
        return emit_model(module, table, EmitOptions(prefix="mutant", tool_version="0"))

    def planned(self, module: IRModule) -> IRModule:
        """Run the remaining passes on an unplanned module, without checks."""
        for step in remaining_passes(module, self.compiled.options):
            module = step(module).with_stage(step.name)
        return module

    def judged(self, tree: SourceTree) -> Outcome:
        """Build, run and compare."""
        return judge_tree(self, tree)

    def with_sample(self, sample: Tensors) -> Subject:
        """Return the subject judged by one new sample."""
        return replace(self, samples=(sample,))


def subject(
    name: str,
    target: str,
    folder: Path,
    *,
    samples: int,
    devices: tuple[str, ...] = (),
    pools: tuple[PoolInfo, ...] = (),
) -> Subject:
    """Return a model compiled for the host, with `target`'s kernels or `devices`."""
    options, source = Options(target=target, devices=devices, pools=pools), None
    if name.startswith("net "):
        module = random_network(int(name.removeprefix("net ")))
    else:
        model = load_model(
            DIGITS / "digits.tflite" if name == "digits" else models_file(name)
        )
        module, source = model.module, model.source
    before: list[IRModule] = []

    def watch(step: str, seen: IRModule) -> None:
        if step == "cache-constants-in-ram":
            before.append(seen)

    compiled = compile_model(module, options, source=source, watch=watch)
    given = generate_samples(compiled.module.io.inputs, samples).samples
    if name == "digits":
        given = (*given, *_written_digits(samples))
    place = folder / f"{name} {target}".replace(" ", "_")
    place.mkdir(parents=True)
    return Subject(name, compiled, before[0], given, place)


def check_sound(subject: Subject) -> None:
    """Check that the subject passes everything that its mutants are judged by."""
    module = subject.compiled.module
    for found in (checked(subject, module), subject.judged(subject.emitted(module))):
        assert found.survived, f"the sound {subject.name} is refused: {found}"


def _written_digits(count: int) -> tuple[Tensors, ...]:
    images = np.load(DIGITS / "digits_test.npz")["input_1"]
    return tuple({"image": image} for image in images[:count])


def models_file(name: str) -> Path:
    """Return the path of an MLPerf Tiny model in the test model folder."""
    folder = Path(
        os.environ.get("FIRMWRIGHT_MODELS", ROOT.parent / "shared" / "models")
    )
    return (
        folder / {"kws": "kws_ref_model.tflite", "ww": "str_ww_ref_model.tflite"}[name]
    )


def judge_tree(subject: Subject, tree: SourceTree) -> Outcome:
    """Run the C compiler and the sanitizers, then compare all values of all layers."""
    tree.write(subject.folder)
    program = subject.folder / "mutant"
    (subject.folder / "probe.h").write_text(PROBE + "#define MUTANT_PROBE dump\n")
    (subject.folder / "main.c").write_text(_harness(subject))
    sources = [subject.folder / "main.c", subject.folder / "model" / "mutant.c"]
    words = [
        "gcc",
        *FLAGS,
        *SANITIZERS,
        f"-I{subject.folder}",
        f"-I{subject.folder / 'model'}",
    ]
    words += [
        '-DMUTANT_PROBE_HEADER="probe.h"',
        *map(str, sources),
        "-o",
        str(program),
        "-lm",
    ]
    built = subprocess.run(words, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        return caught("C compiler", built.stderr)
    return _run(subject, program)


def _run(subject: Subject, program: Path) -> Outcome:
    tensors = make_library_model(subject.compiled).inputs
    data = b"".join(
        sample[t.name].tobytes() for sample in subject.samples for t in tensors
    )
    try:
        ran = subprocess.run(
            [str(program)],
            input=data,
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        return caught("time limit", error)
    if ran.returncode != 0:
        said = ran.stderr.decode(errors="replace")
        checker = (
            "UBSan"
            if "runtime error" in said
            else "ASan"
            if "Sanitizer" in said
            else "run"
        )
        lines = [
            line
            for line in said.splitlines()
            if "ERROR" in line or "runtime error" in line
        ]
        return caught(checker, lines[0] if lines else f"status {ran.returncode}")
    return _compared(subject, ran.stdout)


def _compared(subject: Subject, stdout: bytes) -> Outcome:
    layers = {one.index: one for one in subject.layers}
    at = 0
    for number, (outputs, known) in enumerate(
        zip(subject.reference.outputs, subject.reference.layers, strict=True)
    ):
        seen, at, found = _sample(stdout, at)
        wanted = b"".join(value.tobytes() for value in outputs.values())
        for index, one in layers.items():
            if seen.get(index) != one.expected(known).tobytes():
                return caught(
                    _by(subject), f"sample {number}, layer {one.layer} differs"
                )
        if found != wanted:
            return caught(_by(subject), f"sample {number}, the outputs differ")
    return SURVIVED


def _by(subject: Subject) -> str:
    return f"verify: {subject.reference.name.split()[0]}"


def _sample(stdout: bytes, at: int) -> tuple[Mapping[int, bytes], int, bytes]:
    """Return each operator's outputs, the next sample's start, and model outputs."""
    seen: dict[int, bytes] = {}
    while at < len(stdout):
        index, size = (
            int.from_bytes(stdout[p : p + 4], "little") for p in (at, at + 4)
        )
        data = stdout[at + 8 : at + 8 + size]
        at += 8 + size
        if index == 0xFFFFFFFF:
            return seen, at, data
        seen[index] = seen.get(index, b"") + data
    return seen, at, b""


def _harness(subject: Subject) -> str:
    """Return a C program that runs all samples and writes outputs after probe data."""
    model = make_library_model(subject.compiled)
    total = sum(tensor.size_bytes for tensor in model.outputs)
    reads = [
        f"        if (fread(in.{t.field}, 1, {t.size_bytes}, stdin) != {t.size_bytes}) return 0;"
        for t in model.inputs
    ]
    writes = [
        f"        fwrite(out.{t.field}, 1, {t.size_bytes}, stdout);"
        for t in model.outputs
    ]
    lines = [
        '#include "mutant.h"',
        "#include <stdio.h>",
        "int main(void)",
        "{",
        "    struct mutant_workspace_pools pools;",
        "    struct mutant_inputs in;",
        "    struct mutant_outputs out;",
        pools_of(subject),
        *(["    mutant_reset(&pools);"] if model.state else []),
        "    mutant_map_io(&pools, &in, &out);",
        "    for (;;) {",
        *reads,
        "        if (mutant_run(&in, &out, &pools) != 0) return 3;",
        f"        const uint32_t head[2] = {{0xffffffffu, {total}}};",
        "        fwrite(head, 4, 2, stdout);",
        *writes,
        "    }",
        "}",
        "",
    ]
    return "\n".join(lines)


def pools_of(subject: Subject) -> str:
    """Return C lines that give a `struct mutant_workspace_pools` its memory."""
    return "\n".join(
        f"    static uint8_t {pool}[MUTANT_{pool.upper()}_SIZE] __attribute__((aligned(64)));\n"
        f"    pools.{pool} = {pool};"
        for pool, _ in make_library_model(subject.compiled).pools
    )


def checked(subject: Subject, module: IRModule) -> Outcome:
    """Judge by the IR verifier, which runs in every compilation."""
    try:
        verify_module(module, op_table(), collect_intrinsics(module, INTRINSICS))
    except FirmwrightError as error:
        return caught("IR verifier", str(error).removeprefix(f"{module.name}: "))
    return SURVIVED


def with_module(compiled: Compilation, module: IRModule) -> Compilation:
    """Return the compilation with another module."""
    return replace(compiled, module=module)
