"""The engine in a process of its own, and the frames between."""
