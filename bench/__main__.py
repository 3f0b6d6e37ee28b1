"""All measurements in turn: `make bench`. It wants a machine that does nothing else."""

from __future__ import annotations

from bench import markdown, overhead, spin, startup

for name, part in (
    ("start", startup),
    ("overhead", overhead),
    ("a busy neighbour", spin),
    ("Markdown", markdown),
):
    print(f"\n## {name}\n")
    part.main()
