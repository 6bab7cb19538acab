"""Every kernel that lowering offers for a batch of layers, as C that a harness can call.

In: cases and the targets, profiles and goals to lower for. Out: a `Batch`: kernels that differ,
each once, with the layers and profiles that it must compute, and C sources in which `conform_table`
calls them one by one. Nothing is chosen: every (rule, configuration) is there, and the operator's
own loops. Kernels have been through the passes of a compilation but for the merging of functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tflite_writer import write_cases

from firmwright.base.dtypes import DType
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.model_emitter import EmitOptions, emit_model
from firmwright.conformance.case import ConformanceCase
from firmwright.frontends.tflite.importer import import_model
from firmwright.frontends.tflite.reader import read_tflite
from firmwright.ir import tir
from firmwright.ir.core import Span
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, TensorType
from firmwright.ir.graph.opdef import NumericsProfile, OpCall, RowWindow
from firmwright.ir.module import IoBinding, IoTensor, IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.rewrite import rewrite_func
from firmwright.ir.tir.schedule import LoweringCandidate
from firmwright.ir.tir.traversal import Node
from firmwright.ir.tir.verify import verify_module
from firmwright.lower.lowering import Lowering, make_row_call
from firmwright.ops.registry import import_table, op_table
from firmwright.passes.tir import BEFORE_PLANNING, CLEAN_UP
from firmwright.schedules.registry import INTRINSICS, RULES
from firmwright.targets.registry import parse_target, target_features
from firmwright.usmp.memory_planning import plan_memory

NAME = "layers"
ALIKE = (
    "AVERAGE_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "TRANSPOSE_CONV",
)  # fmt: skip
"""Operators whose kernels do not ask for the profile."""
VERDICTS = {
    0: "",
    1: "writes outside of its arguments",
    2: "writes to its input",
    3: "writes to its input and outside of its arguments",
}
"""What the harness says of a run, in words."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A kernel that makes `band` rows of its layer."""

    band: int
    map: RowWindow


@dataclass(frozen=True, slots=True)
class Kernel:
    """One function; `profiles` are those that it was offered for, `targets` who offered it."""

    layer: int
    call: OpCall
    alternative: LoweringCandidate
    profiles: frozenset[NumericsProfile]
    targets: frozenset[str]
    rows: Rows | None = None

    @property
    def schedule(self) -> str:
        return str(self.alternative.function.attrs["schedule"])


@dataclass(frozen=True, slots=True)
class Batch:
    """`names[k]` is the C function of `kernels[k]`; `files` hold the functions and the table."""

    cases: tuple[ConformanceCase, ...]
    kernels: tuple[Kernel, ...]
    module: IRModule
    files: dict[str, str] = field(default_factory=dict)

    def function(self, kernel: int) -> tir.PrimFunc:
        found = self.module.functions[self.kernels[kernel].alternative.function.name]
        assert isinstance(found, tir.PrimFunc)
        return found

    def said(self, kernel: int) -> str:
        """What to look at when this kernel is wrong."""
        it = self.kernels[kernel]
        rows = f", {it.rows.band} rows" if it.rows else ""
        return f"{self.cases[it.layer].name}: {it.schedule}{rows} ({', '.join(sorted(it.targets))})"


def imported(cases: Sequence[ConformanceCase], numerics: NumericsProfile) -> IRModule:
    """The layers side by side in one graph; call k is case k."""
    data = write_cases(cases)
    module = import_model(read_tflite(data, NAME), NAME, import_table(), data, op_table())
    assert isinstance(module.entry, Function)
    assert len(module.entry.body) == len(cases)
    return module.with_attrs(numerics=numerics)


def batch(
    cases: Sequence[ConformanceCase],
    targets: Sequence[str],
    profiles: Sequence[NumericsProfile] = ("litert", "tflm"),
    *,
    bands: Sequence[int] = (),
    is_searched: bool = False,
    is_quick: bool = False,
    fuses: bool = False,
) -> Batch:
    """All kernels that any of `targets` has for `cases`; with `bands` so many rows at a time too.

    Rules that fuse are among them with `fuses`, whatever else stands in the module: their results
    are within bounds, not equal. With `is_searched` every configuration that a search for faster
    ones may try is among them.
    What a target has is decided by its features alone, so one lowering with the features of all
    finds everything, and each kernel once. A quick batch has operators that are `ALIKE` lowered
    for one profile only.
    """
    found: dict[str, Kernel] = {}
    served = [_served(case, profiles, is_quick=is_quick) for case in cases]
    for numerics in profiles:
        places = [place for place, by in enumerate(served) if numerics in by]
        if not places:
            continue
        module = imported([cases[place] for place in places], numerics)
        for kernel in _offered(
            module, targets, numerics, bands, is_searched=is_searched, fuses=fuses
        ):
            place = places[kernel.layer]
            _add(found, replace(kernel, layer=place, profiles=served[place][numerics]))
    kernels = tuple(_renamed(kernel, f"_{k}") for k, kernel in enumerate(found.values()))
    return emitted(cases, kernels)


def _served(
    case: ConformanceCase, profiles: Sequence[NumericsProfile], *, is_quick: bool
) -> Mapping[NumericsProfile, frozenset[NumericsProfile]]:
    """The profiles that a layer is lowered for, and those that the kernels of each one serve."""
    known = [profile for profile in profiles if profile in case.oracles]
    if is_quick and case.builtin in ALIKE:
        return {known[0]: frozenset(known)}
    return {profile: frozenset({profile}) for profile in known}


def emitted(cases: Sequence[ConformanceCase], kernels: Sequence[Kernel]) -> Batch:
    """The batch of these kernels, as C."""
    module = _planned(kernels)
    tree = emit_model(module, INTRINSICS, EmitOptions())
    files = {
        "kernels.inc": str(tree.files[f"model/{NAME}.c"]),
        f"{NAME}.h": str(tree.files[f"model/{NAME}.h"]),
        f"{NAME}_weights.h": str(tree.files[f"model/{NAME}_weights.h"]),
    }
    made = Batch(tuple(cases), tuple(kernels), module, files)
    files["table.h"] = _table(made)
    files["count.h"] = f"#define CONFORM_KERNELS {len(kernels)}u\n"
    return made


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
        for rule in RULES
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
        offered: list[tuple[OpCall, LoweringCandidate, Rows | None]] = [
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
) -> Iterator[tuple[OpCall, LoweringCandidate, Rows]]:
    shape = call.outputs[0].type.shape
    kernels = lowering.rows(index, band) if len(shape) == 4 and shape[1] >= band else None
    if kernels is None or not isinstance(kernels.rows, RowWindow):
        return
    described = make_op_call(make_row_call(call, kernels.rows, band), lowering.module)
    for alternative in kernels.candidates:
        yield described, alternative, Rows(band, kernels.rows)


def _add(found: dict[str, Kernel], kernel: Kernel) -> None:
    """Kernels of the same loops and constants are one."""
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
    """Function and constants under names of their own."""

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
    return replace(kernel, alternative=replace(alternative, function=function, constants=constants))


def _planned(kernels: Sequence[Kernel]) -> IRModule:
    """A module whose main calls every kernel on the same memory, so that all are emitted."""
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
        attrs={"entry": "run"},
    )
    for step in BEFORE_PLANNING:
        module = step(module)
    module = plan_memory(module, "greedy_by_size")
    for step in CLEAN_UP:
        module = step(module)
    verify_module(module, op_table(), INTRINSICS)
    return module


def _tensor(buffer: tir.Buffer) -> IoTensor:
    return IoTensor(buffer.name, buffer.name, TensorType(buffer.shape, buffer.dtype))


def _largest(name: str, values: Iterable[object]) -> Mapping[DType, tir.Buffer]:
    """For each type of elements a buffer that all of `values` fit into."""
    most: dict[DType, int] = {}
    for value in values:
        assert isinstance(value, tir.Buffer)
        most[value.dtype] = max(most.get(value.dtype, 0), value.elements)
    return {
        dtype: tir.Buffer(f"{name}_{dtype.name}", dtype, (count,), alignment=16)
        for dtype, count in most.items()
    }


def _call(
    kernel: Kernel, read: Mapping[DType, tir.Buffer], written: Mapping[DType, tir.Buffer]
) -> tir.PrimFuncCall:
    args = []
    for param in kernel.alternative.function.params:
        buffer = param.value
        assert isinstance(buffer, tir.Buffer)  # kernels have no scalars before merging
        zero = tir.IntImm(0, INDEX)
        if param.role == "in":
            args.append(tir.AccessPtr(read[buffer.dtype], zero, buffer.elements, "r"))
        else:
            args.append(tir.AccessPtr(written[buffer.dtype], zero, buffer.elements, "w"))
    return tir.PrimFuncCall(kernel.alternative.function.name, tuple(args))


# ---- the table ---------------------------------------------------------------------------------

_ROLES = {"in": "CONFORM_IN", "out": "CONFORM_OUT"}
_KINDS = {"int8": "CONFORM_INT8", "int16": "CONFORM_INT16", "float32": "CONFORM_FLOAT32"}


def _table(made: Batch) -> str:
    """What each kernel's arguments must be, and the calls: by a switch, so that stack is known."""
    names = ModelNames(NAME)
    calls, rows = [], []
    for index, kernel in enumerate(made.kernels):
        params = made.function(index).params
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
        layer = made.cases[kernel.layer].name.rsplit("_", 1)[-1]
        rows.append(f"    {{{layer}, {len(params)}, {{{', '.join(fields)}}}}},")
    return "\n".join([
        f"#define CONFORM_ARENA_BYTES {arena_bytes(made)}u",
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
    ])  # fmt: skip


GUARD_BYTES = 64


def arena_bytes(made: Batch) -> int:
    """What the largest kernel needs with bands of poison around each argument."""
    sizes = []
    for index in range(len(made.kernels)):
        total = GUARD_BYTES
        for param in made.function(index).params:
            assert isinstance(param.value, tir.Buffer)
            total += param.value.size_bytes + 3 * param.value.alignment + GUARD_BYTES
        sizes.append(total)
    return -(-max(sizes) // 16) * 16
