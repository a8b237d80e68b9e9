"""Continue a prompt; the text is streamed as it comes.

Temperature 0, the default, takes the most likely token every time. Ends at an end token of the model, at a --stop text
(which is not printed) or after --max-tokens. Ctrl-C keeps what exists and exits with 130. The repeat penalty acts first, at
temperature 0 too; then top-k, top-p and min-p choose candidates, and the temperature weighs them. Log-probabilities are those of
the model before all of this.

With --chat, PROMPT is a message to a model that follows instructions, and the chat template in its file writes the prompt.
"""

from . import front

PARAMETERS = (
    ("MODEL", "text", None, "A .gguf file, or demo."),
    ("PROMPT", "text", "", "The text to continue; - reads it from stdin."),
    ("--max-tokens", "int", 0, "Most tokens to make; 0 takes 256 or what the context holds."),
    ("--temperature", "float", 0.0, "0 takes the most likely token; larger is more varied."),
    ("--top-k", "int", 0, "Draw among the K most likely tokens; 0 is off."),
    ("--top-p", "float", 1.0, "Draw among the fewest tokens that reach this probability; 1 is off."),
    ("--min-p", "float", 0.0, "Draw among tokens at least this likely relative to the first; 0 is off."),
    ("--repeat-penalty", "float", 1.0, "Weakens tokens of the last 64; 1 is off."),
    ("--seed", "int", -1, "Same seed, same text on one backend; without it every run differs."),
    ("--stop", "texts", (), "End before this text; may be given several times."),
    ("--logprobs", "switch", False, "With --json: each token's log-probability, before all sampling settings."),
    ("--choices", "texts", (), "Answer with this text or another so given; `system1` decides a fixed list faster and scores it."),
    ("--regex", "text", "", "Answer with a text that matches this regular expression from end to end; see docs/constrain.md."),
    ("--json-schema", "text", "", "Answer with compact JSON that satisfies the schema in this file; see docs/constrain.md."),
    *front.CHAT,
    *front.STATE,
    *front.ENGINE,
    front.ENERGY,
    *front.SHOWN,
)


def run(
    out, model, prompt, max_tokens, stop, logprobs, choices, regex, json_schema, seed, chat, system, messages, engine, state,
    **sampling,
):  # fmt: skip
    """Exit code 0 at the end of the text, 130 after Ctrl-C."""
    from ..open import open_model

    out.mark("imports")
    text = front.request(prompt, chat, system, messages)
    grammar = None
    if choices or regex or json_schema:
        from ..constrain import asked

        grammar = asked(choices, regex, json_schema)
        out.mark("constraint")
    file, _, session = open_model(model, **engine, mark=out.mark, note=out.note, prompt=text)
    out.computes(session.plan)
    if state:
        from .state import State

        state = State(out, session, str(text), *state)
    from ..generate import generate

    seed = None if seed < 0 else seed
    constraint = grammar and grammar.bind(session)
    generation = generate(session, str(text), max_tokens or None, stop, logprobs, constraint, seed=seed, **sampling)
    code = stream(out, generation)
    out.mark("end")
    if out.json:
        out.record("result", generation.result().to_dict())
    elif not generation.text.endswith("\n"):
        out.text("\n")
    if state and not code:
        state.end()
    out.settle(file)
    return code


def stream(out, generation):
    """Print every event as it comes; the exit code."""
    patience = Patience()
    first, shown, code = True, 0, 0
    try:
        for event in generation:
            patience.printing = True
            if out.json:
                out.record("token", event.to_dict())
            elif event.text:
                out.text(event.text)
            shown += len(event.text)
            patience.printing = False
            if patience.tried:
                raise KeyboardInterrupt
            if first:
                out.mark("first token")
                first = False
    except KeyboardInterrupt:
        if patience.printing:  # the second one
            raise
        code = 130
    patience.printing, patience.tried = True, False  # for what is still printed
    if code:
        generation.interrupt()
        if not out.json:
            out.text(generation.text[shown:])  # what was held back, or computed just before the signal
    return code


class Patience:
    """Ctrl-C waits for what is being printed, so that nothing is lost or printed twice. A second one does not wait: whoever reads
    may have stopped reading."""

    def __init__(self):
        import _signal

        self.printing = self.tried = False
        if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # not where the caller has it ignored
            _signal.signal(_signal.SIGINT, self)

    def __call__(self, number, frame):
        if not self.printing or self.tried:
            raise KeyboardInterrupt
        self.tried = True
