"""Layers that differ in weights and scales only, whose candidates are built once.

    conv2d_1  8 x 8 x 16, 3 x 3      eleven candidates are built
    conv2d_4  8 x 8 x 16, 3 x 3      its fastest is built; ten are renamed copies

The copies are stand-ins: they have the code and the size of the layer's own kernels,
which is all that selection compares, but the constants of the first layer. The chosen
kernels are built afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Call, TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.kernel_code import code_of, constant_links
from firmwright.ir.tir.traversal import with_body
from firmwright.lower.kernel_maker import KernelMaker
from firmwright.lower.kernel_texts import words_of
from firmwright.ops.schedule import LoweringCandidate

_WEIGHTED = frozenset({"conv2d", "depthwise_conv2d", "fully_connected"})
"""Operators whose kernels read weights, but rarely have other code for them."""


@dataclass(frozen=True, slots=True)
class NamedLayer:
    """A call of the entry, with the name of its kernel."""

    name: str
    call: Call


@dataclass(frozen=True, slots=True)
class _KnownLayer:
    name: str
    candidates: Sequence[LoweringCandidate]


@dataclass(frozen=True)
class EqualLayers:
    """The layers of an entry so far, and those that have stand-ins, by kernel name."""

    _known: dict[Hashable, list[_KnownLayer]] = field(default_factory=dict)
    _with_stand_ins: dict[str, Call] = field(default_factory=dict)

    def offered(
        self,
        key: Hashable | None,
        layer: NamedLayer,
        build: KernelMaker,
        build_all: Callable[[], tuple[LoweringCandidate, ...]],
    ) -> tuple[LoweringCandidate, ...]:
        """Return the candidates of `layer`, like those of a layer with the same `key`.

        The fastest is its own. If its code is that of no such layer, or the key is
        None, `build_all` builds the candidates.
        """
        for known in self._known.get(key, ()):
            first, *others = known.candidates
            own = build(words_of(first))
            if own is not None and own.has_same_code(_renamed(first, known, layer)):
                self._with_stand_ins[layer.name] = layer.call
                return own, *[_renamed(item, known, layer) for item in others]
        candidates = build_all()
        if key is not None:
            self._known.setdefault(key, []).append(_KnownLayer(layer.name, candidates))
        return candidates

    def with_own_kernels(
        self, module: IRModule, build: Callable[[NamedLayer], KernelMaker]
    ) -> IRModule | None:
        """Return `module` with the layers' own kernels in place of the stand-ins.

        None if one of them has other code than its stand-in.
        """
        functions, constants = dict(module.functions), dict(module.constants)
        for name, call in self._with_stand_ins.items():
            chosen = functions.get(name)
            if not isinstance(chosen, tir.PrimFunc):
                continue  # computed by rows
            own = build(NamedLayer(name, call))(str(chosen.attrs["schedule"]))
            if own is None or own.function != chosen:
                return None
            functions[name] = own.function
            constants |= own.constants
        return replace(module, functions=functions, constants=constants)


def layer_key(call: OpCall, context: Hashable) -> Hashable | None:
    """Return a key that layers share if they differ in weights and scales only.

    `context` is what else their candidates depend on. None for calls whose constants
    are not weights.
    """
    same = call.op, call.attrs, call.numerics, call.scopes, call.all_channels, context
    if not any(call.constants):
        return same, call.inputs, call.outputs
    if call.op not in _WEIGHTED:
        return None
    inputs = tuple(map(_without_scales, call.inputs))
    outputs = tuple(map(_without_scales, call.outputs))
    return same, inputs, outputs, tuple(map(_layout, call.constants))


def _without_scales(kind: TensorType | None) -> Hashable:
    if kind is None or kind.quantization is None:
        return kind
    points, axis = kind.quantization.zero_points, kind.quantization.axis
    return kind.shape, kind.dtype, points, axis


def _layout(constant: Constant | None) -> Hashable:
    return constant and (constant.dtype, constant.shape)


def _renamed(
    candidate: LoweringCandidate, known: _KnownLayer, layer: NamedLayer
) -> LoweringCandidate:
    """Return a candidate of a known layer as one of `layer`, as if it had its name."""

    def own_name(constant: str) -> str:
        return layer.name + constant.removeprefix(known.name)

    function = candidate.function
    body = code_of(function.body)
    for link in reversed(constant_links(function.body)):
        body = tir.AllocateConst(link.buffer, own_name(link.constant), body)
    named = replace(function, name=layer.name, span=layer.call.span)
    constants: dict[str, Constant] = {}
    for name, constant in candidate.constants.items():
        constants[own_name(name)] = constant
    return replace(candidate, function=with_body(named, body), constants=constants)
