"""Translation of kernels to C functions.

Kernels take plain pointers, const if they only read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from firmwright.base.errors import InternalError
from firmwright.codegen.buffer_overlaps import OVERLAP_NOTE, OverlapComments
from firmwright.codegen.c_names import PointerBinding
from firmwright.codegen.c_writer import format_comment
from firmwright.codegen.expr_printer import ExprPrinter
from firmwright.codegen.stmt_printer import EmitContext, StmtPrinter
from firmwright.ir import tir
from firmwright.ir.graph.devices import core_targets
from firmwright.ir.tir import traversal

READ_ROLES = ("in", "const")
WRITTEN_ROLES = ("out", "inout")


def print_kernels(
    context: EmitContext, functions: Sequence[tir.PrimFunc], main: tir.PrimFunc
) -> str:
    """Print each distinct kernel once; those that share code must print alike."""
    by_name: dict[str, tir.PrimFunc] = {}
    served: dict[str, list[tir.PrimFunc]] = {}
    for function in functions:
        by_name[function.name] = function
        served.setdefault(function.code, []).append(function)
    overlaps = OverlapComments(main, by_name)
    numbers: dict[str, set[int]] = {}
    for call in traversal.prim_calls(main.body):
        numbers.setdefault(context.module.kernel(call.callee).code, set()).add(call.op)
    texts = [f"\n{format_comment(OVERLAP_NOTE)}\n"] if overlaps else []
    for code, members in served.items():
        listed = ", ".join(map(str, sorted(numbers.get(code, ()))))
        shared = [f"Shared by operators {listed}."] if "," in listed else []
        comment = [*_kernel_comment(members, shared), *overlaps.lines(members[0])]
        printed: dict[str, None] = {}
        for member in members:
            printed[_print_kernel(context, member, comment)] = None
        if len(printed) > 1:
            raise InternalError(f"kernels that share {code} print differently")
        texts += printed
    return "".join(texts)


def kernel_head(
    printer: StmtPrinter, function: tir.PrimFunc, names: Mapping[str, str]
) -> str:
    """Return the first line of a kernel's definition, with parameters of `names`.

    Kernels of other C files than the main's are not static.
    """
    context = printer.context
    params: list[str] = []
    for param in function.params:
        params.append(_declare_param(printer.exprs, param, names[param.name]))
    kind = context.names.macro("ramfunc" if function.attrs.get("ramfunc") else "kernel")
    kind += " "
    if function.attrs.get("target") in core_targets(context.module):
        section = context.options.section("code")
        kind = f"{context.names.macro('code')} " if section else ""
    head = f"{kind}void {context.names.c(function.code)}"
    return f"{head}({', '.join(params) or 'void'})"


def _print_kernel(
    context: EmitContext, function: tir.PrimFunc, comment: Sequence[str]
) -> str:
    printer = StmtPrinter(context)
    out = printer.out
    names = {param.name: printer.scope.unique(param.name) for param in function.params}
    head = kernel_head(printer, function, names)
    out.line()
    out.comment(comment)
    with out.function(head):
        with printer.scope.block():
            printer.body(function.body)
        for name in names:
            # A shared C function has the parameters of all its kernels, needed or not.
            if name not in printer.used_names:
                out.line(f"(void){names[name]};")
    return out.text()


def _declare_param(exprs: ExprPrinter, param: tir.Param, name: str) -> str:
    """Bind a kernel parameter to `name` and return its C declaration."""
    if isinstance(param.value, tir.Var):
        exprs.variables[param.value.name] = name
        return f"{param.value.dtype.c_type} {name}"
    place = exprs.places[param.value.name] = PointerBinding(name, param.value)
    const = "const " if param.role in READ_ROLES else ""
    return f"{const}{exprs.element_type(place)} *{name}"


def _kernel_comment(
    members: Sequence[tir.PrimFunc], shared: Sequence[str]
) -> Iterator[str]:
    function = members[0]
    texts = "\n".join(str(member.attrs.get("comment", "")) for member in members)
    default = str(function.attrs.get("op", function.name))
    yield from dict.fromkeys(filter(None, texts.split("\n"))) or [default]
    yield from shared
    if len(members) == 1:
        reads = _format_shapes(function, ("in",))
        writes = _format_shapes(function, WRITTEN_ROLES)
        yield f"{reads or 'nothing'} -> {writes}"
        if function.span.file:
            yield str(function.span)
    if function.attrs.get("schedule"):
        yield f"schedule {function.attrs['schedule']}"


def _format_shapes(function: tir.PrimFunc, roles: Collection[str]) -> str:
    """Return the buffers among the parameters with one of these roles."""
    words: list[str] = []
    for param in function.params:
        buffer = param.value
        if param.role in roles and isinstance(buffer, tir.Buffer):
            extents = ", ".join(map(str, buffer.shape))
            words.append(f"{buffer.name} {buffer.dtype.name}[{extents}]")
    return ", ".join(words)
