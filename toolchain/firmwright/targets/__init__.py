"""Target kinds: their attributes, the features derived from them, and their written form."""
