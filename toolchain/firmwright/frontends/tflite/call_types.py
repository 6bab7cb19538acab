"""Calls of a function as operator definitions see them, and their result types."""

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.tflite.import_context import ImportSession
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Call, TensorType
from firmwright.ir.graph.op_call import OpCall


def describe_call(session: ImportSession, call: Call) -> OpCall:
    """Return the types, attributes and constants of a call."""
    constants: list[Constant | None] = []
    types: list[TensorType | None] = []
    for value in call.inputs:
        name = None if value is None else value.constant
        constants.append(session.constants[name] if name else None)
        types.append(None if value is None else value.type)
    declared = tuple(value.type for value in call.outputs)
    return OpCall(call.op, tuple(types), declared, call.attrs, tuple(constants))


def check_result_types(session: ImportSession, call: Call) -> None:
    """Raise NotSupportedError if the file declares other types than the operator."""
    described = describe_call(session, call)
    inferred = session.ops[call.op].infer(described)
    for value, kind in zip(call.outputs, inferred, strict=True):
        if (value.type.shape, value.type.dtype) != (kind.shape, kind.dtype):
            raise NotSupportedError(
                f"its output {value.name} is declared {value.type.dtype.name} "
                f"{list(value.type.shape)} but is {kind.dtype.name} "
                f"{list(kind.shape)}"
            )


def check_has_elements(session: ImportSession, call: Call) -> None:
    """Raise NotSupportedError if a call that runs on the device has an empty tensor."""
    described = describe_call(session, call)
    kinds = (*described.inputs, *described.outputs)
    if any(kind is not None and kind.elements == 0 for kind in kinds):
        raise NotSupportedError("a tensor without elements")
