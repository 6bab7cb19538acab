"""Benchmarks: models on boards, measured here and compared with other systems."""
