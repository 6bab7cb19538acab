"""Options: given ones override the module's; those used by a pass are fixed."""

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from firmwright.base.errors import InternalError, UsageError
from firmwright.flows.model.compilation import (
    IMPORT_STAGE,
    compile_for,
    module_after,
    options_for,
    pass_names,
    verify_after_pass,
)
from firmwright.flows.model.given_options import GivenOptions, OptionValues
from firmwright.flows.model.model import Model, load_model, partition
from firmwright.ir.module import IRModule
from firmwright.pipeline import Options


@pytest.fixture
def digits(digits_path: Path) -> Model:
    return load_model(digits_path)


def test_plain_model_gets_the_default_options(digits: Model):
    options = options_for(digits.module, {})
    assert options == Options()
    assert (options.board, options.numerics, options.optimize) == (
        "host",
        "litert",
        "balanced",
    )


def test_given_options_are_those_of_a_compilation():
    assert set(OptionValues.__annotations__) == {
        field.name for field in fields(Options)
    }
    assert set(GivenOptions.__annotations__) == set(OptionValues.__annotations__) - {
        "board"
    }


def test_unknown_option_error_lists_the_options(digits: Model):
    with pytest.raises(UsageError, match=r"no option 'bord'.*board"):
        compile_for(digits, bord="host")


def test_target_of_a_partitioned_module_is_preserved(digits: Model):
    text = "cortex-m -mcpu=cortex-m4"
    compiled = compile_for(partition(digits, text))
    assert str(compiled.module.targets["cpu"]) == text
    with pytest.raises(UsageError, match="contradicts board mps2-an385"):
        compile_for(partition(digits, text), "mps2-an385")


def test_module_saved_before_passes_carries_default_options(digits: Model):
    given = {"board": "mps2-an386", "numerics": "tflm", "io_buffers": "caller"}
    saved = module_after(digits, IMPORT_STAGE, options_for(digits.module, given))
    again = options_for(saved, {})
    assert (again.board, again.numerics, again.io_buffers) == (
        "mps2-an386",
        "tflm",
        "caller",
    )
    assert again.target == "cortex-m -mcpu=cortex-m4"
    moved = options_for(saved, {"board": "mps2-an505", "numerics": "litert"})
    assert (moved.board, moved.numerics, moved.target) == ("mps2-an505", "litert", "")


def test_partly_compiled_module_refuses_changed_options(digits: Model):
    saved = module_after(digits, "usmp", Options(board="mps2-an386"))
    assert options_for(saved, {"planner": "search"}).board == "mps2-an386"
    with pytest.raises(UsageError) as raised:
        options_for(saved, {"board": "host"})
    assert str(raised.value) == (
        "digits: the module was compiled up to usmp with board mps2-an386, which cannot be changed "
        "to host. "
        "Try: omit board, or start from the model file."
    )


def test_module_saved_with_a_flash_budget_is_resumed_with_the_same_options(
    digits: Model,
):
    given = {"board": "mps2-an386", "optimize": "balanced", "flash_bytes": 60000}
    saved = module_after(digits, "cse", options_for(digits.module, given))
    resumed = options_for(saved, given)
    assert resumed.objective == saved.settings.objective
    for other in ("speed", "ram", "fast"):
        with pytest.raises(UsageError, match=f"cannot be changed to {other}"):
            options_for(saved, {**given, "optimize": other})


def test_unknown_pass_error_lists_the_passes(digits: Model):
    with pytest.raises(UsageError, match=r"no pass 'usmpp' remains.*import, .*usmp"):
        module_after(digits, "usmpp", Options())


def test_observer_sees_every_pass_in_order(digits: Model):
    seen: list[str] = []
    compile_for(digits, watch=lambda name, _: seen.append(name))
    assert tuple(seen) == pass_names(digits.module, Options())
    assert "usmp" in seen


def test_every_pass_leaves_a_module_that_verifies(digits: Model):
    compile_for(digits, watch=verify_after_pass)
    compile_for(digits, "mps2-an386", link_params=False, watch=verify_after_pass)


def test_a_broken_module_is_reported_with_the_pass_that_left_it(digits: Model):
    module = digits.module
    broken: IRModule = replace(
        module, functions={"main": replace(module.entry, body=())}
    )
    with pytest.raises(InternalError, match="pass mine broke the module: "):
        verify_after_pass("mine", broken)


def test_given_pools_bound_the_workspace(digits: Model):
    compiled = compile_for(digits, "mps2-an386")
    (pool,) = (p for p in compiled.module.pools if p.name == "sram")
    asked = replace(pool, size_bytes=4096)
    narrow = compile_for(digits, "mps2-an386", pools=(asked,))
    assert [p.size_bytes for p in narrow.module.pools] == [4096]
    assert narrow.module.pools[0].section == pool.section
    with pytest.raises(UsageError, match="has no pool dtcm"):
        compile_for(digits, "mps2-an386", pools=(replace(pool, name="dtcm"),))


def test_sources_state_the_flags_they_are_tuned_for(digits: Model):
    compiled = compile_for(digits, "mps2-an386")
    flags = compiled.metadata["compiler"]["flags"]
    assert flags[0] == "-mcpu=cortex-m4"
    assert "-O2" in flags
    assert flags[-2:] == ["-fomit-frame-pointer", "-fno-schedule-insns"]
    for path in ("model/digits.c", "model/digits.h"):
        words = re.sub(r"\n \*", "", str(compiled.tree.files[path])).split()
        assert f"Tuned for arm-none-eabi-gcc with {' '.join(flags)} " in " ".join(words)
