"""Workflows that combine the pipeline, builds, devices and reference runtimes."""
