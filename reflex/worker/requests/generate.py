"""Continue a prompt, as `reflex generate` does; at most one of choices, regex and json_schema holds the text to something.

With `stream`, a `token` answer for each token as it comes, and one more where text was held back; `result` is always the last.
"""

from time import perf_counter_ns

from ...generate import Generated, Token, generate
from ..loop import Cancelled
from . import PROMPT, STATE

FIELDS = (
    *PROMPT,
    ("max_tokens", "whole", None, "Most tokens to make; by default 256 or what the context holds."),
    ("temperature", "number", 0.0, "0 takes the most likely token; larger is more varied."),
    ("top_k", "whole", 0, "Draw among the K most likely tokens; 0 is off."),
    ("top_p", "number", 1.0, "Draw among the fewest tokens that reach this probability; 1 is off."),
    ("min_p", "number", 0.0, "Draw among tokens at least this likely relative to the first; 0 is off."),
    ("repeat_penalty", "number", 1.0, "Weakens tokens that were there already; 1 is off."),
    ("repeat_last", "whole", 64, "How many of the last tokens the penalty looks at."),
    ("seed", "whole", None, "Same seed, same text; by default every answer differs."),
    ("stop", "stops", (), "End before any of these texts."),
    ("logprobs", "switch", False, "Each token's log-probability, before all sampling settings."),
    ("top_logprobs", "whole", 0, "With stream: beside each token that many of the most likely ones, at most 20."),
    ("choices", "texts", (), "Answer with one of these texts."),
    ("regex", "text", None, "Answer with a text that matches this regular expression from end to end; see constrain.md."),
    ("json_schema", "schema", None, "Answer with compact JSON that satisfies this schema; see constrain.md."),
    *STATE,
    ("stream", "switch", False, "Send each token as it comes."),
)
REASONS = {"interrupt": "cancelled"}
RESULT = (*Generated.__slots__, "completion_tokens", "timings")  # logprobs, state where asked for


def run(
    worker, prompt, messages, variables, stream, choices, regex, json_schema, import_state, export_state, **settings
):
    """Send the tokens, where they are wanted as they come, and the Generated."""
    prompt, constraint = worker.prompt(prompt, messages, variables), None
    if choices or regex is not None or json_schema is not None:
        from ...constrain import grammar_of

        constraint = grammar_of(choices, regex, json_schema).bind(worker.session)
    try:
        timeline = worker.timeline(steady=False)
        state = worker.state(timeline, prompt, import_state, export_state)
        generation = generate(timeline, prompt, constraint=constraint, **settings)
        first = told(worker, generation, stream)
        if state and generation.finish_reason != "interrupt":
            state.end()
        worker.unspoiled()
        result = generation.result().to_dict()
        reason = REASONS.get(generation.finish_reason, generation.finish_reason)
        times = worker.times(**({"first_token": first} if first else {}))
        more = {"completion_tokens": len(generation.token_ids), "timings": times}
        worker.send("result", {**result, "finish_reason": reason, **(state.fields if state else {}), **more})
    finally:
        if constraint:
            constraint.close()  # its memory is native: nothing else would hurry to give it back


def told(worker, generation, stream):
    """Run to the end, or until the client wants no more; when the first token was there, None where none was."""
    first = None
    try:
        for event in generation:
            first = first or perf_counter_ns()
            if stream:
                worker.send("token", named(event.to_dict()) | (beside(worker, generation) if event.id is not None else {}))
            if generation.finish_reason is None:
                worker.watch()
    except Cancelled:
        rest = generation.interrupt()
        if stream and rest:
            worker.send("token", named(Token(len(generation.token_ids), None, rest, b"", None).to_dict()))
    return first


def beside(worker, generation):
    """The most likely tokens of the step at hand, where they were asked for."""
    piece, found = worker.tokenizer.piece, generation.likely
    rows = [{"token_id": token, "bytes": list(piece(token, False)), "logprob": value} for token, value in found]
    return {"top_logprobs": rows} if rows else {}


def named(token):
    """The fields of a token; `id` is the request's here."""
    return {("token_id" if name == "id" else name): value for name, value in token.items()}
