"""float32 layers for Helium: vectors of four channels, in the default loops' order."""
