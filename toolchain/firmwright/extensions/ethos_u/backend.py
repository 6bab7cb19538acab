"""Backends ethos-u55-32 to ethos-u65-512: Arm's Ethos-U, programmed by Vela.

A region becomes one command stream. Its arena is a workspace of the memory plan, and
the region's inputs and outputs are placed in it where that needs no other memory;
`ethosu_call.c` copies the others. The driver is the user's copy of Arm's, located by
`--ethos-u-driver PATH` or ETHOS_U_DRIVER_PATH, otherwise the functional model of the
NPU in the folder c.
"""

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from firmwright.base.dtypes import UINT8
from firmwright.base.errors import NotSupportedError, ToolFailedError, UsageError
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.extensions.ethos_u import vela
from firmwright.extensions.ethos_u.attributes import EthosUAttrs
from firmwright.extensions.ethos_u.numerics import check_npu_numerics
from firmwright.extensions.ethos_u.tflite_writer import WRITABLE, write_tflite
from firmwright.extensions.ethos_u.vela import NpuProgram, VelaOptions, VelaSurvey
from firmwright.ir import tir
from firmwright.ir.core import Target
from firmwright.ir.graph import Call, Function, OpCall, Value
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.patterns import Match, op
from firmwright.ir.module import IRModule
from firmwright.targets.backend import Backend, PatternEntry
from firmwright.targets.c_text import c_function_head
from firmwright.targets.kernel_builder import BackendKernel
from firmwright.targets.target_kind import TargetAttribute

PATH_VARIABLE = "ETHOS_U_DRIVER_PATH"
DRIVER_OF_APPLICATION = "sdk"
"""Path of a driver that the application's build provides."""
_C_FOLDER = Path(__file__).parent / "c"
_TEXT = read_sections(__file__)
_ALIGNMENT = 16
_COMPILED = "ethos_u"
_SURVEYS = 8
_CONFIG = slice(8, 12)
"""The word of a command stream with the product and multiply-adds of its NPU.

    bits 31 to 28: the product, by which _PRODUCTS has its name
    bits 3 to 0:   the binary logarithm of the multiply-adds in a cycle
"""
_PRODUCTS = {0: "u55", 1: "u65"}


class EthosU(Backend):
    """One size of Ethos-U55 or U65."""

    device = "npu0"
    merge_regions = True
    wait = "ethosu_call_wait"
    estimated_by = "Vela"
    emulated_by = "ethosu_invoke_async"
    bus_master = True

    def __init__(self, product: str, macs: int, system_config: str) -> None:
        self.name = f"ethos-{product}-{macs}"
        npu = f"Arm Ethos-{product.upper()}"
        self.doc = f"{npu} with {macs} multiply-adds in a cycle, by Vela"
        system = TargetAttribute(system_config, "clock and memories, for Vela")
        memory = TargetAttribute("Shared_Sram", "memory of weights and arena, for Vela")
        self.attrs = {"system-config": system, "memory-mode": memory}
        self._surveys: dict[Hashable, tuple[Hashable, VelaSurvey]] = {}

    def patterns(self) -> Sequence[PatternEntry]:
        compiled = PatternEntry(_COMPILED, op(_COMPILED))
        written = [PatternEntry(name, op(name), self._takes) for name in WRITABLE]
        return [compiled, *written]

    def cost(self, match: Match) -> int | None:
        """Return Vela's estimate; for an open graph's call, its share of one stream."""
        call, region = match.calls[0], "target" in match.function.attrs
        if call.op == _COMPILED:
            return None
        if len(match.calls) == 1 and not region:
            cycles = self._survey(match.function, match.module, match.target).cycles
            usual = 0 if call.op == "reshape" else None
            share = cycles.get(call.outputs[0].name, usual)
            if share is not None:
                return share
        graph = match.function if region else None
        return self._program(match.calls, match.module, match.target, graph).cycles

    def generate(self, kernel: BackendKernel) -> None:
        if (compiled := kernel.find(_COMPILED)) is not None:
            write_call(kernel, _read_program(compiled, kernel.target))
        else:
            program = self._program(
                kernel.calls, kernel.module, kernel.target, kernel.graph
            )
            write_call(kernel, program)

    def c_files(self, target: Target, symbols: frozenset[str]) -> Mapping[str, bytes]:
        files = [*_C_FOLDER.glob("ethosu_call.*"), *_driver_files()]
        return {path.name: path.read_bytes() for path in sorted(files)}

    def c_flags(self, target: Target) -> Sequence[str]:
        if not os.environ.get(PATH_VARIABLE):
            return ()
        _, architecture, macs = self.name.split("-")
        return [
            f"-DETHOSU_ARCH={architecture}",
            f"-DETHOSU_MACS={macs}",
            f"-DETHOS{architecture.upper()}",
            "-DETHOSU_LOG_ENABLE=0",
            "-DNDEBUG",
        ]

    def rejections(
        self, function: Function, module: IRModule, target: Target
    ) -> Mapping[str, str]:
        return self._survey(function, module, target).reasons

    def _survey(
        self, function: Function, module: IRModule, target: Target
    ) -> VelaSurvey:
        """Return the survey of a graph, made once: matches of all its calls need it."""
        options = self._options(target)
        # The objects are kept, so that no other objects get their ids.
        held = function, module.constants
        key = *map(id, held), module.settings.profile, options
        if key not in self._surveys:
            latest = list(self._surveys.items())[1 - _SURVEYS :]
            survey = _survey_graph(function, module, options)
            self._surveys = {**dict(latest), key: (held, survey)}
        return self._surveys[key][1]

    def _takes(self, match: Match) -> bool:
        reasons = self.rejections(match.function, match.module, match.target)
        return match.calls[0].outputs[0].name not in reasons

    def _options(self, target: Target) -> VelaOptions:
        system_config = str(target.attr("system-config"))
        memory_mode = str(target.attr("memory-mode"))
        return VelaOptions(self.name, system_config, memory_mode)

    def _program(
        self,
        calls: Sequence[Call],
        module: IRModule,
        target: Target,
        graph: Function | None = None,
    ) -> NpuProgram:
        params, results = (graph.params, graph.results) if graph else boundary(calls)
        model = write_tflite(calls, module, params, results)
        return vela.compile_region(model, self._options(target))


_U55_SYSTEM, _U65_SYSTEM = "Ethos_U55_High_End_Embedded", "Ethos_U65_Embedded"
ETHOS_U55_32 = EthosU("u55", 32, _U55_SYSTEM)
ETHOS_U55_64 = EthosU("u55", 64, _U55_SYSTEM)
ETHOS_U55_128 = EthosU("u55", 128, _U55_SYSTEM)
ETHOS_U55_256 = EthosU("u55", 256, _U55_SYSTEM)
ETHOS_U65_256 = EthosU("u65", 256, _U65_SYSTEM)
ETHOS_U65_512 = EthosU("u65", 512, _U65_SYSTEM)


def _read_program(call: OpCall, target: Target) -> NpuProgram:
    """Return the program that Vela compiled; raise UsageError for another NPU."""
    attrs = call.attributes(EthosUAttrs)
    commands, weights = (constant.data for constant in call.constants[:2] if constant)
    config = int.from_bytes(commands[_CONFIG], "little")
    accelerator = f"ethos-{_PRODUCTS.get(config >> 28)}-{1 << (config & 15)}"
    if accelerator != target.kind:
        what = f"Vela compiled the model for {accelerator}."
        raise UsageError(what, hint=f"--target {accelerator}.")
    offsets, count = attrs.offsets, len(call.inputs) - 2
    sizes = (attrs.arena_bytes, attrs.fast_bytes)
    return NpuProgram(commands, weights, *sizes, offsets[:count], offsets[count:])


def boundary(calls: Sequence[Call]) -> tuple[list[Value], list[Value]]:
    """Return the values that calls read but do not define, and the unread results."""
    made: dict[str, Value] = {}
    read: dict[str, Value] = {}
    for call in calls:
        made |= {value.name: value for value in call.outputs}
        read |= {value.name: value for value in call.variables}
    inputs = [value for name, value in read.items() if name not in made]
    outputs = [value for name, value in made.items() if name not in read]
    return inputs, outputs


def _survey_graph(
    function: Function, module: IRModule, options: VelaOptions
) -> VelaSurvey:
    reasons: dict[str, str] = {}
    calls: list[Call] = []
    is_compiled = any(call.op == _COMPILED for call in function.body)
    for call in function.body:
        name = call.outputs[0].name
        try:
            if is_compiled:
                what = "the model's operators for the NPU are compiled already"
                raise NotSupportedError(what)
            check_npu_numerics(make_op_call(call, module))
            write_tflite([call], module, *boundary([call]))
            calls.append(call)
        except NotSupportedError as error:
            reasons[name] = str(error)
    survey = _survey_calls(calls, module, options)
    return replace(survey, reasons={**reasons, **survey.reasons})


def _survey_calls(
    calls: Sequence[Call], module: IRModule, options: VelaOptions
) -> VelaSurvey:
    """Return the survey of calls; Vela may leave some to the core or fail to read some.

    When it fails, each half of the calls is surveyed by itself.
    """
    if not calls:
        return VelaSurvey({}, {})
    outputs = tuple(call.outputs[0].name for call in calls)
    try:
        model = write_tflite(calls, module, *boundary(calls))
        return vela.survey_operators(model, options, outputs)
    except ToolFailedError as error:
        if len(calls) == 1:
            return VelaSurvey({outputs[0]: str(error).splitlines()[-1]}, {})
    half = len(calls) // 2
    a = _survey_calls(calls[:half], module, options)
    b = _survey_calls(calls[half:], module, options)
    return VelaSurvey({**a.reasons, **b.reasons}, {**a.cycles, **b.cycles})


def write_call(kernel: BackendKernel, program: NpuProgram) -> None:
    """Write the C function that starts the program, its constants and workspaces."""
    arguments: list[tir.Buffer] = [*kernel.inputs, *kernel.outputs]
    params = [f"const {b.dtype.c_type} *{b.name}" for b in kernel.inputs]
    params += [f"{b.dtype.c_type} *{b.name}" for b in kernel.outputs]
    values = {"weights": "NULL", "fast": "NULL"}
    for name, data in (("commands", program.commands), ("weights", program.weights)):
        if data:
            array = np.frombuffer(data, np.uint8)
            arguments.append(kernel.constant(name, array, UINT8, _ALIGNMENT))
            params.append(f"const uint8_t *{name}")
            values[name] = name
    for name, size in (("arena", program.arena_bytes), ("fast", program.fast_bytes)):
        if size:
            arguments.append(kernel.workspace(name, size, alignment=_ALIGNMENT))
            params.append(f"uint8_t *{name}")
            values[name] = name
    tensors = []
    for buffers, offsets in (
        (kernel.inputs, program.inputs),
        (kernel.outputs, program.outputs),
    ):
        rows = []
        for buffer, offset in zip(buffers, offsets, strict=True):
            kernel.overlay(buffer, "arena", offset)
            rows.append(f"{{{buffer.name}, {offset}, {buffer.size_bytes}}}")
        tensors.append(", ".join(rows))
    text = fill_text(
        _TEXT["call"],
        head=c_function_head(f"void {kernel.symbol}(", params),
        operators=len(kernel.calls),
        target=kernel.target.kind,
        symbol=kernel.symbol,
        commands_size=len(program.commands),
        weights_size=len(program.weights),
        arena_size=program.arena_bytes,
        fast_size=program.fast_bytes,
        inputs=tensors[0],
        input_count=len(kernel.inputs),
        outputs=tensors[1],
        output_count=len(kernel.outputs),
        **values,
    )
    kernel.file(f"{kernel.symbol}.c", text + "\n")
    kernel.extern(kernel.symbol, arguments)


def _driver_files() -> Iterable[Path]:
    """Return the sources of Arm's driver or of the model, or none.

    There are none if the application provides the driver.
    """
    path = os.environ.get(PATH_VARIABLE, "")
    if not path:
        return _C_FOLDER.glob("*.[ch]")
    if path == DRIVER_OF_APPLICATION:
        return ()
    root = Path(path)
    if not (root / "src" / "ethosu_driver.c").is_file():
        missing = "src/ethosu_driver.c is missing"
        what = f"the folder is not a copy of Arm's driver: {missing}."
        hint = f"--ethos-u-driver PATH or {DRIVER_OF_APPLICATION}, or {PATH_VARIABLE}."
        raise UsageError(what, where=path, hint=hint)
    files = root.glob("src/*.[ch]")
    sources = [file for file in files if file.stem != "ethosu_device_u85"]
    return (*root.glob("include/*.h"), *sources, *_C_FOLDER.glob("bare_metal/*"))
