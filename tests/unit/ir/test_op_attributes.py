"""Attributes of operators: a class per family, read from text, printed by fields."""

import re

import pytest

from firmwright.base.errors import InternalError, ModelError
from firmwright.ir.graph import Call, Function
from firmwright.ir.graph.attributes import (
    attribute_classes,
    attributes_class,
    attrs_from_mapping,
)
from firmwright.ir.graph.attributes.base import OpAttrs
from firmwright.ir.graph.attributes.layers import AveragePoolAttrs, PoolAttrs
from firmwright.ir.graph.attributes.movement import AxisAttrs
from firmwright.ir.printer import parse_module, print_module
from firmwright.ops.registry import op_table

POOL = "size=[2, 2], stride=[2, 2], dilation=[1, 1], padding=[0, 0, 0, 0]"


def module_text(attributes: str, op: str = "max_pool2d") -> str:
    """Return a module of one call with `attributes`."""
    graph = f"graph @main(%x: i8[1,4,4,1]) -> (%y) {{ %y: i8[1,2,2,1] = {op}(%x) {attributes} }}"
    return f"firmwright ir 2\nmodule @net\n{graph}\n"


def only_call(text: str) -> Call:
    main = parse_module(text, "t").functions["main"]
    assert isinstance(main, Function)
    return main.body[0]


def test_text_gives_attributes_with_types_and_defaults() -> None:
    call = only_call(module_text(f'{{{POOL}, activation="relu"}}', "average_pool2d"))
    attrs = call.attributes(AveragePoolAttrs)
    assert (attrs.size, attrs.padding, attrs.activation) == (
        (2, 2),
        (0, 0, 0, 0),
        "relu",
    )
    assert attrs.unsigned is False


def test_defaults_are_not_printed() -> None:
    shown = []
    for more in ("", ", unsigned=false", ", unsigned=true"):
        text = module_text(f'{{{POOL}, activation="relu"{more}}}', "average_pool2d")
        shown.append("unsigned" in print_module(parse_module(text)))
    assert shown == [False, False, True]


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        (
            f"{{{POOL}}}",
            "the attribute activation of max_pool2d is missing, expected one of",
        ),
        (
            '{activation="none"}',
            "the attribute stride of max_pool2d is missing, expected a list of 2 values, each an",
        ),
        (
            f'{{{POOL}, activation="swish"}}',
            "the attribute activation of max_pool2d is 'swish', expected one of none, relu,",
        ),
        (
            f'{{{POOL.replace("size=[2, 2]", "size=[2]")}, activation="none"}}',
            "the attribute size of max_pool2d is (2,), expected a list of 2 values",
        ),
        (
            f'{{{POOL}, activation="none", unsigned=true}}',
            "max_pool2d has no attribute unsigned. Try: activation, stride,",
        ),
    ],
)
def test_text_with_other_attributes_is_refused_where_it_stands(
    attributes: str, said: str
) -> None:
    with pytest.raises(ModelError, match=rf"t:3:\d+: {re.escape(said)}"):
        parse_module(module_text(attributes), "t")


def test_a_reader_that_expects_another_class_is_a_bug_of_ours() -> None:
    call = only_call(module_text(f'{{{POOL}, activation="none"}}'))
    assert call.attributes(PoolAttrs).size == (2, 2)
    with pytest.raises(InternalError, match="max_pool2d has PoolAttrs, not AxisAttrs"):
        call.attributes(AxisAttrs)


def test_integers_are_accepted_as_reals_and_flags_are_not_integers() -> None:
    assert attrs_from_mapping("softmax", {"beta": 1}) == attrs_from_mapping(
        "softmax", {"beta": 1.0}
    )
    with pytest.raises(
        ModelError, match="the attribute k of top_k is True, expected an integer"
    ):
        attrs_from_mapping("top_k", {"axis": 0, "k": True, "least": False})
    with pytest.raises(
        ModelError, match="skip of mirror_pad is True, expected one of 0, 1"
    ):
        attrs_from_mapping("mirror_pad", {"paddings": (), "skip": True})


def test_the_table_of_attributes_names_known_operators() -> None:
    assert attribute_classes().keys() <= op_table().keys()
    assert all(issubclass(attributes_class(op), OpAttrs) for op in attribute_classes())
