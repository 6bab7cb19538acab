"""Compares many kernels with the reference kernels of their layers in one firmware.

The result is a lowered module. For each kernel, its AOT main fills the result buffer
with wrong values, calls the kernel and counts the differences from the reference; these
counts are the only output. All kernels of a layer read the same input.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from firmwright.base.dtypes import INT32
from firmwright.boards import Board
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph import Call, Function, OpCall, TensorType, Value
from firmwright.ir.module import AnyFunction, IoTensor, IRModule
from firmwright.ir.tir.builder import INDEX, Builder, binary_expr, whole_buffer
from firmwright.ir.tir.traversal import Node, make_sequence, rewrite_func
from firmwright.ops.schedule import LoweringCandidate
from firmwright.pipeline import Options, configure_module

LOWERED_STAGE = "lower-select"
"""The pass that comparison modules record as the last one run."""
MISMATCH_COUNT_OUTPUT = "differing"
"""The name of the output, which has the number of differing values of each kernel."""
_ALIGNMENT = 16
"""Alignment of all buffers in bytes; no kernel requires more."""
_WRONG_BYTE = 0x55
"""The bits in which each value of a result buffer first differs from the reference."""


@dataclass(frozen=True, slots=True)
class KernelComparison:
    """A layer, its reference kernel, and the kernels to compare with it."""

    call: OpCall
    reference: LoweringCandidate
    kernels: tuple[LoweringCandidate, ...]


def layer_module(call: OpCall) -> IRModule:
    """Return a module of one operator, with the inputs x0, x1, ... and the output y."""
    constants: dict[str, Constant] = {}
    for index, constant in enumerate(call.constants):
        if constant is not None:
            constants[f"x{index}"] = replace(constant, name=f"x{index}")
    inputs: list[Value | None] = []
    for index, kind in enumerate(call.inputs):
        name = f"x{index}"
        if kind is None:
            inputs.append(None)
        else:
            inputs.append(Value(name, kind, name if name in constants else None))
    result = Value("y", call.output)
    single_call = Call(call.op, tuple(inputs), (result,), call.attrs)
    entry = Function("main", single_call.variables, (single_call,), (result,))
    return IRModule("layer", {"main": entry}, constants, entry_name="main")


def rename_kernel(alternative: LoweringCandidate, suffix: str) -> LoweringCandidate:
    """Return the kernel with `suffix` after its name and its constants' names."""

    def rule(node: Node) -> Node | None:
        if isinstance(node, tir.AllocateConst):
            return replace(node, constant=node.constant + suffix)
        return None

    function = rewrite_func(alternative.function, rule)
    function = replace(function, name=function.name + suffix)
    constants: dict[str, Constant] = {}
    for name, constant in alternative.constants.items():
        constants[name + suffix] = replace(constant, name=name + suffix)
    return replace(alternative, function=function, constants=constants)


def comparison_module(
    layers: Sequence[KernelComparison], board: Board, options: Options
) -> IRModule:
    """Return a main that calls all kernels as its operators and counts mismatches."""
    total = sum(len(layer.kernels) for layer in layers)
    differing = tir.Buffer(MISMATCH_COUNT_OUTPUT, INT32, (total,), alignment=_ALIGNMENT)
    parts: list[_LayerMain] = []
    first = 0
    for number, layer in enumerate(layers):
        parts.append(_layer(number, first, layer, differing))
        first += len(layer.kernels)
    calls = make_sequence([layer.body for layer in parts])
    body: tir.Stmt = tir.Allocate(differing, calls, "output")
    functions: dict[str, AnyFunction] = {}
    constants: dict[str, Constant] = {}
    inputs: list[tir.Buffer] = []
    for part in parts:
        functions |= {function.name: function for function in part.functions}
        for kernel in part.kernels:
            constants |= kernel.constants
        inputs += part.inputs
    for buffer in inputs:
        body = tir.Allocate(buffer, body, "input")
    functions["run"] = tir.PrimFunc("run", (), body, {"aot_main": True})
    plain = IRModule("kernels", functions, constants, entry_name="run")
    module = configure_module(plain, board, options)
    io = replace(module.io, inputs=tuple(map(_io, inputs)), outputs=(_io(differing),))
    return replace(module, io=io).with_stage(LOWERED_STAGE)


@dataclass(frozen=True, slots=True)
class _LayerMain:
    """The part of the main for one layer; the first of `kernels` is the reference."""

    inputs: tuple[tir.Buffer, ...]
    kernels: tuple[LoweringCandidate, ...]
    functions: tuple[tir.PrimFunc, ...]
    body: tir.Stmt


def _layer(
    number: int, first: int, layer: KernelComparison, differing: tir.Buffer
) -> _LayerMain:
    """Return the part of layer `number`; its kernels are the operators from `first` on.

    In C, it is:

        reference(x, right);
        corrupt(right, y); kernel_0(x, y); compare(right, y, &differing[first]);
        corrupt(right, y); kernel_1(x, y); compare(right, y, &differing[first + 1]);
    """
    inputs: list[tir.Buffer] = []
    for index, kind in enumerate(layer.call.inputs):
        if kind is not None and layer.call.constant(index) is None:
            inputs.append(_buffer(f"x{number}_{index}", kind))
    right = _buffer(f"right{number}", layer.call.output)
    result = _buffer(f"y{number}", layer.call.output)
    reference = rename_kernel(layer.reference, f"_right_{number}")
    corrupt = _fill_with_wrong_values(f"corrupt_{number}", layer.call.output)
    compare = _compare(f"compare_{number}", layer.call.output)
    corrupt_args = (whole_buffer(right, "r"), whole_buffer(result, "w"))
    stmts: list[tir.Stmt] = [_call(reference, inputs, right, -1)]
    kernels: list[LoweringCandidate] = []
    for index, kernel in enumerate(layer.kernels):
        renamed = rename_kernel(kernel, f"_{number}_{index}")
        count = tir.AccessPtr(differing, tir.IntImm(first + index, INDEX), 1, "w")
        compare_args = (whole_buffer(right, "r"), whole_buffer(result, "r"), count)
        stmts.append(tir.PrimFuncCall(corrupt.name, corrupt_args))
        stmts.append(_call(renamed, inputs, result, first + index))
        stmts.append(tir.PrimFuncCall(compare.name, compare_args))
        kernels.append(renamed)
    with_result = tir.Allocate(result, tir.Seq(tuple(stmts)), "activation")
    body = tir.Allocate(right, with_result, "activation")
    all_kernels = (reference, *kernels)
    functions = (*(kernel.function for kernel in all_kernels), corrupt, compare)
    return _LayerMain(tuple(inputs), all_kernels, functions, body)


def _call(
    kernel: LoweringCandidate, inputs: Sequence[tir.Buffer], result: tir.Buffer, op: int
) -> tir.PrimFuncCall:
    """Return a call of a kernel as operator `op`; -1 is none and is not measured."""
    args: list[tir.Expr] = [whole_buffer(buffer, "r") for buffer in inputs]
    args.append(whole_buffer(result, "w"))
    return tir.PrimFuncCall(kernel.function.name, tuple(args), op=op)


def _buffer(name: str, kind: TensorType) -> tir.Buffer:
    return tir.Buffer(name, kind.dtype, kind.shape, alignment=_ALIGNMENT)


def _io(buffer: tir.Buffer) -> IoTensor:
    return IoTensor(buffer.name, buffer.name, TensorType(buffer.shape, buffer.dtype))


def _fill_with_wrong_values(name: str, kind: TensorType) -> tir.PrimFunc:
    """Build a function that writes to each element another value than the reference."""
    b = Builder(name)
    dtype, shape = kind.dtype, (kind.elements,)
    right = b.buffer_param("right", dtype, shape, "in", dtype.size_bytes)
    y = b.buffer_param("y", dtype, shape, "out", dtype.size_bytes)
    with b.for_("i", kind.elements) as i:
        b.store(y, [i], binary_expr("xor", b.load(right, [i]), _WRONG_BYTE))
    return b.build(comment="overwrites the result with wrong values")


def _compare(name: str, kind: TensorType) -> tir.PrimFunc:
    """Build a function that counts the elements that differ from the reference."""
    b = Builder(name)
    dtype, shape = kind.dtype, (kind.elements,)
    right = b.buffer_param("right", dtype, shape, "in", dtype.size_bytes)
    y = b.buffer_param("y", dtype, shape, "in", dtype.size_bytes)
    differing = b.buffer_param("differing", INT32, (1,), "out", INT32.size_bytes)
    count = b.reg("count", INT32)
    b.store(count, [0], 0)
    with b.for_("i", kind.elements) as i:
        differs = tir.Binary("ne", b.load(right, [i]).expr, b.load(y, [i]).expr)
        with b.if_(differs):
            b.store(count, [0], b.load(count, [0]) + 1)
    b.store(differing, [0], b.load(count, [0]))
    return b.build(comment="counts the values that differ")
