"""Score candidate answers to a prompt in one forward pass; print their probabilities and the best.

Each --candidate is a continuation of PROMPT, usually beginning with a space. The rule says how candidates of different
lengths compare: the sum of the log-probabilities of their tokens, the mean per token, or the mean per byte.
"""

from . import front

PARAMETERS = (
    ("MODEL", "text", None, "A .gguf file, or demo."),
    ("PROMPT", "text", None, "The text before the candidates; - reads it from stdin."),
    ("--candidate", "texts", (), "A candidate answer; give it once per candidate."),
    ("--rule", ("sum", "mean", "byte"), "sum", "What a candidate's score is made of."),
    ("--temperature", "float", 1.0, "Divides the scores before they become probabilities."),
    ("--terminator", "text", "", "A text that ends every candidate."),
    *front.ENGINE,
    *front.SHOWN,
)


def run(out, model, prompt, candidate, rule, temperature, terminator, engine):
    """Exit code 0 after printing the Decision."""
    from ..open import open_model

    out.mark("imports")
    text = front.prompt(prompt)
    _, _, session = open_model(model, **engine, mark=out.mark, note=out.note, prompt=text)
    out.beside("device thread", getattr(session.plan, "marks", ()))
    from ..score import score

    decision = score(session, text, candidate, rule, temperature, terminator)
    out.mark("prefill")
    if out.json:
        out.record("result", decision.as_dict())
    else:
        show(out, decision)
    out.mark("result")
    return 0


def show(out, decision):
    """The decision as a small table, the best candidate marked."""
    lines = [f"  {'probability':>11} {decision.rule:>10}  candidate"]
    for row in decision.candidates:
        value = {"sum": row.sum, "mean": row.mean, "byte": row.per_byte}[decision.rule]
        sign = ">" if row.index == decision.best_index else " "
        lines.append(f"{sign} {row.probability:11.4f} {value:10.4f}  {row.text!r}")
    lines.append(f"best: {decision.best_text!r}  margin {decision.margin:.4f}, entropy {decision.entropy_bits:.4f} bits")
    out.text("\n".join(lines) + "\n")
    for warning in decision.warnings:
        out.warn(warning)
