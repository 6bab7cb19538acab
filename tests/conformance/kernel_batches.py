"""All kernels that lowering offers for a batch of layers, as C for a test harness.

A `Batch` holds each distinct kernel once, with the layers and profiles that it must
compute, and C sources in which `conform_table` calls the kernels. Every (schedule,
configuration) is included, and the default loops. All passes of a compilation are
applied except function deduplication.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from firmwright.base.dtypes import DType
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.emit_options import EmitOptions
from firmwright.codegen.model_emitter import emit_model
from firmwright.conformance.case_tables import ConformanceCase
from firmwright.frontends.tflite.importer import import_model
from firmwright.frontends.tflite.reader import read_tflite
from firmwright.ir import tir
from firmwright.ir.core import Span
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IoBinding, IoTensor, IRModule
from firmwright.ir.pass_catalog import PASS_NAMES
from firmwright.ir.settings import NumericsProfile
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.traversal import Node, rewrite_func
from firmwright.ir.tir.verify import verify_module
from firmwright.lower.lowering import Lowering
from firmwright.lower.row_calls import make_row_call
from firmwright.ops.opdef import RowWindow
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import LoweringCandidate
from firmwright.passes import BY_NAME
from firmwright.schedules.registry import INTRINSICS, SCHEDULES
from firmwright.targets.registry import parse_target, target_features
from firmwright.usmp.memory_planning import plan_memory
from tests.ops.tflite_writer import write_cases

NAME = "layers"
ALIKE = (
    "AVERAGE_POOL_2D",
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "MAX_POOL_2D",
    "TRANSPOSE_CONV",
)
"""Operators whose kernels do not depend on the profile."""
VERDICTS = {
    0: "",
    1: "writes outside of its arguments",
    2: "writes to its input",
    3: "writes to its input and outside of its arguments",
}
"""Harness status of a run -> message."""


@dataclass(frozen=True, slots=True)
class RowBand:
    """A kernel that computes `band` rows of its layer."""

    band: int
    map: RowWindow


@dataclass(frozen=True, slots=True)
class Kernel:
    """One function with the profiles and the targets that it was offered for."""

    layer: int
    call: OpCall
    alternative: LoweringCandidate
    profiles: frozenset[NumericsProfile]
    targets: frozenset[str]
    rows: RowBand | None = None

    @property
    def schedule(self) -> str:
        return str(self.alternative.function.attrs["schedule"])


@dataclass(frozen=True, slots=True)
class Batch:
    """Kernels with their C functions and sources."""

    cases: tuple[ConformanceCase, ...]
    kernels: tuple[Kernel, ...]
    module: IRModule
    files: dict[str, str] = field(default_factory=dict)

    def function(self, kernel: int) -> tir.PrimFunc:
        found = self.module.functions[self.kernels[kernel].alternative.function.name]
        assert isinstance(found, tir.PrimFunc)
        return found

    def describe(self, kernel: int) -> str:
        """Describe a kernel for a failure message."""
        it = self.kernels[kernel]
        rows = f", {it.rows.band} rows" if it.rows else ""
        return f"{self.cases[it.layer].name}: {it.schedule}{rows} ({', '.join(sorted(it.targets))})"


def import_cases(
    cases: Sequence[ConformanceCase], numerics: NumericsProfile
) -> IRModule:
    """Import the layers side by side into one graph; call k is case k."""
    data = write_cases(cases)
    module = import_model(read_tflite(data, NAME), NAME, data, op_table())
    assert isinstance(module.entry, Function)
    assert len(module.entry.body) == len(cases)
    return module.with_numerics(numerics)


def make_batch(
    cases: Sequence[ConformanceCase],
    targets: Sequence[str],
    profiles: Sequence[NumericsProfile] = ("litert", "tflm"),
    *,
    bands: Sequence[int] = (),
    is_searched: bool = False,
    is_quick: bool = False,
    fuses: bool = False,
) -> Batch:
    """Return all kernels of `targets` for `cases`, also computing `bands` rows at once.

    With `fuses`, schedules that fuse are included regardless of the rest of the module;
    their results are within bounds, not equal. With `is_searched`, configurations that
    only tuning tries are included. Schedules depend only on features, so one lowering
    with the features of all targets finds every kernel once. A quick batch lowers
    operators in `ALIKE` for one profile.
    """
    found: dict[str, Kernel] = {}
    served = [_served(case, profiles, is_quick=is_quick) for case in cases]
    for numerics in profiles:
        places = [place for place, by in enumerate(served) if numerics in by]
        if not places:
            continue
        module = import_cases([cases[place] for place in places], numerics)
        for kernel in _offered(
            module, targets, numerics, bands, is_searched=is_searched, fuses=fuses
        ):
            place = places[kernel.layer]
            _add(found, replace(kernel, layer=place, profiles=served[place][numerics]))
    kernels = tuple(
        _renamed(kernel, f"_{k}") for k, kernel in enumerate(found.values())
    )
    return emit_batch(cases, kernels)


def _served(
    case: ConformanceCase, profiles: Sequence[NumericsProfile], *, is_quick: bool
) -> Mapping[NumericsProfile, frozenset[NumericsProfile]]:
    """Return the profiles to lower a layer for, each with those its kernels cover."""
    known = [profile for profile in profiles if profile in case.oracles]
    if is_quick and case.builtin in ALIKE:
        return {known[0]: frozenset(known)}
    return {profile: frozenset({profile}) for profile in known}


def emit_batch(cases: Sequence[ConformanceCase], kernels: Sequence[Kernel]) -> Batch:
    """Return the batch of these kernels with its C sources."""
    module = _planned(kernels)
    names = sorted(frozenset[str]().union(*(kernel.targets for kernel in kernels)))
    # Loops over vectors are printed only for targets that have vectors.
    targets = {name: parse_target(name) for name in names}
    tree = emit_model(replace(module, targets=targets), INTRINSICS, EmitOptions())
    files = {
        "kernels.inc": str(tree.files[f"model/{NAME}.c"]),
        f"{NAME}.h": str(tree.files[f"model/{NAME}.h"]),
        f"{NAME}_weights.h": str(tree.files[f"model/{NAME}_weights.h"]),
    }
    batch = Batch(tuple(cases), tuple(kernels), module, files)
    files["table.h"] = _table(batch)
    files["count.h"] = f"#define CONFORM_KERNELS {len(kernels)}u\n"
    return batch


def _offered(
    module: IRModule,
    targets: Sequence[str],
    numerics: NumericsProfile,
    bands: Sequence[int],
    *,
    is_searched: bool,
    fuses: bool,
) -> Iterator[Kernel]:
    known = {target: target_features(parse_target(target)) for target in targets}
    everything = frozenset[str]().union(*known.values())
    rules = [
        replace(
            rule,
            goal="",
            fuses=False,
            configs=rule.tunable_configs if is_searched else rule.configs,
        )
        for rule in SCHEDULES
        if fuses or not rule.fuses
    ]
    who = {
        rule.name: frozenset(t for t, has in known.items() if rule.requires <= has)
        for rule in rules
    }
    module = replace(module, targets={"cpu": parse_target("c")})
    lowering = Lowering(module, op_table(), rules, INTRINSICS, lambda _: everything)
    for index, lowered in enumerate(lowering.calls()):
        described = make_op_call(lowered.call, module)
        offered: list[tuple[OpCall, LoweringCandidate, RowBand | None]] = [
            (described, alternative, None) for alternative in lowered.candidates
        ]
        for band in bands:
            offered += _in_rows(lowering, index, lowered.call, band)
        for call, alternative, rows in offered:
            by = who.get(alternative.rule, frozenset(targets))
            if by:
                yield Kernel(index, call, alternative, frozenset({numerics}), by, rows)


def _in_rows(
    lowering: Lowering, index: int, call: Call, band: int
) -> Iterator[tuple[OpCall, LoweringCandidate, RowBand]]:
    shape = call.outputs[0].type.shape
    kernels = (
        lowering.rows(index, band) if len(shape) == 4 and shape[1] >= band else None
    )
    if kernels is None or not isinstance(kernels.rows, RowWindow):
        return
    described = make_op_call(make_row_call(call, kernels.rows, band), lowering.module)
    for alternative in kernels.candidates:
        yield described, alternative, RowBand(band, kernels.rows)


def _add(found: dict[str, Kernel], kernel: Kernel) -> None:
    """Add a kernel, merging kernels with equal loops and constants."""
    function = replace(kernel.alternative.function, attrs={}, span=Span(""))
    contents = [constant.digest for constant in kernel.alternative.constants.values()]
    key = f"{function} {contents}"
    known = found.get(key)
    if known is None:
        found[key] = kernel
        return
    found[key] = replace(
        known,
        profiles=known.profiles | kernel.profiles,
        targets=known.targets | kernel.targets,
    )


def _renamed(kernel: Kernel, suffix: str) -> Kernel:
    """Give the function and its constants unique names."""

    def rule(node: Node) -> Node | None:
        if isinstance(node, tir.AllocateConst):
            return replace(node, constant=node.constant + suffix)
        return None

    alternative = kernel.alternative
    function = rewrite_func(alternative.function, rule)
    constants = {
        name + suffix: replace(constant, name=name + suffix)
        for name, constant in alternative.constants.items()
    }
    attrs = {**function.attrs, "target": "cpu"}
    function = replace(function, name=function.name + suffix, attrs=attrs)
    return replace(
        kernel, alternative=replace(alternative, function=function, constants=constants)
    )


def _planned(kernels: Sequence[Kernel]) -> IRModule:
    """Return a module whose main calls every kernel on the same memory, to emit all."""
    params = [param for k in kernels for param in k.alternative.function.params]
    read = _largest("x", [p.value for p in params if p.role == "in"])
    written = _largest("y", [p.value for p in params if p.role == "out"])
    body: tir.Stmt = tir.Seq(tuple(_call(kernel, read, written) for kernel in kernels))
    for role, buffers in (("output", written), ("input", read)):
        for buffer in reversed(buffers.values()):
            body = tir.Allocate(buffer, body, role)
    functions = [kernel.alternative.function for kernel in kernels]
    main = tir.PrimFunc("run", (), body, {"aot_main": True})
    io = IoBinding(
        preserve_input=True,
        inputs=tuple(map(_tensor, read.values())),
        outputs=tuple(map(_tensor, written.values())),
    )
    module = IRModule(
        NAME,
        {**{function.name: function for function in functions}, "run": main},
        {n: c for kernel in kernels for n, c in kernel.alternative.constants.items()},
        {"cpu": parse_target("c")},
        io=io,
        entry_name="run",
    )
    for name in PASS_NAMES[PASS_NAMES.index("unroll") : PASS_NAMES.index("usmp")]:
        if name in BY_NAME:
            module = BY_NAME[name](module)
    module = plan_memory(module, "greedy_by_size")
    module = BY_NAME["tir-dce"](module)
    verify_module(module, op_table(), INTRINSICS)
    return module


def _tensor(buffer: tir.Buffer) -> IoTensor:
    return IoTensor(buffer.name, buffer.name, TensorType(buffer.shape, buffer.dtype))


def _largest(name: str, values: Iterable[object]) -> Mapping[DType, tir.Buffer]:
    """Return, per element type, a buffer that holds each of `values`."""
    most: dict[DType, int] = {}
    for value in values:
        assert isinstance(value, tir.Buffer)
        most[value.dtype] = max(most.get(value.dtype, 0), value.elements)
    return {
        dtype: tir.Buffer(f"{name}_{dtype.name}", dtype, (count,), alignment=16)
        for dtype, count in most.items()
    }


def _call(
    kernel: Kernel,
    read: Mapping[DType, tir.Buffer],
    written: Mapping[DType, tir.Buffer],
) -> tir.PrimFuncCall:
    args = []
    for param in kernel.alternative.function.params:
        buffer = param.value
        assert isinstance(buffer, tir.Buffer)  # kernels have no scalars before merging
        zero = tir.IntImm(0, INDEX)
        if param.role == "in":
            args.append(tir.AccessPtr(read[buffer.dtype], zero, buffer.elements, "r"))
        else:
            args.append(
                tir.AccessPtr(written[buffer.dtype], zero, buffer.elements, "w")
            )
    return tir.PrimFuncCall(kernel.alternative.function.name, tuple(args))


# ---- the table -----------------------------------------------------------------------

_ROLES = {"in": "CONFORM_IN", "out": "CONFORM_OUT"}
_KINDS = {
    "int8": "CONFORM_INT8",
    "int16": "CONFORM_INT16",
    "float32": "CONFORM_FLOAT32",
}


def _table(batch: Batch) -> str:
    """Return argument checks and calls; a switch keeps the stack depth computable."""
    names = ModelNames(NAME)
    calls, rows = [], []
    for index, kernel in enumerate(batch.kernels):
        params = batch.function(index).params
        given = ", ".join(f"(void *)a[{k}]" for k in range(len(params)))
        name = names.c(kernel.alternative.function.name)
        calls.append(f"    case {index}:\n        {name}({given});\n        break;")
        fields = []
        for param in params:
            assert isinstance(param.value, tir.Buffer)
            role = _ROLES.get(param.role, "CONFORM_SCRATCH")
            kind = _KINDS.get(param.value.dtype.name, "CONFORM_OTHER")
            size = f"{param.value.size_bytes}, {param.value.alignment}"
            fields.append(f"{{{size}, {role}, {kind}}}")
        layer = batch.cases[kernel.layer].name.rsplit("_", 1)[-1]
        rows.append(f"    {{{layer}, {len(params)}, {{{', '.join(fields)}}}}},")
    return "\n".join(
        [
            f"#define CONFORM_ARENA_BYTES {arena_bytes(batch)}u",
            "",
            "/* Each kernel's layer, and its arguments: bytes, alignment, role, kind. */",
            "static const struct conform_kernel conform_table[CONFORM_KERNELS] = {",
            *rows,
            "};",
            "",
            "static void conform_call(uint32_t kernel, uint8_t *const *a)",
            "{",
            "    switch (kernel) {",
            *calls,
            "    default:",
            "        break;",
            "    }",
            "}",
            "",
        ]
    )


GUARD_BYTES = 64


def arena_bytes(batch: Batch) -> int:
    """Return the memory of the largest kernel with guard bytes around each argument."""
    sizes = []
    for index in range(len(batch.kernels)):
        total = GUARD_BYTES
        for param in batch.function(index).params:
            assert isinstance(param.value, tir.Buffer)
            total += param.value.size_bytes + 3 * param.value.alignment + GUARD_BYTES
        sizes.append(total)
    return -(-max(sizes) // 16) * 16
