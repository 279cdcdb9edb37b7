"""How hard verification tries where a test is about something else: no search, no compiler."""

from export.proof.prove import Effort
from pipeline.verify import Question

QUICK = Question(effort=Effort(draws=0), compiled=False)
# The same for the command line.
NO_SEARCH = ("--search", "0")
QUICK_OPTIONS = (*NO_SEARCH, "--no-compile")
