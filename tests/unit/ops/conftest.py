"""Fixtures that build single calls, run their default lowering and query oracles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.base.dtypes import get_dtype
from firmwright.base.errors import ToolMissingError
from firmwright.base.quant import Quantization
from firmwright.conformance.case_tables import ConformanceCase
from firmwright.ir.core import Attr, Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.settings import NumericsProfile
from firmwright.ir.tir.interpreter import Interpreter
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.oracle.reference_runner import run_reference
from tests.ops.tflite_writer import write_cases

Array = NDArray[np.generic]


@pytest.fixture
def kind() -> Callable[..., TensorType]:
    """Return a function that builds a tensor type, quantized if given a scale."""

    def make(
        shape: Sequence[int], name: str, scale: float | None = None, zero_point: int = 0
    ) -> TensorType:
        quant = None
        if scale is not None:
            quant = Quantization((float(np.float32(scale)),), (zero_point,))
        return TensorType(tuple(shape), get_dtype(name), quant)

    return make


@pytest.fixture
def make_call() -> Callable[..., OpCall]:
    """Return a builder of calls; `constants` maps input positions to arrays."""

    def make(
        op: str,
        inputs: Sequence[TensorType | None],
        output: TensorType,
        constants: dict[int, Array] | None = None,
        numerics: NumericsProfile = "litert",
        **attrs: Attr,
    ) -> OpCall:
        linked = tuple(
            Constant.from_array(f"c{index}", constants[index], item.dtype)
            if item is not None and constants and index in constants
            else None
            for index, item in enumerate(inputs)
        )
        return OpCall(
            op,
            tuple(inputs),
            (output,),
            attrs_from_mapping(op, attrs),
            linked,
            numerics,
        )

    return make


@pytest.fixture
def lowered() -> Callable[[OpCall, Sequence[Array]], Array]:
    """Return a function that runs a call's default lowering on its variable inputs."""

    def run(call: OpCall, variable: Sequence[Array]) -> Array:
        kernel = Kernel("kernel", call)
        op_table()[call.op].lower(call, kernel)
        func = kernel.build(op=call.op)
        names = [param.name for param in func.params]
        result = np.zeros(call.output.shape, call.output.dtype.np)
        arguments = dict(zip(names, [*variable, result], strict=True))
        Interpreter({"kernel": func}, BASE_INTRINSICS, kernel.constants).run(
            "kernel", arguments
        )
        return result

    return run


@pytest.fixture
def ask() -> Callable[[ConformanceCase, Sequence[Array], NumericsProfile], Array]:
    """Return a function that runs an oracle on one case and sample."""

    def answer(
        case: ConformanceCase, variable: Sequence[Array], numerics: NumericsProfile
    ) -> Array:
        sample = {f"0.x{index}": value for index, value in enumerate(variable)}
        try:
            result = run_reference(write_cases([case]), [sample], numerics)
        except ToolMissingError as error:
            pytest.skip(str(error))
        return np.asarray(result.outputs[0]["0.y0"])

    return answer
