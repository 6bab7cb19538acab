"""Small networks in which a pass can lose a tensor, and where a tensor is afterwards.

Each network is module text for one transformation: a fusion, a fold, an elimination, a
view, or control flow. The place of a tensor is read from the statements of the AOT
main, not from the module's requests.
"""

from __future__ import annotations

from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module
from firmwright.ir.tir.traversal import prim_calls, statements

_MAP = "f32[1,4,4,4]"
_WEIGHTS = ", ".join(str((7 * k) % 5 - 2) + ".5" for k in range(4 * 9 * 4))
_CHANNELS = "[0.5, 1.5, -2.0, 0.25]"

_CONSTANTS = f"""
const @w = f32[4,3,3,4] [{_WEIGHTS}]
const @c = f32[4] {_CHANNELS}
"""
_CONV = 'stride=[1, 1], dilation=[1, 1], activation="none"'
_SAME = f"{{{_CONV}, padding=[1, 1, 1, 1]}}"

BODIES = {
    "an activation": f"""
  %b: {_MAP} = add(%x, %x) {{activation="none"}}
  %y: {_MAP} = relu(%b)""",
    "a late activation": f"""
  %b: {_MAP} = add(%x, %x) {{activation="relu"}}
  %y: f32[1,2,2,4] = max_pool2d(%b) {{size=[2, 2], stride=[2, 2], dilation=[1, 1],
    padding=[0, 0, 0, 0], activation="none"}}""",
    "a pad": f"""
  %b: f32[1,6,6,4] = pad(%x) {{paddings=[0, 0, 1, 1, 1, 1, 0, 0]}}
  %w = const @w: f32[4,3,3,4]
  %y: {_MAP} = conv2d(%b, %w, none) {{{_CONV}, padding=[0, 0, 0, 0]}}""",
    "a scale": f"""
  %w = const @w: f32[4,3,3,4]
  %c = const @c: f32[4]
  %b: {_MAP} = conv2d(%x, %w, none) {_SAME}
  %y: {_MAP} = expression(%b, %c, %c) {{formula="a * b + c"}}""",
    "a shift behind a reshape": f"""
  %w = const @w: f32[4,3,3,4]
  %c = const @c: f32[4]
  %a: {_MAP} = conv2d(%x, %w, none) {_SAME}
  %b: f32[1,16,4] = reshape(%a)
  %y: f32[1,16,4] = expression(%b, %c, %c) {{formula="a * b + c"}}""",
    "expressions": f"""
  %a: {_MAP} = expression(%x) {{formula="a * 2.0"}}
  %b: {_MAP} = relu(%a)
  %y: {_MAP} = expression(%b) {{formula="a + 1.0"}}""",
    "transposes": f"""
  %t: {_MAP} = transpose(%x) {{perm=[0, 2, 3, 1]}}
  %a: {_MAP} = relu(%t)
  %b: {_MAP} = expression(%a) {{formula="a + 1.0"}}
  %u: {_MAP} = transpose(%b) {{perm=[0, 3, 1, 2]}}
  %y: {_MAP} = tanh(%u)""",
    "equal calls": f"""
  %a: {_MAP} = tanh(%x)
  %b: {_MAP} = tanh(%x)
  %y: {_MAP} = sub(%a, %b) {{activation="none"}}""",
    "views": f"""
  %a: {_MAP} = tanh(%x)
  %b: f32[1,64] = reshape(%a)
  %c: f32[1,8,8] = reshape(%b)
  %y: f32[1,8,8] = logistic(%c)""",
    "a concatenation": f"""
  %a: {_MAP} = tanh(%x)
  %b: {_MAP} = logistic(%x)
  %c: f32[1,8,4,4] = concatenation(%a, %b) {{axis=1}}
  %y: f32[1,8,4,4] = relu(%c)""",
    "a split": f"""
  %a: {_MAP} = tanh(%x)
  %b: f32[1,2,4,4], %c: f32[1,2,4,4] = split(%a) {{axis=1, sizes=[2, 2]}}
  %y: f32[1,2,4,4] = mul(%b, %c) {{activation="none"}}""",
    "rows": f"""
  %w = const @w: f32[4,3,3,4]
  %a: {_MAP} = conv2d(%x, %w, none) {_SAME}
  %b: {_MAP} = conv2d(%a, %w, none) {_SAME}
  %c: {_MAP} = conv2d(%b, %w, none) {_SAME}
  %y: f32[1,2,2,4] = max_pool2d(%c) {{size=[2, 2], stride=[2, 2], dilation=[1, 1],
    padding=[0, 0, 0, 0], activation="none"}}""",
}
"""The calls of each network, from the input `x` to the output `y`."""


def placed_network(name: str) -> IRModule:
    head = (
        f"firmwright ir 2\nmodule @net\n{_CONSTANTS}graph @main(%x: {_MAP}) -> (%y) {{"
    )
    return parse_module(f"{head}{BODIES[name]}\n}}\n")


def is_buffer(module: IRModule, name: str) -> bool:
    return name in _memory_of(module)


def pool_of(module: IRModule, buffer: str) -> str:
    """Return the pool that contains a buffer of the AOT main."""
    return _memory_of(module)[buffer][-1]


def devices_of(module: IRModule, buffer: str) -> set[str]:
    """Return the devices of calls that write to a buffer, its parts or its wholes."""
    memory = _memory_of(module)
    within = {name for name, wholes in memory.items() if buffer in wholes}
    return _writers(module, within) or _writers(module, set(memory[buffer]))


def _memory_of(module: IRModule) -> dict[str, tuple[str, ...]]:
    """Return, by buffer, the buffer itself, what contains it, and at last its pool."""
    memory = {param.name: (param.name,) for param in module.aot_main.params}
    for node in statements(module.aot_main.body):
        if isinstance(node, tir.DeclBuffer):
            source = node.source.buffer.name
            memory[node.buffer.name] = (
                node.buffer.name,
                *memory.get(source, ("program",)),
            )
    return memory


def _writers(module: IRModule, buffers: set[str]) -> set[str]:
    return {
        call.device or "cpu0"
        for call in prim_calls(module.aot_main.body)
        for arg in call.args
        if isinstance(arg, tir.AccessPtr)
        and "w" in arg.access
        and arg.buffer.name in buffers
    }
