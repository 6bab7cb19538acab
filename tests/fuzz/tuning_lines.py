"""A line of a tuning log, for tests that change it."""

MEASUREMENT = {
    "schema": 1,
    "layer": "a" * 24,
    "kernel": "b" * 24,
    "what": "conv2d 8x8",
    "rule": "r",
    "config": {"pixels": 2, "order": "x"},
    "status": "ok",
    "count": 1200,
    "unit": "cycles",
    "board": "b",
    "method": "exact",
    "compiler": "gcc",
    "flags": "-O2",
    "version": "0.1.0",
}
