"""How a product over a column is cut into steps of sixteen values, and its assembly.

A block multiplies with VMLADAV, which adds the products across a vector into an even core
register; there are eight of those. `head` steps stand in line; a `deep` block has a loop of rounds
of eight further steps; a `tail` is a last step on the values left, with the other lanes read as
zero, so that nothing beyond the column is touched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

STEP = 16
ROUND = 8
MOST_STEPS = 12

REGISTERS = ("r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr")
CLOBBERS = (
    '"r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "q3", "cc", "memory"'
)

Step = Callable[[str, str, str], list[str]]
"""(multiply and load instruction, what follows the column's register) -> a step's assembly."""

_ADVANCING = "], #16"


@dataclass(frozen=True, slots=True)
class Shape:
    """See the module docstring."""

    head: int
    deep: bool
    tail: bool

    @property
    def suffix(self) -> str:
        return str(self.head) + ("_deep" if self.deep else "") + ("_tail" if self.tail else "")

    @property
    def least_taps(self) -> int:
        return STEP * self.head + self.tail

    def lines(self, step: Step) -> list[str]:
        """The assembly: operand `rest` counts the tail's values, `count` the rounds."""
        plain, adding = "vmladav.s8", "vmladava.s8"
        lines: list[str] = []
        for index in range(self.head):
            lines += step(adding if index else plain, "vldrb.8", self._place(index))
        if self.deep:
            loop = step(adding, "vldrb.8", _ADVANCING) * ROUND
            lines += ["1:", *loop, "subs %[count], #1", "bne 1b"]
        if self.tail:
            last = step(adding if self.head else plain, "vldrbt.8", self._place(self.head))
            loads = sum("vldrbt" in line for line in last)
            # Compilers have no common name for the predicate register, so it is handed back.
            predicate = ["vmrs %[kept], p0", "vctp.8 %[rest]", "vps" + "t" * loads]
            lines += [*predicate, *last, "vmsr p0, %[kept]"]
        for vector, first in (("first", 0), ("second", 4)):
            for lane in (0, 1):
                low, high = REGISTERS[first + lane], REGISTERS[first + lane + 2]
                lines.append(f"vmov %q[{vector}][{lane + 2}], %q[{vector}][{lane}], {low}, {high}")
        return lines

    @property
    def _advances(self) -> bool:
        """Whether columns need pointers that move: a load's offset reaches 127 bytes."""
        return self.deep or self.head + self.tail > ROUND

    def _place(self, index: int) -> str:
        """What follows the register in the load of step `index` in line."""
        return _ADVANCING if self._advances else f", #{STEP * index}]"

    def frame(self, step: Step, columns: tuple[str, ...]) -> str:
        """The block up to the vectors of sums, `first` and `second`, in C."""
        body = "\n".join(f'    "{line}\\n\\t"' for line in self.lines(step))
        moving = ("w", *columns) if self._advances else ("w",)
        declared = [f"const int8_t *at_{name} = {name};" for name in moving]
        outputs = [f'[{name}] "+r"(at_{name})' for name in moving]
        inputs = []
        if self.deep:
            declared.append("int32_t count = (taps / 16 - 1) / 8;")
            outputs.append('[count] "+r"(count)')
        if not self._advances:
            inputs += [f'[{name}] "r"({name})' for name in columns]
        if self.tail:
            declared.append("uint32_t kept;")
            outputs.append('[kept] "=&r"(kept)')
            inputs.append('[rest] "r"(taps % 16)')
        elif not self.deep:
            declared.append("(void)taps;")
        return "\n".join([
            "int32x4_t first, second;",
            *declared,
            "__asm__ volatile(",
            body,
            f'    : [first] "=w"(first), [second] "=w"(second), {", ".join(outputs)}',
            f"    : {', '.join(inputs)}".rstrip(),
            f"    : {CLOBBERS});",
        ])  # fmt: skip

    def instructions(self, step: Step, taps: int) -> int:
        """Executed ones for columns of `taps` values."""
        round_size = len(step("", "", "")) * ROUND + 2
        rounds = (taps // STEP - 1) // ROUND if self.deep else 1
        return len(self.lines(step)) + (rounds - 1) * round_size


SHAPES = tuple(
    Shape(head, deep, tail)
    for deep, heads in ((False, range(MOST_STEPS + 1)), (True, range(1, ROUND + 1)))
    for head in heads
    for tail in (False, True)
    if head or tail
)


def shape_of(taps: int) -> Shape:
    """The shape for columns of `taps` values."""
    steps, tail = divmod(taps, STEP)
    deep = steps > MOST_STEPS
    return Shape((steps - 1) % ROUND + 1 if deep else steps, deep, tail > 0)


def padded_taps(taps: int) -> int:
    """Values a channel has in the weights: whole steps."""
    return -(-taps // STEP) * STEP
