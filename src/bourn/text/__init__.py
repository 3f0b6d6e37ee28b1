"""What happens to generated text on its way: pure filters, without I/O, clocks or wires.

Each has `feed` and `flush`, and one law: however the text is cut into pieces, the same comes out.
"""
