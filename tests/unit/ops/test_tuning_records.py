"""Tests of tuning records: digests of layers and kernels, and robust parsing."""

from dataclasses import replace

import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.quant import Quantization
from firmwright.ir import tir
from firmwright.ir.core import Constant, Target
from firmwright.ir.graph.attributes.layers import FullyConnectedAttrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import INDEX, Builder
from firmwright.ops.tuning_records import (
    DEFAULT_CHOICE,
    ConfiguredSchedule,
    Measurement,
    MeasurementContext,
    TuningRecords,
    kernel_digest,
    layer_digest,
    parse_measurement,
)

M4 = Target("cortex-m", (("mcpu", "cortex-m4"),))
AT = MeasurementContext("mps2-an386", "exact", "gcc 12", "-O2", "0.1.0")


def layer(
    *, scale: float = 0.5, zero_point: int = -1, weight: int = 3, width: int = 4
) -> OpCall:
    kind = TensorType((1, width), INT8, Quantization((scale,), (zero_point,)))
    weights = TensorType((2, width), INT8, Quantization((scale,), (0,)))
    values = Constant("w", INT8, (2, width), bytes([weight] * 2 * width))
    out = TensorType((1, 2), INT8, Quantization((1.0,), (0,)))
    attrs = FullyConnectedAttrs(activation="none", keep_dims=False)
    return OpCall(
        "fully_connected",
        (kind, weights),
        (out,),
        attrs,
        (None, values),
    )


def kernel(
    name: str = "k", addend: int = 1, extent: int = 8, constant: str = "w"
) -> tir.PrimFunc:
    b = Builder(name)
    x = b.buffer_param("x", INT32, (extent,), "in")
    y = b.buffer_param("y", INT32, (extent,), "out")
    w = b.constant(constant, [1] * extent, INT32)
    with b.for_("i", extent) as i:
        b.store(y, [i], b.load(x, [i]) + b.load(w, [i]) + addend)
    return b.build(op="add", schedule="default", comment=name)


def record(**changes: object) -> Measurement:
    choice = ConfiguredSchedule("rule", (("pixels", 4),))
    plain = Measurement("l", "k", choice, "ok", 100, "instructions", "conv2d", AT)
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_the_digest_of_a_layer_is_the_same_on_every_machine() -> None:
    assert layer_digest(layer(), M4) == "4903e96598a73f13c5f37bda"


def test_a_retrained_layer_has_the_same_digest() -> None:
    again = layer(scale=0.25, zero_point=7, weight=5)
    assert layer_digest(again, M4) == layer_digest(layer(), M4)


@pytest.mark.parametrize(
    "other",
    [
        layer(width=5),
        replace(layer(), numerics="tflm"),
        replace(layer(), attrs=FullyConnectedAttrs(activation="relu", keep_dims=False)),
        replace(layer(), constants=(None, None)),
    ],
)
def test_layer_properties_change_the_digest(other: OpCall) -> None:
    assert layer_digest(other, M4) != layer_digest(layer(), M4)


def test_another_core_changes_the_layer_digest() -> None:
    assert layer_digest(layer(), Target("cortex-m")) != layer_digest(layer(), M4)


def test_names_and_data_values_do_not_change_the_kernel_digest() -> None:
    assert kernel_digest(kernel("other", addend=9)) == kernel_digest(kernel())


def test_another_loop_or_constant_changes_the_kernel_digest() -> None:
    assert (
        len(
            {
                kernel_digest(k)
                for k in (kernel(), kernel(extent=9), kernel(constant="v"))
            }
        )
        == 3
    )
    assert INDEX != INT32, "indices would be blanked like data"


def test_a_record_round_trips() -> None:
    for item in (
        record(),
        record(status="wrong", count=0),
        record(choice=DEFAULT_CHOICE),
    ):
        assert parse_measurement(item.line()) == item


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        record().line()[:-5],
        record().line().replace('"schema": 1', '"schema": 2'),
        record().line().replace('"count": 100', '"count": -1'),
        record().line().replace('"count": 100', '"count": true'),
        record().line().replace('"ok"', '"fine"'),
        record().line().replace('{"pixels": 4}', '{"pixels": [4]}'),
        record().line().replace('"board": "mps2-an386", ', ""),
    ],
)
def test_an_invalid_line_is_ignored(text: str) -> None:
    assert parse_measurement(text) is None


def test_order_and_duplicates_do_not_matter() -> None:
    a, b = (
        record(),
        record(choice=ConfiguredSchedule("rule", (("pixels", 2),)), count=90),
    )
    assert TuningRecords.from_measurements([a, b]) == TuningRecords.from_measurements(
        [b, a, a, b]
    )
    assert (
        TuningRecords.from_measurements([a]).digest
        != TuningRecords.from_measurements([b]).digest
    )
    assert TuningRecords.from_measurements([]).digest == ""


def test_measurements_of_the_own_board_are_preferred() -> None:
    here, elsewhere = (
        record(),
        replace(record(), at=replace(AT, board="stm32"), count=7),
    )
    cycles = replace(elsewhere, unit="cycles")
    assert TuningRecords.from_measurements([here, elsewhere]).measurements_for_layer(
        "l", "mps2-an386"
    ) == (here,)
    assert TuningRecords.from_measurements([here, elsewhere]).measurements_for_layer(
        "l", "stm32"
    ) == (elsewhere,)
    assert TuningRecords.from_measurements([here, cycles]).measurements_for_layer(
        "l", "third"
    ) == (cycles,)
    assert (
        TuningRecords.from_measurements([here]).measurements_for_layer(
            "m", "mps2-an386"
        )
        == ()
    )
