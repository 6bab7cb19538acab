"""Reference runtimes, which run in worker processes, and comparison with device
results.
"""
