"""A model with the board's pools and target, and the options, written into it.

In: a module, a board, options. Out: the module that the first pass gets; one that has been through
a pass keeps what it was configured with.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from firmwright.base.errors import UsageError
from firmwright.boards import Board
from firmwright.codegen.house_rules import rules_of
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IoBinding, IRModule
from firmwright.partitioning.choosing import check_targets, resolve_targets
from firmwright.partitioning.devices import with_devices
from firmwright.passes.graph.pin import pin_tensors
from firmwright.pipeline.options import Options, check_options
from firmwright.usmp.board_pools import pools_of, with_program_speed


def configured(model: IRModule, board: Board, options: Options) -> IRModule:
    """`model` with the board's pools and target, and the options, written into it.

    A module that already went through a pass keeps what it was configured with.
    """
    if "stage" in model.attrs:
        return model
    check_options(options)
    rules_of(options)
    targets = resolve_targets(board, options.target)
    module = replace(
        model,
        name=options.name or model.name,
        targets=targets,
        pools=pools_of(board, options, tuple(targets)),
        io=_io(model, options),
    ).with_attrs(
        numerics=options.numerics,
        optimize=options.optimize,
        planner=options.planner,
        link_params=options.link_params,
        board=board.name,
        **{
            name: value
            for name in ("ram_bytes", "flash_bytes")
            if (value := getattr(options, name)) is not None
        },
        **({"recompute": True} if options.recompute else {}),
        **({"tuning": options.tuning.digest} if options.tuning.layers else {}),
    )
    check_targets(module, board)
    module = with_devices(module, board, options.devices, options.places, fallback=options.fallback)
    return pin_tensors(with_program_speed(module, board, options), options.pins)


def _io(model: IRModule, options: Options) -> IoBinding:
    mode: Literal["workspace", "caller"] = "caller" if options.io == "caller" else "workspace"
    entry = model.entry
    if options.input_rows and isinstance(entry, Function) and len(entry.params) != 1:
        raise UsageError(
            f"--input-rows wants a model with one input; {model.name} has {len(entry.params)}."
        )
    return IoBinding(mode, options.keep_input, input_rows=options.input_rows)
