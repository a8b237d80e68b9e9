"""Score candidate answers in one forward pass, as `reflex system1` does."""

from ... import rules
from ...score import Decision, score
from ..protocol import REQUIRED
from . import PROMPT, STATE

FIELDS = (
    *PROMPT,
    ("candidates", "texts", REQUIRED, "The answers to score, usually beginning with a space."),
    ("rule", "rule", rules.DEFAULT, f"A candidate's score: {rules.EXPLAINED}."),
    ("temperature", "number", 1.0, "Divides the scores before they become probabilities."),
    ("terminator", "text", "", "A text that ends every candidate."),
    ("prior", "text", "", "Stands for no prompt in pmi; empty: the begin token where texts start with it, else a line break."),
    *STATE,
)
RESULT = (*Decision.__slots__, "finish_reason", "timings")  # state where it was asked for


def run(worker, prompt, messages, variables, candidates, import_state, export_state, **settings):
    """Send a Decision."""
    prompt = worker.prompt(prompt, messages, variables)
    timeline = worker.timeline(steady=True)
    state = worker.state(timeline, prompt, import_state, export_state)
    decision = score(timeline, prompt, candidates, **settings)
    if state:
        state.end()
    worker.unspoiled()
    more = state.fields if state else {}
    worker.send("result", {**decision.to_dict(), "finish_reason": "stop", **more, "timings": worker.times()})
