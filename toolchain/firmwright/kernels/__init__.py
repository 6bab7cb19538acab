"""Instructions as data, and micro-kernels as programs of them."""
