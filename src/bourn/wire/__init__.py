"""Formats at the edge, in both directions. Pure: no I/O, no clock."""
