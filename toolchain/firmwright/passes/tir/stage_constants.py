"""Access to constants in separate memory: by pointer, or staged in RAM (decision 0018).

Runs before planning. For an `external` pool the AOT main passes pointers to kernels.
For a pool read by a function, the constants of a step (a call, or a whole loop or
branch of the AOT main) form one block, which `const_load` copies to a staging buffer.
With scope `async` the copy starts before the preceding step and is awaited after it,
one copy at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.dtypes import HANDLE, UINT8
from firmwright.base.errors import UsageError
from firmwright.ir import tir
from firmwright.ir.constant_pools import (
    IMAGE_ALIGNMENT,
    UNADDRESSABLE_SCOPES,
    UNLINKED_SCOPES,
    constant_pools,
    pool_image_bytes,
)
from firmwright.ir.core import Constant, PoolInfo
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir import traversal
from firmwright.ir.tir.builder import INDEX, whole_buffer
from firmwright.ops.intrinsics import CONST_LOAD, CONST_LOAD_START, CONST_LOAD_WAIT
from firmwright.passes.tir.assign_constant_memory import constants_do_not_fit
from firmwright.passes.tir.dce import drop_unreferenced_constants
from firmwright.passes.tir.externalize_constants import (
    externalize,
    linked_constants,
    without_linked_constants,
)


@dataclass(frozen=True, slots=True)
class _StagedBlock:
    """Constants that are loaded together as one constant, and their byte offsets."""

    constant: Constant
    offsets: Mapping[str, int]
    is_async: bool


@dataclass(frozen=True, slots=True)
class _StagedLoad:
    block: _StagedBlock
    source: tir.Buffer
    staging: tir.Buffer

    @property
    def start(self) -> tir.Stmt:
        item = CONST_LOAD_START if self.block.is_async else CONST_LOAD
        args = whole_buffer(self.staging, "w"), whole_buffer(self.source, "r")
        return tir.Evaluate(tir.IntrinsicCall(item.name, args, HANDLE))

    @property
    def wait(self) -> tuple[tir.Stmt, ...]:
        if not self.block.is_async:
            return ()
        args = (whole_buffer(self.staging, "rw"),)
        return (tir.Evaluate(tir.IntrinsicCall(CONST_LOAD_WAIT.name, args, HANDLE)),)


def run(module: IRModule) -> IRModule:
    """Insert the loads; a module without unlinked constants is returned unchanged."""
    pools: dict[str, PoolInfo] = {}
    for pool in constant_pools(module):
        if pool.scope in UNLINKED_SCOPES:
            pools[pool.name] = pool
    entry = module.find_entry()
    if not pools or not isinstance(entry, tir.PrimFunc) or module.plan is not None:
        return module
    local = traversal.local_names(entry)
    for name in pools:
        if name in local:
            what = f"pool {name} has the name of one of the model's buffers."
            raise UsageError(what, hint="another name for the pool, by --const-pool.")
    away: set[str] = set()
    for name, constant in module.constants.items():
        if constant.pool in pools:
            away.add(name)
    module = externalize(module, lambda constant: constant in away)
    main = module.kernel(entry.name)
    loader = _ConstantStager(module, main, pools)
    module = replace(module, constants={**module.constants, **loader.constants()})
    module = module.with_function(replace(main, body=loader.body()))
    module = drop_unreferenced_constants(module)
    # Sizes are known only after blocks have duplicated shared constants.
    for pool in pools.values():
        need = pool_image_bytes(module, pool)
        if pool.size_bytes is not None and need > pool.size_bytes:
            raise constants_do_not_fit(pool, need, [pool])
    return module


class _ConstantStager:
    def __init__(
        self, module: IRModule, main: tir.PrimFunc, pools: Mapping[str, PoolInfo]
    ) -> None:
        self.module = module
        self.main = main
        self.names = UniqueNamer(traversal.local_names(main))
        self.block_names = UniqueNamer(module.constants)
        self.blocks: dict[tuple[str, ...], _StagedBlock] = {}
        read: set[str] = set()
        self.asynchronous: set[str] = set()
        for name, pool in pools.items():
            if pool.scope in UNADDRESSABLE_SCOPES:
                read.add(name)
            if pool.scope == "async":
                self.asynchronous.add(name)
        self.linked: dict[str, str] = {}
        for node in linked_constants(main):
            if module.constants[node.constant].pool in read:
                self.linked[node.buffer.name] = node.constant
        self.sources: dict[str, tir.Buffer] = {}
        self.steps = [self._loads(step) for step in traversal.main_steps(main.body)]
        self.position = 0
        self.viewed: set[str] = set()

    def constants(self) -> dict[str, Constant]:
        return {block.constant.name: block.constant for block in self.blocks.values()}

    def body(self) -> tir.Stmt:
        body = without_linked_constants(self.main.body, self.linked)
        body = traversal.map_steps(body, self._next_step)
        for load in reversed(list(chain.from_iterable(self.steps))):
            body = tir.Allocate(load.staging, body, "scratch")
        for name, source in reversed(self.sources.items()):
            body = tir.AllocateConst(source, name, body)
        return body

    def _loads(self, step: tir.Stmt) -> tuple[_StagedLoad, ...]:
        buffers_by_pool: dict[str, dict[str, tir.Buffer]] = {}
        for name, buffer in traversal.used_buffers(step).items():
            if name in self.linked:
                constant = self.module.constants[self.linked[name]]
                buffers_by_pool.setdefault(constant.pool, {})[constant.name] = buffer
        loads: list[_StagedLoad] = []
        for pool, buffers in buffers_by_pool.items():
            loads.append(self._load(step, pool, buffers))
        return tuple(loads)

    def _load(
        self, step: tir.Stmt, pool: str, buffers: Mapping[str, tir.Buffer]
    ) -> _StagedLoad:
        kernel = next(iter(traversal.callees(step)), self.main.name)
        key = (pool, *buffers)
        if key not in self.blocks:
            self.blocks[key] = self._block(kernel, pool, buffers)
        block = self.blocks[key]
        constant = block.constant
        like = tir.Buffer("", UINT8, (constant.size_bytes,), alignment=IMAGE_ALIGNMENT)
        if constant.name not in self.sources:
            name = self.names.unique(f"{kernel}_block")
            self.sources[constant.name] = replace(like, name=name, scope="const")
        staging = replace(like, name=self.names.unique(f"{kernel}_constants"))
        return _StagedLoad(block, self.sources[constant.name], staging)

    def _block(
        self, kernel: str, pool: str, buffers: Mapping[str, tir.Buffer]
    ) -> _StagedBlock:
        offsets: dict[str, int] = {}
        data = bytearray()
        for name, buffer in buffers.items():
            data += bytes(-len(data) % max(buffer.alignment, buffer.dtype.size_bytes))
            offsets[name] = len(data)
            data += self.module.constants[name].data
        name = self.block_names.unique(f"{kernel}.constants")
        constant = Constant(name, UINT8, (len(data),), bytes(data), pool)
        return _StagedBlock(constant, offsets, pool in self.asynchronous)

    def _next_step(self, step: tir.Stmt) -> tir.Stmt:
        self.position += 1
        return self._step(step, self.position - 1)

    def _step(self, step: tir.Stmt, position: int) -> tir.Stmt:
        """Return the step with its loads and, in parallel, the next step's load."""
        # position   k - 1               k                    k + 1
        # CPU        step k - 1 | wait   step k     | wait    step k + 1
        # copy       block k ----        block k + 1 ----     ...
        #
        # The copy for a step starts before the preceding step and is awaited after it.
        now = self.steps[position]
        not_ahead = [load for load in now if position == 0 or not load.block.is_async]
        ahead: list[_StagedLoad] = []
        if position + 1 < len(self.steps):
            following = self.steps[position + 1]
            ahead = [load for load in following if load.block.is_async]
        stmts: list[tir.Stmt] = []
        # One copy at a time: all but the last of those started ahead are awaited
        # immediately.
        for load in (*not_ahead, *ahead[:-1]):
            stmts += [load.start, *load.wait]
        if ahead:
            stmts.append(ahead[-1].start)
        stmts.append(self._with_views(step, now))
        if ahead:
            stmts += ahead[-1].wait
        return traversal.make_sequence(stmts)

    def _with_views(self, step: tir.Stmt, loads: Sequence[_StagedLoad]) -> tir.Stmt:
        by_pool = {load.block.constant.pool: load for load in loads}
        views: dict[str, tir.Buffer] = {}
        sources: dict[str, tir.AccessPtr] = {}
        for name, buffer in traversal.used_buffers(step).items():
            if name in self.linked:
                constant = self.module.constants[self.linked[name]]
                load, size_bytes = by_pool[constant.pool], constant.size_bytes
                offset = tir.IntImm(load.block.offsets[constant.name], INDEX)
                sources[name] = tir.AccessPtr(load.staging, offset, size_bytes, "r")
                # The first view has the name of the linked buffer.
                own_name = self.names.unique(name) if name in self.viewed else name
                views[name] = replace(buffer, name=own_name, scope="global")
                self.viewed.add(name)
        body = traversal.substitute(step, {}, views)
        for name, view in reversed(views.items()):
            body = tir.DeclBuffer(view, sources[name], body)
        return body


PASS = Pass("stage-constants", run)
