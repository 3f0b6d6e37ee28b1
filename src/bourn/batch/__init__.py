"""Many prompts from a file, their answers into another: `bourn batch` without a terminal.

A line in is a JSON object, `{"prompt": "…"}` or `{"messages": […]}`, with an `id` if one likes, and
any option of `bourn.asking.Options`; or a request as in OpenAI's batch files. A line out is what
came of one line in, told apart by its id, in the order in which they were done. However long the
files are, only the ids are kept in memory.

    lines in ─▸ jobs ─▸ Ahead ─▸ workers, as many as there are slots ─▸ outcomes ─▸ Output
"""

from __future__ import annotations

from bourn.batch.ahead import Ahead
from bourn.batch.jobs import Id, Job, count_lines, jobs
from bourn.batch.output import Output, opened
from bourn.batch.work import Outcome, Tally, answers

__all__ = [
    "Ahead",
    "Id",
    "Job",
    "Outcome",
    "Output",
    "Tally",
    "answers",
    "count_lines",
    "jobs",
    "opened",
]
