"""Conformance cases of detection post-processing, in conformance_cases.txt."""

from firmwright.base.text_sections import read_sections

CASES = read_sections(__file__, ".txt")
