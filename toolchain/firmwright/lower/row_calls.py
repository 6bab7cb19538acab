"""Calls that compute a band of rows, for kernels that stream rows."""

from dataclasses import replace

from firmwright.ir.graph.attributes.layers import WindowAttrs
from firmwright.ir.graph.nodes import Call, Value
from firmwright.ops.opdef import RowWindow


def make_row_call(call: Call, rows: RowWindow, band: int) -> Call:
    """Return a call that computes a band of output rows of `call` from its rows."""

    def with_rows(value: Value, count: int) -> Value:
        shape = (1, count, *value.type.shape[2:])
        return replace(value, type=replace(value.type, shape=shape))

    attrs = call.attrs
    if isinstance(attrs, WindowAttrs):
        attrs = replace(attrs, padding=(0, 0, *attrs.padding[2:]))
    inputs: list[Value | None] = []
    for index, value in enumerate(call.inputs):
        if value is None or value.constant is not None or index in rows.whole_inputs:
            inputs.append(value)
        else:
            inputs.append(with_rows(value, rows.window_height))
    outputs = tuple(with_rows(value, band) for value in call.outputs)
    return replace(call, inputs=tuple(inputs), outputs=outputs, attrs=attrs)
