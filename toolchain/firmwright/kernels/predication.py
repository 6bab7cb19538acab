"""VPT blocks of Helium: VPST precedes up to four predicated instructions.

The program has none; they follow from the instructions that stand side by side:

    vctp.8   rest
    vpstt                  (two instructions follow, whose mnemonics have a t)
    vldrbt.8 q0, [r1]
    vldrbt.8 q1, [r3]
    vldrb.8  q2, [r5], #16
"""

from collections.abc import Iterator, Sequence

from firmwright.kernels.program import Node, Step

_BLOCK_MAX = 4


def vpt_blocks(body: Sequence[Node]) -> Iterator[tuple[int, Node]]:
    """Yield the nodes, each with the size of the VPT block that it begins, or 0."""
    left = 0
    for place, node in enumerate(body):
        size = 0
        if not _is_predicated(node):
            left = 0
        elif left:
            left -= 1
        else:
            size = _block_size(body[place:])
            left = size - 1
        yield size, node


def _block_size(body: Sequence[Node]) -> int:
    size = 0
    while size < min(len(body), _BLOCK_MAX) and _is_predicated(body[size]):
        size += 1
    return size


def _is_predicated(node: Node) -> bool:
    return isinstance(node, Step) and node.instr.is_predicated


def vpst(size: int) -> str:
    """Return the instruction that begins a block of `size` instructions."""
    return "vps" + "t" * size
