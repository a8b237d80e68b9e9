"""Score candidate answers to a prompt in one forward pass; print their probabilities and the best.

Each --candidate is a continuation of PROMPT, usually beginning with a space. The rule says how candidates of different
lengths compare; docs/decisions.md compares the rules on labelled questions. Nothing is sampled, so there is no seed, no top-k and
no penalty here: the scores are log-probabilities over the whole vocabulary, and --temperature only spreads the candidates'
probabilities. A prior (always with pmi) costs a second, short pass.
"""

from .. import rules
from . import front

PARAMETERS = (
    ("MODEL", "text", None, "A .gguf file, or demo."),
    ("PROMPT", "text", "", "The text before the candidates; - reads it from stdin."),
    ("--candidate", "texts", (), "A candidate answer; give it once per candidate."),
    ("--rule", tuple(rules.RULES), rules.DEFAULT, f"A candidate's score: {rules.EXPLAINED}."),
    ("--temperature", "float", 1.0, "Divides the scores before they become probabilities."),
    ("--terminator", "text", "", "A text that ends every candidate."),
    ("--prior", "text", "", "Stands for no prompt in pmi; empty: the begin token where texts start with it, else a line break."),
    *front.CHAT,
    *front.STATE,
    *front.ENGINE,
    front.ENERGY,
    *front.SHOWN,
)


def run(out, model, prompt, candidate, rule, temperature, terminator, prior, chat, system, messages, engine, state):
    """Exit code 0 after printing the Decision."""
    from ..open import open_model

    out.mark("imports")
    text = front.request(prompt, chat, system, messages)
    file, _, session = open_model(model, **engine, mark=out.mark, note=out.note, prompt=text)
    out.computes(session.plan)
    if state:
        from .state import State

        state = State(out, session, str(text), *state)
    from ..score import score

    decision = score(session, str(text), candidate, rule, temperature, terminator, prior)
    out.mark("prefill")
    if out.json:
        out.record("result", decision.to_dict())
    else:
        show(out, decision)
    if state:
        state.end()
    out.settle(file)
    out.mark("result")
    return 0


def show(out, decision):
    """The decision as a small table, the best candidate marked."""
    lines = [f"  {'probability':>11} {decision.rule:>10}  candidate"]
    for row in decision.candidates:
        score = rules.score_of(row, decision.rule)
        value = f"{'none':>10}" if score is None else f"{score:10.4f}"
        sign = ">" if row.index == decision.best_index else " "
        lines.append(f"{sign} {row.probability:11.4f} {value}  {row.text!r}")
    lines.append(f"best: {decision.best_text!r}  margin {decision.margin:.4f}, entropy {decision.entropy_bits:.4f} bits")
    out.text("\n".join(lines) + "\n")
    for warning in decision.warnings:
        out.warn(warning)
