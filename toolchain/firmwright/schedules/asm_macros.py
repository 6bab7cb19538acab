"""C preprocessor macros shared by the micro-kernels in inline assembly.

Micro-kernels that differ only in their number of steps share one macro per step and
statement.
"""

from collections.abc import Iterable, Sequence
from textwrap import wrap

REGISTER_MACROS = """\
/* Registers: an assembly block needs r0 to r12 and lr, also the one of a frame pointer. gcc reloads
 * operands to r0-r7 only, which the eight accumulators take; pointers and temporaries therefore
 * have fixed registers above. clang allocates them itself and reserves one register. */
#if defined(__clang__)
#define FIXED_REGISTER(name)
#else
#define FIXED_REGISTER(name) __asm__(name)
#endif"""  # noqa: E501
KEEP_STORES = """\
/* gcc before 12.3 takes a predicated store for a store of all lanes, and drops earlier stores to
 * the lanes that it leaves alone (GCC bug 108177), unless something reads them. */
#define KEEP_STORES(to) __asm__ volatile("" : : "m"(*(const int8_t(*)[16])(to)))"""  # noqa: E501
"""A statement that stands before each predicated store of Helium."""


def string_lines(operations: Iterable[str]) -> list[str]:
    return [f'    "{operation}\\n\\t"' for operation in operations]


def define(head: str, lines: Iterable[str]) -> str:
    return " \\\n".join([f"#define {head}", *lines])


def repeat_macro(count: int) -> str:
    """Return `STEPS_<count>(FIRST, STEP)`: FIRST(0) STEP(1) ... STEP(count - 1)."""
    steps = ["FIRST(0)", *(f"STEP({index})" for index in range(1, count))]
    lines = [f"    {line}" for line in wrap(" ".join(steps), 92)]
    return define(f"STEPS_{count}(FIRST, STEP)", lines)


def wrap_assembly(head: str, items: Sequence[str], end: str = "") -> list[str]:
    """Return lines of up to 92 columns: `head`, the items and commas, and `end`."""
    lines, line = [], head
    for index, item in enumerate(items):
        part = item + ("," if index < len(items) - 1 else end)
        if len(line) + len(part) > 92:
            lines.append(line.rstrip())
            line = " " * len(head)
        line += part + " "
    return [*lines, line.rstrip()]
