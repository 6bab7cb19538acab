"""Settings and results of passes in module text."""

import pytest

from firmwright.base.errors import PluginError
from firmwright.ir.attribute_kinds import MODULE_ATTRIBUTES
from firmwright.ir.module import IRModule
from firmwright.ir.module_attributes import module_attributes
from firmwright.ir.parser import parse_module
from firmwright.ir.printer import print_module
from firmwright.ir.settings import Minimize, Settings

ATTRIBUTES = """
entry="main" source_sha256="c0ffee" subgraph=2
numerics="tflm" optimize="size" planner="search" link_params=false board="pico"
ram_bytes=1000 flash_bytes=2000 ramfunc_bytes=300 short_loops=true flash_stalls=0.25
offload=[["a","npu:40"]] recompute=true compress_weights=true pipeline_runs=true
weight_independent=true no_nan=true tuning="digest"
devices=["cpu0","npu0"] fallback=true engine_core="npu0" copiers=["dma0"]
program_bandwidth=0.5 program_latency=3 all_channels=true harden=true axis=["time",1,128]
offload_shares=[["b","npu:30"]] partitioned=["npu"]
rejections=[["softmax","y","npu","rounds"]] passes=["prune"] stage="usmp"
live_channels=[["x",[0,2]]] pipelined_runs=1 visible_pools=[["","cpu0","sram"],["npu","npu0"]]
compressed_bytes=70 device_waits=[["npu0","npu_wait"]] backend_checks=["npu_check"]
backends=[["npu",[["name","npu"]]]]
"""
"""Each attribute with a value that is not its default, in the order of module text."""


def parsed(attributes: str) -> IRModule:
    return parse_module(f"firmwright ir 2\nattrs {{{', '.join(attributes.split())}}}\n")


def test_every_attribute_is_read_into_a_field_and_printed_from_it() -> None:
    module = parsed(f"{ATTRIBUTES} mine=1")
    assert module.attrs == {"mine": 1}
    printed = module_attributes(module)
    assert list(printed) == [
        row.partition("=")[0] for row in f"{ATTRIBUTES} mine=1".split()
    ]
    assert MODULE_ATTRIBUTES.keys() == printed.keys() - {"mine"}
    assert parse_module(print_module(module)) == module


@pytest.mark.parametrize("row", ATTRIBUTES.replace("program_latency=3", "").split())
def test_an_attribute_is_independent_of_the_others(row: str) -> None:
    name = row.partition("=")[0]
    module = parsed(row)
    assert (
        module_attributes(module)[name] == module_attributes(parsed(ATTRIBUTES))[name]
    )
    assert module != IRModule("")


def test_fields_have_types() -> None:
    settings, results = parsed(ATTRIBUTES).settings, parsed(ATTRIBUTES).results
    assert settings.objective.minimize is Minimize.SIZE
    assert settings.flash.program_memory is not None
    assert results.rejections[0].reason == "rounds"
    assert results.pool_access[1].pools == ()


def test_a_module_without_a_board_prints_no_defaults() -> None:
    assert module_attributes(IRModule("m", settings=Settings())) == {}


@pytest.mark.parametrize("name", ["optimize", "stage", "entry"])
def test_attributes_of_extensions_do_not_replace_fields(name: str) -> None:
    with pytest.raises(
        PluginError, match=f"the attribute {name} of the module m has a field"
    ):
        IRModule("m").with_attrs(**{name: "speed"})
    assert IRModule("m").with_attrs(mine=1).attrs == {"mine": 1}
