"""How well a model predicts a text, token by token: the perplexity and its standard error.

The text is cut into windows. `sliding` scores every token but the first once, each with at least a window less a stride of context.
`llama.cpp` counts as its perplexity program does, so that numbers can be compared: windows side by side, the second half of each
scored. Special tokens that the text spells out are text. Ctrl-C prints what is known and exits with 130.
"""

from . import front, measuring

PARAMETERS = (
    ("MODEL", "text", None, "A .gguf file, or demo."),
    ("FILE", "text", None, "The text: a file, - for stdin, or demo for one that comes with Reflex."),
    *measuring.WINDOWS,
    ("--tokens", "int", 0, "Use the first so many tokens of the text; 0 takes all."),
    *front.ENGINE,
    *front.SHOWN,
)


def run(out, model, file, method, window, stride, tokens, engine):
    """Exit code 0 after printing the result, 130 after Ctrl-C."""
    out.mark("imports")
    text = measuring.read_text(file)
    session = measuring.opened(model, engine, out).session().core
    from ..lab.perplexity import Scoring

    scoring = Scoring(session, text, method, window, stride, tokens)
    code = measuring.finish(scoring, "windows")
    found = scoring.result()
    out.mark("text")
    if found is None:
        return code
    if out.json:
        out.record("result", found.to_dict())
    else:
        out.text(shown(found, len(scoring)))
    return code


def shown(found, windows):
    """The result as lines of text."""
    part = "" if found.complete else f" (interrupted after {found.windows} of {windows} windows)"
    return (
        f"perplexity {measuring.pm(found.perplexity, found.error)}{part}\n"
        f"nats per token {measuring.pm(found.nats, found.nats_error, '.5f')}, {found.scored} of {found.tokens} tokens scored\n"
        f"{measuring.in_windows(found)}\n"
    )
