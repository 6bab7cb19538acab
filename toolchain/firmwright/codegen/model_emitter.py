"""Emits a planned module as a `SourceTree`: the model's C and the firmware glue.

The files are model/NAME.c, NAME.h, NAME_weights.h (for unlinked constants,
NAME.params.bin, .inc and a JSON index; for constant pools, NAME_POOL.bin and .inc) and
firmware/fwr_app.c. The model's C does not depend on the runtime. The output is
deterministic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from firmwright.artifacts import SourceTree
from firmwright.base.c_identifiers import to_model_identifier
from firmwright.base.dtypes import STORAGE_DTYPES
from firmwright.base.errors import UsageError
from firmwright.base.templates import render_template
from firmwright.base.version import ABI
from firmwright.codegen import (
    c_writer,
    constant_arrays,
    constant_pool_files,
    core_kernels,
    embedded_constants,
    function_printer,
)
from firmwright.codegen import helper_functions as helpers
from firmwright.codegen.array_literals import format_rows
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.c_writer import CWriter
from firmwright.codegen.constant_arrays import LinkedConstant, ParamsBlock
from firmwright.codegen.emit_options import DEFAULT_EMIT_OPTIONS, EmitOptions
from firmwright.codegen.microtvm_interface import format_microtvm_files
from firmwright.codegen.model_identity import (
    format_model_id,
    insert_model_id,
    with_interface_hash,
)
from firmwright.codegen.model_interface import (
    ModelInterface,
    PlacedBuffer,
    build_interface,
)
from firmwright.codegen.multi_device_main import print_multi_device_main
from firmwright.codegen.row_streaming_main import print_row_streaming_main
from firmwright.codegen.step_function import print_step_function
from firmwright.codegen.stmt_printer import EmitContext
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.targets.registry import features_of_known

RUNTIME_ABI = ABI
"""The version of runtime_c/fwr.h that the glue requires."""

_WIDTHS = (8, 16, 32, 64)
_FEW_TENSORS = 8
"""Inputs and outputs whose addresses are too few constants for gcc 12 to misjudge."""


def _runtime_dtypes() -> dict[str, str]:
    names: list[str] = []
    for bits in _WIDTHS:
        names += [f"int{bits}", f"uint{bits}"]
    names += ["float32", "float64", "bool", *(dtype.name for dtype in STORAGE_DTYPES)]
    return {name: f"FWR_{name.upper()}" for name in names}


RUNTIME_DTYPES: Mapping[str, str] = _runtime_dtypes()


def emit_model(
    module: IRModule,
    intrinsics: IntrinsicTable,
    options: EmitOptions = DEFAULT_EMIT_OPTIONS,
) -> SourceTree:
    module.require_trust()
    program = _analyze(module, options)
    main, kernels, interface = program.main, program.kernels, program.interface
    if interface.devices and options.emit_probe_callback:
        what = "--devices and --emit-probe-callback do not go together."
        raise UsageError(what, where=module.name, hint="omit one of them.")
    constants = program.constants
    pools = constant_pool_files.find_constant_pools(module, interface.names)
    context = EmitContext(module, interface, intrinsics, options, constants, pools)
    kernel_text, core_files = core_kernels.print_all_kernels(context, kernels, main)
    print_any_main = function_printer.print_main
    if interface.rows:
        print_any_main = print_row_streaming_main
    elif interface.devices:
        print_any_main = print_multi_device_main
    main_text = print_any_main(context, main)
    if options.emit_step_api:
        main_text += "\n" + print_step_function(context, main)
    tree = _source_tree(context, main, kernels, kernel_text, main_text, core_files)
    return tree.merged(format_microtvm_files(context)) if options.tvm_api else tree


@dataclass(frozen=True, slots=True)
class _PrintedProgram:
    """What the files of a model are printed from: functions, interface, constants."""

    main: tir.PrimFunc
    kernels: tuple[tir.PrimFunc, ...]
    interface: ModelInterface
    constants: Mapping[str, LinkedConstant]


def _analyze(module: IRModule, options: EmitOptions) -> _PrintedProgram:
    main = module.aot_main
    names = ModelNames(to_model_identifier(options.prefix or module.name))
    interface = build_interface(module, main, names)
    interface = replace(interface, has_probe_callback=options.emit_probe_callback)
    kernels = function_printer.reachable_kernels(module, main)
    shared = options.shared if interface.linked else {}
    section = options.section("const") or constant_arrays.DEFAULT_SECTION
    constants = constant_arrays.collect_linked_constants(
        module, (*kernels, main), names, shared, section
    )
    return _PrintedProgram(main, kernels, interface, constants)


def emit_embedded_constants(module: IRModule, options: EmitOptions) -> SourceTree:
    """Return files in place of NAME_weights.h whose large constants are no C arrays.

    Compilers of ELF objects build them in less time and memory. The tree is empty if no
    constant of the image is large. The model's identity remains that of `emit_model`.
    """
    program = _analyze(module, options)
    if not program.interface.linked:
        return SourceTree({})
    constants = _distinct(program.constants)
    return embedded_constants.format_files(program.interface, constants, options)


def _distinct(constants: Mapping[str, LinkedConstant]) -> tuple[LinkedConstant, ...]:
    """Return one constant for each symbol."""
    return tuple({item.symbol: item for item in constants.values()}.values())


def _source_tree(
    context: EmitContext,
    main: tir.PrimFunc,
    kernels: Sequence[tir.PrimFunc],
    kernel_text: str,
    main_text: str,
    core_files: Mapping[str, str],
) -> SourceTree:
    module, interface, options = context.module, context.interface, context.options
    name, spdx = context.names.prefix, options.spdx
    constants = _distinct(context.constants)
    params = None if interface.linked else constant_arrays.build_params_block(constants)
    has_weights = interface.linked and bool(constants or not context.const_pools)
    features = features_of_known(module.targets.values())
    gcc_flags = helpers.gcc_flags(
        context.used,
        kernels,
        inline_asm=options.inline_asm,
        pointers_as_vectors="mve" in features and len(interface.tensors) > _FEW_TENSORS,
    )
    header = _render(context, "model.h.j2", params=params, gcc_flags=gcc_flags)
    files: dict[str, str | bytes] = {
        f"model/{name}.h": with_interface_hash(header),
        f"model/{name}.c": _model_source(
            context,
            main,
            kernels,
            params=params,
            has_weights=has_weights,
            gcc_flags=gcc_flags,
            kernel_text=kernel_text,
            main_text=main_text,
        ),
    }
    if has_weights:
        weights = constant_arrays.format_weights_header(interface, constants, options)
        files[f"model/{name}_weights.h"] = weights
    format_data_files = constant_pool_files.format_data_files
    if params is not None:
        files |= format_data_files(f"{name}.params", params.data, spdx)
        files[f"model/{name}.params.json"] = params.index(name) + "\n"
    for pool in context.const_pools:
        files |= format_data_files(pool.file, pool.data, spdx)
    files |= {**module.files, **core_files, **format_descriptor(context)}
    identity = insert_model_id(files, name)
    files["firmware/fwr_app.c"] = _render(
        context,
        "fwr_app.c.j2",
        params=params,
        abi=RUNTIME_ABI,
        id_rows=format_model_id(identity),
        dtypes=RUNTIME_DTYPES,
    )
    return SourceTree(files)


def _model_source(
    context: EmitContext,
    main: tir.PrimFunc,
    kernels: Sequence[tir.PrimFunc],
    *,
    params: ParamsBlock | None,
    has_weights: bool,
    gcc_flags: tuple[str, ...],
    kernel_text: str,
    main_text: str,
) -> str:
    """Return NAME.c with the printed functions."""
    interface, used = context.interface, context.used
    places = {place.buffer.name: place for place in interface.placed}
    copied: list[tuple[str, str, PlacedBuffer]] = []
    for name, buffer in function_printer.ram_constants(context.module, main):
        size = str(context.module.constants[name].size_bytes)
        symbol = context.constant_symbol(name)
        size = size if interface.params else f"sizeof {symbol}"
        copied.append((symbol, size, places[buffer]))
    external = params or context.const_pools
    copies = bool(copied or interface.state or interface.copies or external)
    checks = function_printer.backend_version_checks(context.module)
    return _render(
        context,
        "model.c.j2",
        params=params,
        gcc_flags=gcc_flags,
        has_weights=has_weights,
        ram_constants=copied,
        headers=helpers.system_headers(used, copies=copies),
        foreign_headers=helpers.library_headers(used),
        has_ramfuncs=any(func.attrs.get("ramfunc") for func in kernels),
        checks=[function for function, _ in checks],
        **helpers.template_values(
            used, context.names, inline_asm=context.options.inline_asm
        ),
        kernels=kernel_text,
        main=main_text,
        definition=context.definition,
        map_io=function_printer.print_map_io(context) if interface.in_pools else "",
        format_rows=format_rows,
    )


def _render(
    context: EmitContext,
    template: str,
    *,
    params: ParamsBlock | None,
    gcc_flags: tuple[str, ...] = (),
    **more: object,
) -> str:
    module, interface, options = context.module, context.interface, context.options
    name, pools = context.names.prefix, context.const_pools
    source = ""
    if module.origin.sha256:
        digest = c_writer.escape_comment(module.origin.sha256[:16])
        source = f"model file sha256 {digest}"
    notes = [c_writer.escape_comment(note) for note in options.notes]
    if notes and gcc_flags:
        notes.append(f"  {' '.join(gcc_flags)}")
    more_arguments = ", &params" if interface.params == "params" else ""
    if interface.devices:
        more_arguments += ", &devices"
    if interface.has_probe_callback:
        more_arguments += ", NULL"
    return render_template(
        "firmwright.codegen",
        template,
        name=name,
        NAME=name.upper(),
        module=module,
        io=interface,
        options=options,
        source=source,
        notes=notes,
        gcc_flags=gcc_flags,
        params=params,
        const_pools=pools,
        readers=sorted({pool.scope for pool in pools if not pool.addressable}),
        params_alignment=constant_arrays.PARAMS_ALIGNMENT,
        c_line=c_writer.format_lines,
        more_arguments=more_arguments,
        emulated_engines=module.settings.devices.emulated_engines,
        waits=dict(module.results.device_waits),
        plan_rows=_plan_rows(interface),
        placed_pools=sorted({place.pool for place in interface.placed if place.direct}),
        c_string=c_writer.format_c_string,
        comment=c_writer.escape_comment,
        format_id=format_model_id,
        version=f"{name}, firmwright {options.tool_version}".rstrip(),
        **more,
    )


def _plan_rows(interface: ModelInterface) -> list[str]:
    names, stems = interface.names, interface.offset_stems
    rows: list[tuple[str, str, str, str]] = []
    for place in interface.placed:
        if place.direct:
            head = f"{names.macro('in', place.pool)}({stems[place.buffer.name]},"
            offset, size = f"{place.offset},", f"{place.buffer.size_bytes},"
            rows.append((head, offset, size, str(place.alignment)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    out = CWriter()
    for head, *numbers in rows:
        columns = " ".join(map(str.rjust, numbers, widths[1:]))
        text = f"{head.ljust(widths[0])} {columns});"
        if len(text) > c_writer.LINE_COLUMNS:
            text = f"{head} {' '.join(numbers)});"
        out.line(text)
    return out.text().splitlines()


def format_descriptor(context: EmitContext) -> dict[str, str]:
    """Return the files of the descriptor, if the options request it."""
    io, name, options = context.interface, context.names.prefix, context.options
    if not options.emit_descriptor:
        return {}
    if io.rows or io.devices or not io.linked or context.const_pools:
        what = (
            "a descriptor cannot describe row-streamed inputs, devices or external "
            "constants."
        )
        hint = "omit --emit-descriptor or the other option."
        raise UsageError(what, where=name, hint=hint)
    values = {
        "name": name,
        "NAME": name.upper(),
        "io": io,
        "c_string": c_writer.format_c_string,
    }
    templates = {
        "firmwright_model.h": "firmwright_model.h.j2",
        f"{name}_descriptor.c": "descriptor.c.j2",
        f"{name}_descriptor.h": "descriptor.h.j2",
    }
    files: dict[str, str] = {}
    for file, template in templates.items():
        text = render_template(
            "firmwright.codegen", template, options=options, **values
        )
        files[f"model/{file}"] = text
    return files
