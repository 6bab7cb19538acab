"""Assigns parts of a program to targets; a target may change only its own parts."""
