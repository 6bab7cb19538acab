"""Reference runtimes, the samples for verification, and the comparison with device results.

The runtimes are loaded in worker processes only.
"""
