"""Single instructions as intrinsics, which lowerings and programs call by name."""

from functools import partial

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.kernels.assembly import CONSTRAINTS
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.isa.instruction import Instr, RegisterPlace


def instruction_intrinsic(instr: Instr, requires: str = "") -> Intrinsic:
    """Return an instruction on registers of one lane as a function of the same name.

    In C it is the assembly if the target has the feature `requires`, else the
    semantics.
    """
    (result,) = instr.results
    (lanes,) = instr.expressions({})
    assert isinstance(result.place, RegisterPlace)
    assert len(lanes) == 1
    operands = []
    for operand in instr.operands:
        assert isinstance(operand.place, RegisterPlace)
        operands.append(Operand(operand.name, "in", operand.place.dtype))
    return Intrinsic(
        instr.name,
        tuple(operands),
        partial(_meaning, instr),
        portable="",
        doc=instr.doc.replace("Return ", "Returns ", 1),
        result=result.place.dtype,
        requires=requires,
        text={"gnu": _assembly(instr)} if requires else {},
        instructions=instr.asm.count("\n") + 1,
        value=lanes[0],
    )


def _meaning(instr: Instr, *operands: Array) -> Array:
    ((result,),) = evaluate(instr, [[np.asarray(operand)] for operand in operands])
    return result


def _assembly(instr: Instr) -> str:
    (result,) = instr.results
    assert isinstance(result.place, RegisterPlace)
    updated = instr.updated
    name = "".join(updated) or "result"
    words = {result.name: "%0"}
    inputs = []
    for operand in instr.operands:
        if operand.name in updated:
            continue
        assert isinstance(operand.place, RegisterPlace)
        inputs.append(f'"{CONSTRAINTS[operand.place.kind]}"({operand.name})')
        words[operand.name] = f"%{len(inputs)}"
    text = instr.asm.format(**words).replace("\n", "\\n\\t")
    access = "+" if updated else "="
    output = f'"{access}{CONSTRAINTS[result.place.kind]}"({name})'
    lines = [] if updated else [f"{result.place.dtype.c_type} result;"]
    lines.append(f'__asm__("{text}" : {output} : {", ".join(inputs)});')
    return "\n".join([*lines, f"return {name};"])
