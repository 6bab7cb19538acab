"""Cortex-M with Helium (M55, M85): whole inner blocks on vectors of sixteen bytes."""
