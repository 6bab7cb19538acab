"""Assigns parts of a program to targets, and checks that each target changes only its
own parts.
"""
