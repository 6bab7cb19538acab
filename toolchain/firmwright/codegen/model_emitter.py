"""Emits a planned module as a `SourceTree`: the model's C and the firmware glue.

The files are model/NAME.c, NAME.h, NAME_weights.h (for unlinked constants,
NAME.params.bin, .inc and a JSON index; for constant pools, NAME_POOL.bin and .inc) and
firmware/fwr_app.c. The model's C does not depend on the runtime. The output is
deterministic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from firmwright.artifacts import SourceTree
from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.errors import UsageError
from firmwright.base.templates import render_template
from firmwright.base.version import ABI
from firmwright.codegen import (
    c_writer,
    constant_arrays,
    constant_pool_files,
    function_printer,
)
from firmwright.codegen import helper_functions as helpers
from firmwright.codegen.array_literals import format_rows
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.c_writer import CWriter
from firmwright.codegen.constant_arrays import ParamsBlock
from firmwright.codegen.emit_options import DEFAULT_EMIT_OPTIONS, EmitOptions
from firmwright.codegen.microtvm_interface import format_microtvm_files
from firmwright.codegen.model_identity import (
    format_model_id,
    insert_model_id,
    with_interface_hash,
)
from firmwright.codegen.model_interface import ModelInterface, build_interface
from firmwright.codegen.multi_device_main import print_multi_device_main
from firmwright.codegen.row_streaming_main import print_row_streaming_main
from firmwright.codegen.step_function import print_step_function
from firmwright.codegen.stmt_printer import EmitContext
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.intrinsic import IntrinsicTable

RUNTIME_ABI = ABI
"""The version of runtime_c/fwr.h that the glue requires."""

_WIDTHS = (8, 16, 32, 64)
_DTYPES = (
    *(f"{sign}int{bits}" for bits in _WIDTHS for sign in ("", "u")),
    "float32",
    "bool",
)
RUNTIME_DTYPES: Mapping[str, str] = {name: f"FWR_{name.upper()}" for name in _DTYPES}


def emit_model(
    module: IRModule,
    intrinsics: IntrinsicTable,
    options: EmitOptions = DEFAULT_EMIT_OPTIONS,
) -> SourceTree:
    module.require_trust()
    main = module.aot_main
    names = ModelNames(to_c_identifier(options.prefix or module.name))
    interface = build_interface(module, main, names)
    interface = replace(interface, has_probe_callback=options.emit_probe_callback)
    if interface.devices and options.emit_probe_callback:
        what = "--devices and --emit-probe-callback do not go together."
        raise UsageError(what, where=module.name, hint="omit one of them.")
    kernels = function_printer.reachable_kernels(module, main)
    shared = options.shared if interface.linked else {}
    section = options.section("const") or constant_arrays.DEFAULT_SECTION
    constants = constant_arrays.collect_linked_constants(
        module, (*kernels, main), names, shared, section
    )
    const_pools = constant_pool_files.find_constant_pools(module, names)
    context = EmitContext(
        module, interface, intrinsics, options, constants, const_pools
    )
    kernel_text = function_printer.print_kernels(context, kernels, main)
    print_any_main = function_printer.print_main
    if interface.rows:
        print_any_main = print_row_streaming_main
    elif interface.devices:
        print_any_main = print_multi_device_main
    main_text = print_any_main(context, main)
    if options.emit_step_api:
        main_text += "\n" + print_step_function(context, main)
    tree = _source_tree(context, main, kernels, kernel_text, main_text)
    return tree.merged(format_microtvm_files(context)) if options.tvm_api else tree


def _source_tree(
    context: EmitContext,
    main: tir.PrimFunc,
    kernels: Sequence[tir.PrimFunc],
    kernel_text: str,
    main_text: str,
) -> SourceTree:
    module, interface, options = context.module, context.interface, context.options
    name = context.names.prefix
    constants = tuple(
        {item.symbol: item for item in context.constants.values()}.values()
    )
    params = None if interface.linked else constant_arrays.build_params_block(constants)
    has_weights = interface.linked and bool(constants or not context.const_pools)
    places = {place.buffer.name: place for place in interface.placed}
    copied = [
        (context.constants[constant].symbol, places[buffer])
        for constant, buffer in function_printer.ram_constants(module, main)
    ]
    external = params or context.const_pools
    copies = bool(copied or interface.state or interface.copies or external)
    files: dict[str, str | bytes] = {
        f"model/{name}.h": with_interface_hash(
            _render(context, "model.h.j2", params=params)
        ),
        f"model/{name}.c": _render(
            context,
            "model.c.j2",
            params=params,
            has_weights=has_weights,
            ram_constants=copied,
            headers=helpers.system_headers(context.used, copies=copies),
            foreign_headers=helpers.library_headers(context.used),
            is_unscheduled=any(
                func.attrs.get("disable_scheduling") for func in kernels
            ),
            has_ramfuncs=any(func.attrs.get("ramfunc") for func in kernels),
            checks=[
                function
                for function, _ in function_printer.backend_version_checks(module)
            ],
            **helpers.template_values(
                context.used, context.names, inline_asm=options.inline_asm
            ),
            kernels=kernel_text,
            main=main_text,
            definition=context.definition,
            map_io=function_printer.print_map_io(context) if interface.in_pools else "",
            format_rows=format_rows,
        ),
    }
    if has_weights:
        weights = constant_arrays.format_weights_header(interface, constants, options)
        files[f"model/{name}_weights.h"] = weights
    if params is not None:
        files |= constant_pool_files.format_data_files(
            f"{name}.params", params.data, options.spdx
        )
        files[f"model/{name}.params.json"] = params.index(name) + "\n"
    for pool in context.const_pools:
        files |= constant_pool_files.format_data_files(
            pool.file, pool.data, options.spdx
        )
    files |= {**module.files, **format_descriptor(context)}
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


def _render(
    context: EmitContext, template: str, *, params: ParamsBlock | None, **more: object
) -> str:
    module, interface, options = context.module, context.interface, context.options
    sha256 = module.origin.sha256
    name, pools = context.names.prefix, context.const_pools
    return render_template(
        "firmwright.codegen",
        template,
        name=name,
        NAME=name.upper(),
        module=module,
        io=interface,
        options=options,
        source=(
            f"model file sha256 {c_writer.escape_comment(sha256[:16])}"
            if sha256
            else ""
        ),
        notes=[c_writer.escape_comment(note) for note in options.notes],
        params=params,
        const_pools=pools,
        readers=sorted({pool.scope for pool in pools if not pool.addressable}),
        params_alignment=constant_arrays.PARAMS_ALIGNMENT,
        c_line=c_writer.format_lines,
        more_arguments=(", &params" if params else "")
        + (", &devices" if interface.devices else "")
        + (", NULL" if interface.has_probe_callback else ""),
        engine_core=module.settings.devices.emulated_engine,
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
    rows = [
        (
            f"{names.macro('in', place.pool)}({stems[place.buffer.name]},",
            f"{place.offset},",
            f"{place.buffer.size_bytes},",
            str(place.alignment),
        )
        for place in interface.placed
        if place.direct
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    out = CWriter()
    for name, *numbers in rows:
        columns = " ".join(n.rjust(w) for n, w in zip(numbers, widths[1:], strict=True))
        aligned = f"{name.ljust(widths[0])} {columns});"
        out.line(
            aligned
            if len(aligned) <= c_writer.LINE_COLUMNS
            else f"{name} {' '.join(numbers)});"
        )
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
        raise UsageError(
            what, where=name, hint="omit --emit-descriptor or the other option."
        )
    values = {
        "name": name,
        "NAME": name.upper(),
        "io": io,
        "c_string": c_writer.format_c_string,
    }
    names = {"firmwright_model.h": "firmwright_model.h.j2"}
    names |= {f"{name}_descriptor.{end}": f"descriptor.{end}.j2" for end in "ch"}
    return {
        f"model/{file}": render_template(
            "firmwright.codegen", template, options=options, **values
        )
        for file, template in names.items()
    }
