"""The check of an image's stack, by its worst path and the reserve."""

from firmwright.artifacts import Image
from firmwright.base.errors import DoesNotFitError

_ALLOW = "or --allow-stack, if you know its depth"


def check_stack(image: Image) -> None:
    """Raise DoesNotFitError if the worst path exceeds the reserve or has no bound.

    A path counts as unbounded only if that is definite.
    """
    stack = image.firmware_stack
    reserved = image.sizes.bytes_of("stack")
    if not reserved or not image.stack_is_known:
        return
    unbounded = next((cause for cause in stack.unbounded if cause.is_definite), None)
    if unbounded is not None:
        least = f"{stack.size_bytes:,} bytes without it, {reserved:,} are reserved"
        what = f"the stack is unbounded: {unbounded} ({least})."
        hint = f"a loop, or storage of fixed size; {_ALLOW}."
        raise DoesNotFitError(what, where=image.board, hint=hint)
    if stack.size_bytes > reserved:
        path = " > ".join(stack.path)
        sizes = f"{stack.size_bytes:,} bytes and has {reserved:,}"
        what = f"the stack needs {sizes}: {path}."
        copy = f"firmwright boards new NAME --from {image.board}"
        larger = f"a larger limits.stack in a board file of your own ({copy})"
        hint = f"{larger}, less on the stack; {_ALLOW}."
        raise DoesNotFitError(what, where=image.board, hint=hint)


def stack_warnings(image: Image) -> tuple[str, ...]:
    """Return a warning if the stack is unbounded, which names all causes."""
    stack = image.firmware_stack
    reserved = image.sizes.bytes_of("stack")
    if not reserved or not image.stack_is_known or not stack.unbounded:
        return ()
    causes = "; ".join(str(cause) for cause in stack.unbounded)
    known = (
        f"the other calls need {stack.size_bytes:,} of the {reserved:,} bytes reserved"
    )
    return (f"the stack is unbounded: {causes}; {known}.",)
