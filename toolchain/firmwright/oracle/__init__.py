"""Reference runtimes in worker processes, and comparison with device results."""
