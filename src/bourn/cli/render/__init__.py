"""A streamed Markdown answer as rows of a terminal: each finished block is written once.

    text ─▸ Blocks: where one ends ─▸ Painter: its rows ─▸ Region: what to write ─▸ terminal

`Draft` holds the three together. None of them reads a clock, a size or an event.
"""
