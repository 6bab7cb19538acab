"""Results of a model as tensors of their own.

An output of a program has memory that an input, a state, a constant or another output
does not share.
"""

from dataclasses import replace

from firmwright.ir.graph.nodes import Call, Function, Value, unique_name


def separate_results(function: Function) -> Function:
    """Copy the results that are sources, constants or earlier results."""
    taken = {value.name for value in function.sources}
    names = {value.name for value in function.values}
    names.update(value.name for value in function.sinks)
    copies: list[Call] = []
    results: list[Value] = []
    for value in function.results:
        result = value
        if value.constant is not None or value.name in taken:
            result = Value(unique_name(f"{value.name}/copy", names), value.type)
            copies.append(Call("reshape", (value,), (result,)))
        taken.add(result.name)
        results.append(result)
    if not copies:
        return function
    body = (*function.body, *copies)
    return replace(function, body=body, results=tuple(results))
