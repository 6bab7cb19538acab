"""Whether a model fits a budget of RAM, without the compilation of a program."""

from firmwright.base.errors import DoesNotFitError
from firmwright.boards import load_board
from firmwright.choose.kernel_selection import KernelSelector
from firmwright.choose.memory_floor import is_below_floor
from firmwright.ir.module import IRModule
from firmwright.pipeline.compilation import lower_program
from firmwright.pipeline.configuration import configure_module
from firmwright.pipeline.interface_bound import check_interface_fits
from firmwright.pipeline.options import Options
from firmwright.pipeline.pass_list import (
    SELECTION_PASS,
    lower_for_selection,
    remaining_passes,
)
from firmwright.pipeline.selection_oracle import SelectionMemo, make_selection_oracle


def has_program(model: IRModule, options: Options, memo: SelectionMemo) -> bool:
    """Return whether a program is known that needs at most `options.ram_bytes`.

    `memo` is that of other compilations of `model`.
    """
    try:
        if options.ram_bytes is None or _has_later_allocations(options):
            lower_program(model, options, memo)
            return True
        return _can_select(model, options, options.ram_bytes, memo)
    except DoesNotFitError:
        return False


def _has_later_allocations(options: Options) -> bool:
    """Return whether passes after selection may need memory, or selection is fixed."""
    is_fixed = options.weight_independent or options.update_of is not None
    return bool(is_fixed or options.const_pools or options.passes)


def _can_select(
    model: IRModule, options: Options, ram_bytes: int, memo: SelectionMemo
) -> bool:
    """Return whether kernels and segments are known that fit the budget."""
    board = load_board(options.board, options.board_dirs)
    module = configure_module(model, board, options)
    check_interface_fits(module)
    for step in remaining_passes(module, options, memo=memo):
        if step.name == SELECTION_PASS:
            break
        module = step(module).with_stage(step.stage)
    lowering, module = lower_for_selection(module, options, memo)
    if is_below_floor(module, lowering.rows, ram_bytes):
        return False
    oracle = make_selection_oracle(options, memo)
    selector = KernelSelector(module, lowering.calls(), lowering.rows, oracle)
    return selector.has_program(ram_bytes)
