"""Shortens names for drawings."""


def shorten(text: str, letters: int) -> str:
    """Return a text of at most that many letters, with an ellipsis in the middle."""
    if len(text) <= letters:
        return text
    last = (letters - 1) // 2
    return f"{text[: letters - 1 - last]}…{text[len(text) - last :]}"
