"""Why a model does not stop, and what else is wrong with it.

A check is a function from what it looks at to a `Finding`, named in the list of its module; adding
one is adding a function and a row. Files are read first and without loading any weight; a server is
asked over the raw wire; and then a local model is asked one question.
"""

from bourn.doctor.examination import Mended, examine, mend
from bourn.doctor.finding import Checks, Finding, Fix, State

__all__ = ["Checks", "Finding", "Fix", "Mended", "State", "examine", "mend"]
