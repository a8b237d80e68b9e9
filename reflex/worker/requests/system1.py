"""Score candidate answers in one forward pass, as `reflex system1` does."""

from ... import rules
from ...score import Decision, score
from ..protocol import REQUIRED
from . import PROMPT

FIELDS = (
    *PROMPT,
    ("candidates", "texts", REQUIRED, "The answers to score, usually beginning with a space."),
    ("rule", "rule", rules.DEFAULT, f"A candidate's score: {rules.EXPLAINED}."),
    ("temperature", "number", 1.0, "Divides the scores before they become probabilities."),
    ("terminator", "text", "", "A text that ends every candidate."),
    ("prior", "text", "", "Stands for no prompt in pmi; empty: the begin token where texts start with it, else a line break."),
)
RESULT = (*Decision.__slots__, "finish_reason", "timings")


def run(worker, prompt, messages, variables, candidates, **settings):
    """Send a Decision."""
    prompt = worker.prompt(prompt, messages, variables)
    decision = score(worker.timeline(steady=True), prompt, candidates, **settings)
    worker.unspoiled()
    worker.send("result", {**decision.to_dict(), "finish_reason": "stop", "timings": worker.times()})
