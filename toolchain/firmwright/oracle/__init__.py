"""Reference runtimes, in worker processes only, and comparison of their results with a device's."""
