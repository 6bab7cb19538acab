"""Packaging of emitted sources and metadata: project folders and export formats."""
