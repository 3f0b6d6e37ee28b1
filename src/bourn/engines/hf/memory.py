"""How much memory is free, where a model computes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import device


def available(where: device, meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that may be taken without pushing others out; None where nobody can tell."""
    if where.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(where)
        return free
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    told = dict(line.split(":", 1) for line in lines if ":" in line)
    kilobytes = told.get("MemAvailable", "").split()
    return int(kilobytes[0]) * 1024 if kilobytes else None
