"""Frontends that decode model files to IR; the operator files define the meaning of operators."""
