"""A program at one size of its dynamic axis, and the axis that the program declares."""

from collections.abc import Mapping
from dataclasses import replace

from firmwright.base.errors import UsageError
from firmwright.frontends.onnx.preprocess import BoundedShapes, ModelOverrides
from firmwright.frontends.pytorch.dynamic_sizes import size_at, symbol_of
from firmwright.frontends.pytorch.program import (
    Argument,
    ExportedProgram,
    ProgramNode,
    ProgramType,
    Ref,
    read_program,
)
from firmwright.ir.bounded_axis import (
    DEFAULT_AXIS_NAME,
    BoundedAxis,
    is_range_of_sizes,
)


def declared_overrides(data: bytes, file: str) -> ModelOverrides:
    """Return the bounded axis that torch.export recorded for a program, if it has one.

    Raises UsageError for several axes, and for one without bounds.
    """
    program = read_program(data, file)
    shapes: dict[str, tuple[int | str, ...]] = {}
    for name in program.inputs:
        shapes[name] = program.types[name].shape
    symbols: dict[str, None] = {}
    for shape in shapes.values():
        for size in shape:
            if isinstance(size, str) and symbol_of(size, file):
                symbols[symbol_of(size, file)] = None
    if not symbols:
        return ModelOverrides()
    symbol, *others = symbols
    least, most = program.bounds.get(symbol, (0, None))
    problem = ""
    if others:
        problem = f"{len(symbols)} dynamic sizes, of which a model can have one"
    elif most is None or not is_range_of_sizes(max(1, least), most):
        problem = f"a dynamic size from {least} to {most or 'any number'}"
    if problem:
        example = f"--input-shape {_example(shapes)}"
        raise UsageError(f"the program has {problem}.", where=file, hint=example)
    assert most is not None  # the range is one of sizes
    axis = BoundedAxis(DEFAULT_AXIS_NAME, max(1, least), most)
    largest: dict[str, tuple[int, ...]] = {}
    places: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        own = [k for k, n in enumerate(shape) if isinstance(n, str)]
        # Inputs with expressions of the size follow from the others.
        if own and all(symbol_of(str(shape[place]), file) for place in own):
            largest[name] = tuple(
                most if k in own else int(n) for k, n in enumerate(shape)
            )
            places[name] = tuple(own)
    return ModelOverrides(largest, bounded=BoundedShapes(axis, places))


def _example(shapes: Mapping[str, tuple[int | str, ...]]) -> str:
    """Return a value of --input-shape for the first input with dynamic sizes."""
    name, shape = next(
        item for item in shapes.items() if any(isinstance(n, str) for n in item[1])
    )
    sizes = [str(n) for n in shape]
    open_places = [k for k, n in enumerate(shape) if isinstance(n, str)]
    for place in open_places:
        sizes[place] = "1"
    sizes[open_places[-1]] = "size:2..64"
    return f"{name}={','.join(sizes)}."


def with_sizes(
    program: ExportedProgram, shapes: Mapping[str, tuple[int, ...]], file: str
) -> ExportedProgram:
    """Return the program for shapes of its inputs, in which all sizes are numbers.

    Raises UsageError for a shape that the program does not permit.
    """
    symbols = _symbols_of_shapes(program, shapes, file)
    types: dict[str, ProgramType] = {}
    for name, kind in program.types.items():
        sizes: list[int] = []
        for size in kind.shape:
            if isinstance(size, str):
                size = size_at(size, symbols, file)
            sizes.append(size)
        types[name] = replace(kind, shape=tuple(sizes))
    for name, shape in shapes.items():
        if types[name].shape != shape:
            raise _contradiction(program, name, shape, file)
    numbers: dict[str, int] = {}
    for name, size in program.sizes.items():
        numbers[name] = size if isinstance(size, int) else size_at(size, symbols, file)
    nodes: list[ProgramNode] = []
    for node in program.nodes:
        if not node.outputs or not set(node.outputs) <= numbers.keys():
            args = {name: _numbered(arg, numbers) for name, arg in node.args.items()}
            nodes.append(replace(node, args=args))
    return replace(program, types=types, nodes=tuple(nodes), bounds={}, sizes={})


def _symbols_of_shapes(
    program: ExportedProgram, shapes: Mapping[str, tuple[int, ...]], file: str
) -> dict[str, int]:
    """Return the values of the symbols that the shapes of inputs have."""
    symbols: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in program.inputs:
            hint = f"its inputs are {', '.join(program.inputs)}."
            raise UsageError(f"the model has no input {name!r}.", where=file, hint=hint)
        declared = program.types[name].shape
        if len(declared) != len(shape):
            raise _contradiction(program, name, shape, file)
        for size, number in zip(declared, shape, strict=True):
            symbol = symbol_of(size, file) if isinstance(size, str) else ""
            if symbol:
                least, most = program.bounds.get(symbol, (0, None))
                if number < least or (most is not None and number > most):
                    raise _contradiction(program, name, shape, file)
                symbols.setdefault(symbol, number)
    return symbols


def _contradiction(
    program: ExportedProgram, name: str, shape: tuple[int, ...], file: str
) -> UsageError:
    declared: list[str] = []
    for size in program.types[name].shape:
        least, most = program.bounds.get(symbol_of(str(size), file), (0, None))
        bounds = f"{least}..{'' if most is None else most}"
        declared.append(str(size) if isinstance(size, int) else bounds)
    what = (
        f"--input-shape {name}={','.join(map(str, shape))} contradicts the model, "
        f"where it is {','.join(declared)}."
    )
    return UsageError(what, where=file)


def _numbered(value: Argument, numbers: Mapping[str, int]) -> Argument:
    """Return an argument with the numbers of computed sizes."""
    if isinstance(value, list):
        return [_numbered(item, numbers) for item in value]
    if isinstance(value, Ref):
        return numbers.get(value.name, value)
    return value
