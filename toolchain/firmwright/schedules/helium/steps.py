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

Step = Callable[[str, str], list[str]]
"""(multiply instruction, load instruction of the column) -> a step's assembly."""


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
            lines += step(adding if index else plain, "vldrb.8")
        if self.deep:
            lines += ["1:", *(step(adding, "vldrb.8") * ROUND), "subs %[count], #1", "bne 1b"]
        if self.tail:
            last = step(adding if self.head else plain, "vldrbt.8")
            loads = sum("vldrbt" in line for line in last)
            lines += ["vctp.8 %[rest]", "vp" + "s" + "t" * loads, *last]
        for vector, first in (("first", 0), ("second", 4)):
            for lane in (0, 1):
                low, high = REGISTERS[first + lane], REGISTERS[first + lane + 2]
                lines.append(f"vmov %q[{vector}][{lane + 2}], %q[{vector}][{lane}], {low}, {high}")
        return lines

    def frame(self, step: Step, pointers: tuple[str, ...]) -> str:
        """The block up to the vectors of sums, `first` and `second`, in C."""
        body = "\n".join(f'    "{line}\\n\\t"' for line in self.lines(step))
        moving = ", ".join(f'[{name}] "+r"(at_{name})' for name in pointers)
        count = ', [count] "+r"(count)' if self.deep else ""
        rest = ' [rest] "r"(taps % 16)' if self.tail else ""
        places = ", ".join(f"*at_{name} = {name}" for name in pointers)
        return "\n".join([
            "int32x4_t first, second;",
            f"const int8_t {places};",
            *(["int32_t count = (taps / 16 - 1) / 8;"] if self.deep else []),
            *([] if self.deep or self.tail else ["(void)taps;"]),
            "__asm__ volatile(",
            body,
            '    : [first] "=w"(first), [second] "=w"(second),',
            f"      {moving}{count}",
            f"    :{rest}",
            f"    : {CLOBBERS});",
        ])  # fmt: skip

    def instructions(self, step: Step) -> int:
        """Executed ones; a deep block is taken to run three rounds."""
        round_size = len(step("", "")) * ROUND + 2
        return len(self.lines(step)) + (2 * round_size if self.deep else 0)


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
