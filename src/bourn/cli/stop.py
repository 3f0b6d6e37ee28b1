"""`bourn stop`: no model stays loaded."""

from __future__ import annotations

from bourn.cli.show import exit_codes, say


def stop() -> None:
    """End the models that --keep-alive left loaded."""
    with exit_codes():
        from bourn.engines.resident import stop_all

        count = stop_all()
        say(f"{count} stopped" if count else "no model is kept loaded")
