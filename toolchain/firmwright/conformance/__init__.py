"""Conformance cases: TFLite models of one operator for runtimes and the compiler."""
