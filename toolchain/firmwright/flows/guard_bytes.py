"""Guard bytes around the buffers of a firmware, which detect writes out of bounds on any board.

An additional input writes all memory of a pool before the others, an additional output returns it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import UINT8
from firmwright.flows.sample_batches import Tensors
from firmwright.ir import tir
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.module import IoTensor
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.plan import BufferInfo, Placement, RelocatedBuffer
from firmwright.oracle.compare import Difference
from firmwright.pipeline import Compilation, emit_compilation
from firmwright.usmp.redzones import insert_redzones

_BEFORE, _AFTER = "guard_before_", "guard_after_"


@dataclass(frozen=True, slots=True)
class GuardedFirmware:
    """A compilation with guard bytes, and the buffers by pool, at their offsets in the tensors."""

    compiled: Compilation
    buffers: Mapping[str, Sequence[RelocatedBuffer]]

    def with_guards(self, samples: Sequence[Tensors]) -> list[Tensors]:
        random = np.random.Generator(np.random.PCG64(0))
        tensors = self.compiled.module.io.inputs[: len(self.buffers)]
        guards = {t.name: random.integers(0, 256, t.type.shape, np.uint8) for t in tensors}
        return [{**guards, **sample} for sample in samples]

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
                    index, values = (at - near.offset,), (old[at].item(), new[at].item())
                    firsts.setdefault(near.name, Difference(sample, near.name, index, *values))
        return firsts


def insert_guard_bytes(compiled: Compilation) -> GuardedFirmware:
    module, moved = insert_redzones(compiled.module)
    main, plan = module.aot_main, module.plan
    assert plan is not None
    kept = {info.name for info in plan.buffers if info.kind in ("const", "state")}
    tensors: dict[str, list[IoTensor]] = {_BEFORE: [], _AFTER: []}
    body, buffers, infos, placements = main.body, {}, [*plan.buffers], {**plan.placements}
    for pool in (param.value for param in main.params if param.role == "pool"):
        assert isinstance(pool, tir.Buffer)
        own = [item for item in moved if item.pool == pool.name]
        start = max((item.end for item in own if item.name in kept), default=0)
        own = [replace(b, offset=b.offset - start) for b in own if b.name not in kept]
        buffers[pool.name], size = own, pool.size_bytes - start
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
    given = compiled.imported, compiled.board, compiled.options, compiled.source
    return GuardedFirmware(emit_compilation(module, *given), buffers)
