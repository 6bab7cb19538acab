"""The comparison of outputs with a reference runtime."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckedOutputs:
    """The comparison of outputs with a reference runtime that this report made.

    `mismatches` is the number of values that differ, or exceed the tolerance of floats.
    `max_abs_error` is None if it was not measured. `data` names the samples, "" for
    generated ones. `command` made the report, on `date`.
    """

    reference: str
    samples: int
    mismatches: int
    max_abs_error: int | float | None
    is_float: bool
    data: str
    command: str
    date: str

    @property
    def passed(self) -> bool:
        return self.mismatches == 0

    @property
    def verdict(self) -> str:
        samples = f"{self.samples:,} sample{'' if self.samples == 1 else 's'}"
        if not self.passed:
            values = f"{self.mismatches:,} value{'' if self.mismatches == 1 else 's'}"
            return f"Differs from {self.reference} in {values} of {samples}"
        if self.is_float and self.max_abs_error != 0:
            verdict = f"Within the tolerance of {self.reference} on {samples}"
            if self.max_abs_error is not None:
                verdict += f", largest error {self.max_abs_error:.3g}"
            return verdict
        return f"Bit-exact with {self.reference} on {samples}"
