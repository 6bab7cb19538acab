"""The reference runtimes, the samples they are fed, and the comparison with what a device gave.

In: a model's bytes and samples. Out: outputs by an implementation that is not ours, and counts of
the values that differ. The runtimes are met in a child process only (`child.py`).
"""
