"""Programs of vector instructions as portable C: loops over lanes.

Steps that compute the same number of lanes share a loop, and each is a statement of its
formula. A vector that is needed elsewhere is an array; others are variables of the
loop. Loads and predicates are written where their lanes are used:

    vldrb.8      a, [x]                 for (int32_t n = 0; n < 16; ++n) {
    vldrb.8      b, [w], #16                c0 += (uint32_t)(x[n] * w[n]);
    vmladava.s8  c0, a, b               }
                                        w += 16;

Pointers advance at the end of a block. What no other step needs is left out, such as
the copy of a register that compilers must find as it was.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from firmwright.base.errors import InternalError
from firmwright.kernels.lane_blocks import (
    LaneNames,
    LanePrinter,
    lane_block,
    lane_steps,
)
from firmwright.kernels.program import (
    Address,
    CountedLoop,
    Move,
    Node,
    PointerOperand,
    Program,
    Repeat,
    Step,
    VirtualRegister,
    steps,
)


def lane_loops(program: Program, in_bytes: frozenset[str] = frozenset()) -> str:
    """Return C statements over the operands of a program.

    Named vector registers are arrays, which are declared before. The pointers
    `in_bytes` are to bytes in C.
    """
    needed = _needed(program)
    uses = Counter(
        item
        for step in needed
        for item in step.operands
        if isinstance(item, VirtualRegister)
    )
    names = LaneNames(frozenset(_sums(needed)), frozenset(_changed(needed)), in_bytes)
    printer = _Printer(frozenset(map(id, needed)), uses, names)
    return "\n".join(printer.nodes(program.body, frozenset()))


def _needed(program: Program) -> list[Step]:
    """Return the steps whose results are used, or are those of the program."""
    needed = list(steps(program.body))
    while True:
        used = {
            x
            for step in needed
            for x in step.operands
            if isinstance(x, VirtualRegister)
        }
        found = [x for x in needed if any(_is_used(r, used) for r in x.results)]
        if len(found) == len(needed):
            return found
        needed = found


def _is_used(result: VirtualRegister | Address, used: set[VirtualRegister]) -> bool:
    return isinstance(result, Address) or result.is_operand or result in used


def _sums(body: Sequence[Step]) -> Iterator[VirtualRegister]:
    """Yield the registers that are sums over lanes."""
    for item in body:
        for step in lane_steps(item, {}):
            target = step.target
            if step.result.is_sum and isinstance(target, VirtualRegister):
                if target.is_operand:
                    raise InternalError(f"the sum {target.name} is an operand")
                yield target


def _changed(body: Sequence[Step]) -> Iterator[VirtualRegister]:
    results = Counter(result for step in body for result in step.results)
    for result, count in results.items():
        if count > 1 and isinstance(result, VirtualRegister):
            yield result


@dataclass(frozen=True, slots=True)
class _Printer:
    needed: frozenset[int]
    uses: Mapping[VirtualRegister, int]
    names: LaneNames

    def nodes(
        self, body: Sequence[Node], later: frozenset[PointerOperand]
    ) -> list[str]:
        """Return the C of a body; `later` are the pointers that are used after it."""
        lines: list[str] = []
        block: list[Step] = []
        for place, node in enumerate(body):
            if isinstance(node, Step):
                block.append(node)
                continue
            after = later | frozenset(_pointers(body[place:]))
            lines += self._block(block, after)
            block = []
            after = later | frozenset(_pointers(body[place + 1 :]))
            lines += self._node(node, after)
        return lines + self._block(block, later)

    def _node(self, node: Node, later: frozenset[PointerOperand]) -> list[str]:
        match node:
            case Move(pointer, base, distance) if pointer == base:
                return [f"{pointer.name} += {distance};"]
            case Repeat(count, body, start):
                head = f"int32_t i = {start}; i < {start + count}; ++i"
                return self._loop("i", head, body, later)
            case CountedLoop(i, _, count, body):
                head = f"int32_t {i} = 0; {i} < {count}; ++{i}"
                return self._loop(i, head, body, later)
        raise InternalError("loops over lanes are not printed in such a block")

    def _loop(
        self,
        index: str,
        head: str,
        body: Sequence[Node],
        later: frozenset[PointerOperand],
    ) -> list[str]:
        outer, self.names.index = self.names.index, index
        lines = self.nodes(body, later | frozenset(_pointers(body)))
        self.names.index = outer
        return [f"for ({head}) {{", *("    " + line for line in lines), "}"]

    def _block(
        self, block: Sequence[Step], later: frozenset[PointerOperand]
    ) -> list[str]:
        kept = [step for step in block if id(step) in self.needed]
        found = lane_block(kept, self.uses, self.names.in_bytes)
        self.names.where_used |= found.where_used
        self.names.arrays |= found.arrays
        printer = LanePrinter(self.names)
        lines = [line for loop in found.loops for line in printer.loop(loop)]
        for pointer, distance in found.moved.items():
            if distance and pointer in later:
                size = 1
                if pointer.name in self.names.in_bytes:
                    size = pointer.dtype.size_bytes
                lines.append(f"{pointer.name} += {size * distance};")
        return lines


def _pointers(body: Sequence[Node]) -> Iterator[PointerOperand]:
    for step in steps(body):
        for given in (*step.operands, *step.results):
            if isinstance(given, Address):
                yield given.pointer
