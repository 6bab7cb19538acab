"""The date that outputs contain, which SOURCE_DATE_EPOCH fixes."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Final

from firmwright.base.errors import UsageError

EPOCH_VARIABLE: Final = "SOURCE_DATE_EPOCH"


def source_date_s(environment: Mapping[str, str]) -> int | None:
    """Return the seconds since 1970 in SOURCE_DATE_EPOCH, or None if it is not set.

    Raise UsageError if the variable is not a number.
    """
    text = environment.get(EPOCH_VARIABLE, "")
    if not text:
        return None
    # 11 digits are enough until the year 5138.
    if not text.isdecimal() or len(text) > 11:
        what = f"{text!r} is not a number of seconds."
        hint = "set it to seconds since 1970, or unset it."
        raise UsageError(what, where=EPOCH_VARIABLE, hint=hint)
    return int(text)


def output_date(environment: Mapping[str, str]) -> date:
    """Return the date of SOURCE_DATE_EPOCH, by default today's, in UTC."""
    seconds = source_date_s(environment)
    if seconds is None:
        return datetime.now(UTC).date()
    return datetime.fromtimestamp(seconds, UTC).date()
