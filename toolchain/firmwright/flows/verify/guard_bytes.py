"""Firmware with guard bytes around all buffers, and after all constants.

Inputs set the bytes around buffers, and outputs show them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import UINT8, Array
from firmwright.codegen.function_printer import ram_constants
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.plan import BufferInfo, Placement, RelocatedBuffer
from firmwright.ir.tir.traversal import Node, rewrite_func
from firmwright.oracle.compare import Difference
from firmwright.passes.map_functions import map_prim_funcs
from firmwright.pipeline import Compilation, emit_compilation
from firmwright.usmp.redzones import insert_redzones

_BEFORE, _AFTER = "guard_before_", "guard_after_"
_CONSTANT_GUARD_BYTES, _WITH_GUARD = 64, "_with_guard"


@dataclass(frozen=True, slots=True)
class GuardedFirmware:
    """A compilation with guard bytes, and the buffers by pool, at tensor offsets.

    `constant_bytes` has the sizes of constants without guards, by their names.
    """

    compiled: Compilation
    buffers: Mapping[str, Sequence[RelocatedBuffer]]
    constant_bytes: Mapping[str, int]

    def with_guards(self, samples: Sequence[Tensors]) -> list[Tensors]:
        """Return the samples with random bytes for the guards."""
        random = np.random.Generator(np.random.PCG64(0))
        tensors = self.compiled.module.io.inputs[: len(self.buffers)]
        guards: dict[str, Array] = {}
        for tensor in tensors:
            shape = tensor.type.shape
            guards[tensor.name] = random.integers(0, 256, shape, np.uint8)
        return [{**guards, **sample} for sample in samples]

    def changed_inputs(
        self, sent: Sequence[Tensors], received: Sequence[Tensors]
    ) -> dict[str, Difference]:
        """Return the first byte of each input that a run changed, by its name."""
        placed: dict[str, tuple[str, RelocatedBuffer]] = {}
        for pool, buffers in self.buffers.items():
            placed.update({buffer.name: (pool, buffer) for buffer in buffers})
        firsts: dict[str, Difference] = {}
        for tensor in self.compiled.module.io.inputs[len(self.buffers) :]:
            if tensor.buffer not in placed:
                continue
            pool, buffer = placed[tensor.buffer]
            for sample, (before, after) in enumerate(zip(sent, received, strict=True)):
                old = np.ravel(before[tensor.name]).view(np.uint8)
                new = after[_AFTER + pool][buffer.offset : buffer.end]
                for at in np.flatnonzero(old != new)[:1].tolist():
                    values = (old[at].item(), new[at].item())
                    first = Difference(sample, tensor.name, (at,), *values)
                    firsts.setdefault(tensor.name, first)
        return firsts

    def changes(
        self, sent: Sequence[Tensors], received: Sequence[Tensors]
    ) -> dict[str, Difference]:
        """Return the first guard byte that a run changed near each buffer."""
        firsts: dict[str, Difference] = {}
        for sample, (before, after) in enumerate(zip(sent, received, strict=True)):
            for pool, buffers in self.buffers.items():
                old, new = before[_BEFORE + pool], after[_AFTER + pool]
                is_changed = old != new
                for buffer in buffers:
                    is_changed[buffer.offset : buffer.end] = False
                for at in np.flatnonzero(is_changed).tolist():
                    distances = [max(b.offset - at, at - b.end) for b in buffers]
                    near = buffers[distances.index(min(distances))]
                    index = (at - near.offset,)
                    first = Difference(
                        sample, near.name, index, old[at].item(), new[at].item()
                    )
                    firsts.setdefault(near.name, first)
        return firsts


def insert_guard_bytes(
    compiled: Compilation, *, after_constants: bool = False
) -> GuardedFirmware:
    """Return the firmware with guard bytes around its buffers, as inputs and outputs.

    With `after_constants`, they also follow each constant, in its array. Sanitizers
    have bytes of their own behind arrays, and do not see accesses within one.

    In each pool, constants and states keep their place at the start. The rest of the
    pool, buffers and guards, is an input with random bytes and an output with the bytes
    after a run.
    """
    module = compiled.module
    if after_constants:
        module = _with_longer_constants(module)
    module, moved = insert_redzones(module)
    main = module.aot_main
    plan = module.memory_plan
    kept = {info.name for info in plan.buffers if info.kind in ("const", "state")}
    tensors: dict[str, list[IoTensor]] = {_BEFORE: [], _AFTER: []}
    body = main.body
    buffers: dict[str, list[RelocatedBuffer]] = {}
    infos = list(plan.buffers)
    placements = dict(plan.placements)
    for param in main.params:
        if param.role != "pool":
            continue
        pool = param.value
        assert isinstance(pool, tir.Buffer)
        own = [item for item in moved if item.pool == pool.name]
        start = max((item.end for item in own if item.name in kept), default=0)
        size = pool.size_bytes - start
        shifted: list[RelocatedBuffer] = []
        for item in own:
            if item.name not in kept:
                shifted.append(replace(item, offset=item.offset - start))
        buffers[pool.name] = shifted
        for prefix, of_kind in tensors.items():
            guard = tir.Buffer(prefix + pool.name, UINT8, (size,))
            source = tir.AccessPtr(pool, tir.IntImm(start, INDEX), size, "rw")
            body = tir.DeclBuffer(guard, source, body)
            of_kind.append(IoTensor(guard.name, guard.name, TensorType((size,), UINT8)))
            infos.append(BufferInfo(guard.name, size, 1, (), "scratch", (pool.name,)))
            placements[guard.name] = Placement(pool.name, start)
    inputs = (*tensors[_BEFORE], *module.io.inputs)
    outputs = (*module.io.outputs, *tensors[_AFTER])
    module = replace(
        module.with_function(replace(main, body=body)),
        io=replace(module.io, inputs=inputs, outputs=outputs),
        plan=replace(plan, placements=placements, buffers=tuple(infos)),
    )
    guarded = emit_compilation(
        replace(compiled, module=module, record=None), compiled.source
    )
    constants = compiled.module.constants.items()
    sizes = {name: constant.size_bytes for name, constant in constants}
    return GuardedFirmware(guarded, buffers, sizes)


def _with_longer_constants(module: IRModule) -> IRModule:
    """Return the module with zeros after each linked constant, not part of it.

    Those that are copied to pools stay as they are.
    """
    main = module.aot_main
    copied = {name for name, _ in ram_constants(module, main)}
    copied.update(state.initial for state in module.io.state)
    longer: dict[str, Constant] = {}

    def rule(node: Node) -> Node | None:
        if not isinstance(node, tir.AllocateConst) or node.constant in copied:
            return None
        buffer, constant = node.buffer, module.constants[node.constant]
        guard = _CONSTANT_GUARD_BYTES // constant.dtype.size_bytes
        elements = constant.size_bytes // constant.dtype.size_bytes + guard
        data = constant.data + bytes(_CONSTANT_GUARD_BYTES)
        longer[constant.name] = replace(constant, shape=(elements,), data=data)
        name = f"{buffer.name}{_WITH_GUARD}"
        whole = replace(buffer, name=name, shape=(elements,), strides=None)
        source = tir.AccessPtr(whole, tir.IntImm(0, INDEX), elements - guard, "r")
        body = tir.DeclBuffer(buffer, source, node.body)
        return tir.AllocateConst(whole, node.constant, body)

    module = map_prim_funcs(module, lambda function: rewrite_func(function, rule))
    return replace(module, constants={**module.constants, **longer})
