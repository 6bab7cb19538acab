"""Result shapes of operators whose calls take the shape from the result's type.

The reference runtimes compute every shape from the inputs. The file has those of the
exporter, with 1 for open sizes, which differ after an input has got another shape.
"""

import math
from collections.abc import Sequence

from firmwright.base.dtypes import Array
from firmwright.frontends.tflite.decoded_model import RawNode

Shape = tuple[int, ...]


def result_shape(
    node: RawNode, x: Shape, constants: Sequence[Array | None]
) -> Shape | None:
    """Return the first result's shape; None if unknown or if the call determines it.

    `x` is the shape of the first input, `constants` has the inputs known at compile
    time.
    """
    values = [_ints(array) for array in (*constants, None, None)[:2]]
    match node.op:
        case "TRANSPOSE_CONV":
            return values[0] if values[0] and min(values[0]) > 0 else None
        case "RESHAPE":
            stored = node.options["new_shape"]
            target = values[1] if len(constants) > 1 else None
            if target is None and len(constants) == 1 and isinstance(stored, tuple):
                target = tuple(map(int, map(str, stored)))
            return None if target is None else _stretched(target, math.prod(x))
        case "EXPAND_DIMS" if values[1] is not None and len(values[1]) == 1:
            (axis,) = values[1]
            if axis < 0:
                axis += len(x) + 1
            return (*x[:axis], 1, *x[axis:])
        case "SQUEEZE":
            dims = node.options["squeeze_dims"]
            if not dims:
                return tuple(size for size in x if size != 1)
            assert isinstance(dims, tuple)  # a vector of the schema
            chosen = {int(str(axis)) % max(1, len(x)) for axis in dims}
            kept = (size for k, size in enumerate(x) if size != 1 or k not in chosen)
            return tuple(kept)
    return None


def _ints(array: Array | None) -> Shape | None:
    if array is None or array.dtype.kind != "i":
        return None
    return tuple(map(int, array.reshape(-1)))


def _stretched(target: Shape, elements: int) -> Shape | None:
    known = math.prod(size for size in target if size != -1)
    if target.count(-1) > 1 or min(target, default=1) < -1:
        return None
    if known <= 0 or elements % known:
        return None
    return tuple(elements // known if size == -1 else size for size in target)
