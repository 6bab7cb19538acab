"""Kernels of a bounded axis: one kernel for many sizes, proven against each of them.

A call is lowered at every size as if its shapes were fixed. Kernels of two sizes have
the same template if they differ in numbers only (`passes/tir/shape_abstraction.py`).
The numbers become formulas of the size, which is a parameter of the kernel. With the
number of any size in place of the parameter, the kernel is that of the fixed shape:
directly, or after simplification where a loop has a single iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from firmwright.base.dtypes import INT32, INT64, UINT32
from firmwright.base.size_formula import fit_size_formula
from firmwright.ir import tir
from firmwright.ir.bounded_axis import BoundedAxis
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Call
from firmwright.ir.tir.inplace_distance import find_offset_constraints
from firmwright.ir.tir.kernel_code import code_of
from firmwright.ir.tir.traversal import (
    Node,
    rewrite_func,
    substitute,
    walk,
    with_body,
)
from firmwright.lower.kernel_memo import KernelMemo
from firmwright.lower.lowering import Lowering
from firmwright.lower.resized_graphs import ResizedGraphs
from firmwright.ops.schedule import LoweringCandidate
from firmwright.passes.tir.narrow_index import narrow_indices
from firmwright.passes.tir.shape_abstraction import (
    KernelTemplate,
    fill_holes,
    flatten_buffers,
    make_template,
)
from firmwright.passes.tir.simplify import simplify
from firmwright.passes.tir.unroll import unroll

_VARIABLE = (INT32, INT64, UINT32)
"""The types of numbers that may vary."""
_WHOLE_MAX = 1 << 24
"""Whole numbers below are exact as floats."""
_SIZE_LIMIT = 1 << 31
"""Sizes are computed in 32 bits."""
_ALONE_MAX = 2
"""Sizes with kernels of their own."""


@dataclass(frozen=True, slots=True)
class SizeClass:
    """The sizes with the remainder `rest` modulo `modulus`; 0 is the size `rest`."""

    modulus: int = 1
    rest: int = 0

    def includes(self, size: int) -> bool:
        if not self.modulus:
            return size == self.rest
        return size % self.modulus == self.rest


ALL_SIZES = SizeClass()


@dataclass(frozen=True, slots=True)
class KernelForm:
    """A schedule with its configuration, and whether loops have one form."""

    schedule: str
    keeps_loops: bool = False


@dataclass(frozen=True, slots=True)
class FixedKernel:
    """The kernel of a call at one size, simplified, with one-dimensional buffers."""

    function: tir.PrimFunc
    template: KernelTemplate
    constants: Mapping[str, Constant]

    def has_same_code_as(self, other: FixedKernel) -> bool:
        mine, theirs = self.template, other.template
        return mine.key == theirs.key and mine.values == theirs.values

    def for_sizes(
        self, sizes: SizeClass, function: tir.PrimFunc, axis: BoundedAxis
    ) -> BoundedKernel:
        """Return `function`, made of this largest kernel, as the kernel for sizes."""
        constants: dict[str, Constant] = {}
        for node in walk(function.body):
            if isinstance(node, tir.AllocateConst):
                constants[node.constant] = self.constants[node.buffer.name]
        distances = _distances(function, self, axis)
        return BoundedKernel(_with_floats(function), sizes, constants, distances)


@dataclass(frozen=True, slots=True)
class BoundedKernel:
    """A kernel for some sizes, with its constants.

    `distances` are the distances of outputs and inputs that it excludes, None if all
    that overlap.
    """

    function: tir.PrimFunc
    sizes: SizeClass
    constants: Mapping[str, Constant]
    distances: tuple[int, int] | None


@dataclass
class BoundedKernels:
    """Builds kernels for the sizes of an axis, by the lowering at each of them."""

    graphs: ResizedGraphs
    lowerings: Mapping[int, Lowering]
    _fixed: dict[tuple[int, str, KernelForm], FixedKernel | None] = field(
        default_factory=dict
    )

    @cached_property
    def _kept(self) -> dict[int, Lowering]:
        """The lowerings whose loops have the same form for all extents."""
        kept: dict[int, Lowering] = {}
        for size, lowering in self.lowerings.items():
            kept[size] = replace(lowering, keeps_loops=True, kernels=KernelMemo())
        return kept

    def candidates(
        self, call: Call, name: str, schedules: Sequence[str]
    ) -> list[LoweringCandidate]:
        """Return the kernels of the largest size whose loops have the same form."""
        lowering = self._kept[self.axis.most]
        built = [lowering.built(name, call, call, words) for words in schedules]
        return [candidate for candidate in built if candidate is not None]

    @property
    def axis(self) -> BoundedAxis:
        return self.graphs.axis

    def cover(
        self, name: str, call: Call, form: KernelForm, modulus: int
    ) -> list[BoundedKernel]:
        """Return kernels for all sizes, by their remainders; [] if impossible.

        The last ones are for single sizes.
        """
        most = self.axis.most
        kernels: list[BoundedKernel] = []
        alone: list[int] = []
        for step in range(modulus):
            sizes = SizeClass(modulus, (most - step) % modulus)
            if not any(map(sizes.includes, self.axis.sizes)):
                continue
            own = f"{name}_rest_{sizes.rest}" if step else name
            kernel, others = self.kernel(own, call, form, sizes)
            alone += others
            if kernel is None or len(alone) > _ALONE_MAX:
                return []
            kernels.append(kernel)
        for size in alone:
            single = self._kernel_at(size, f"{name}_of_{size}", call, form)
            if single is None:
                return []
            sizes, function = SizeClass(0, size), single.function
            kernels.append(single.for_sizes(sizes, function, self.axis))
        return kernels

    def kernel(
        self, name: str, call: Call, form: KernelForm, sizes: SizeClass
    ) -> tuple[BoundedKernel | None, list[int]]:
        """Return the kernel, and those of the sizes that it is not for.

        It is None if it is for few of them.
        """
        own = [size for size in self.axis.sizes if sizes.includes(size)]
        most = own[-1]
        largest = self._kernel_at(most, name, call, form)
        if largest is None:
            return None, own
        regular, irregular = {most: largest.template}, dict[int, FixedKernel]()
        for size in reversed(own[:-1]):
            found = self._kernel_at(size, name, call, form)
            if found is None or not _are_prefixes(found.constants, largest.constants):
                return None, own
            if found.template.key == largest.template.key:
                regular[size] = found.template
            else:
                irregular[size] = found
            if len(irregular) > len(regular) + _ALONE_MAX:
                return None, own
        function = self._with_formulas(largest, regular)
        if function is None:
            return None, own
        others: list[int] = []
        for size, found in irregular.items():
            filled = self._filled(function, size)
            if filled is None or not filled.has_same_code_as(found):
                others.append(size)
        return largest.for_sizes(sizes, function, self.axis), others

    def _kernel_at(
        self, size: int, name: str, call: Call, form: KernelForm
    ) -> FixedKernel | None:
        key = size, name, form
        if key not in self._fixed:
            own, lowering = self.graphs.at(call, size), self.lowerings[size]
            if form.keeps_loops:
                lowering = self._kept[size]
            built = lowering.built(name, own, own, form.schedule)
            found: FixedKernel | None = None
            if built is not None:
                constants = {**lowering.module.constants, **built.constants}
                simple = narrow_indices(simplify(unroll(built.function)))
                found = self._fixed_kernel(_with_integers(simple), constants)
            self._fixed[key] = found
        return self._fixed[key]

    def _fixed_kernel(
        self, function: tir.PrimFunc, constants: Mapping[str, Constant]
    ) -> FixedKernel | None:
        flat = flatten_buffers(function)
        if flat is None:
            return None
        linked: dict[str, Constant] = {}
        for node in walk(flat.body):
            if isinstance(node, tir.AllocateConst) and node.constant in constants:
                linked[node.buffer.name] = constants[node.constant]
        intrinsics = self.lowerings[self.axis.most].intrinsics
        return FixedKernel(flat, make_template(flat, intrinsics), linked)

    def _with_formulas(
        self, largest: FixedKernel, templates: Mapping[int, KernelTemplate]
    ) -> tir.PrimFunc | None:
        """Return the kernel with formulas for the numbers that vary, or None."""
        variables: dict[int, tir.Expr] = {}
        for index, hole in enumerate(largest.template.numbers):
            values = {n: t.numbers[index].value.value for n, t in templates.items()}
            if len(set(values.values())) == 1:
                continue
            formula = fit_size_formula(values)
            if formula is None or hole.value.dtype not in _VARIABLE:
                return None
            ends = (self.axis.least, self.axis.most)
            if not all(formula.fits(size, _SIZE_LIMIT) for size in ends):
                return None
            variables[hole.place] = self.axis.expression(formula, hole.value.dtype)
        function = fill_holes(largest.function, variables)
        param = tir.Param(self.axis.variable, "scalar")
        return replace(function, params=(*function.params, param))

    def _filled(self, function: tir.PrimFunc, size: int) -> FixedKernel | None:
        """Return the kernel with a number in place of the size."""
        number = tir.IntImm(size, self.axis.variable.dtype)
        body = substitute(function.body, {self.axis.variable.name: number})
        params = tuple(p for p in function.params if p.value != self.axis.variable)
        filled = replace(with_body(function, body), params=params)
        return self._fixed_kernel(_with_integers(simplify(_with_floats(filled))), {})


def _with_integers(function: tir.PrimFunc) -> tir.PrimFunc:
    """Return the kernel with casts of integers for floats that are whole numbers.

    So the divisor of a mean is a number that may vary.
    """

    def rule(node: Node) -> Node | None:
        if not isinstance(node, tir.FloatImm) or not 1 <= node.value < _WHOLE_MAX:
            return None
        if node.value != int(node.value):
            return None
        return tir.Cast(node.dtype, tir.IntImm(int(node.value), INT32))

    return rewrite_func(function, rule)


def _with_floats(function: tir.PrimFunc) -> tir.PrimFunc:
    """Undo `_with_integers`, except for numbers that vary."""

    def rule(node: Node) -> Node | None:
        match node:
            case tir.Cast(dtype, tir.IntImm(value)) if dtype.is_float:
                return tir.FloatImm(float(value), dtype)
        return None

    return rewrite_func(function, rule)


def _are_prefixes(
    constants: Mapping[str, Constant], largest: Mapping[str, Constant]
) -> bool:
    """Return whether the constants of a size are the first bytes of the largest."""
    if constants.keys() != largest.keys():
        return False
    pairs = ((constant, largest[name]) for name, constant in constants.items())
    return all(b.data.startswith(a.data) and a.dtype == b.dtype for a, b in pairs)


def _distances(
    function: tir.PrimFunc, largest: FixedKernel, axis: BoundedAxis
) -> tuple[int, int] | None:
    """Return the excluded distances of outputs and inputs at all sizes, or None.

    They are those of the largest size if the size is the extent of the one outermost
    loop only: the accesses of a size are then the first ones of the largest.
    """
    loop = code_of(function.body)
    if isinstance(loop, tir.For):
        varying: list[tir.Stmt | tir.Expr] = [loop.start, loop.body]
    else:
        varying = [loop]
    if _mentions(varying, axis):
        return None
    lows, highs = [0], [0]
    for source in [p.name for p in function.params if p.role == "in"]:
        for result in [p.name for p in function.params if p.role == "out"]:
            found = find_offset_constraints(largest.function, source, result)
            if found is None:
                return None
            lows += [constraint.lo for constraint in found]
            highs += [constraint.hi for constraint in found]
    return min(lows), max(highs)


def _mentions(nodes: Sequence[tir.Stmt | tir.Expr], axis: BoundedAxis) -> bool:
    return any(part == axis.variable for node in nodes for part in walk(node))
