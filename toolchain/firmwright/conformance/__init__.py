"""Conformance cases: one-operator TFLite models for the reference runtimes and the
compiler.
"""
