"""Benchmarks: models on boards, measured here and compared with figures of other
systems.
"""
