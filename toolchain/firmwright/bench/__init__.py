"""The benchmark: models x boards, measured here, beside what others reached."""
