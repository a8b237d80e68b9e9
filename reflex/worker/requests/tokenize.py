"""The token ids of a text."""

from ..protocol import REQUIRED

FIELDS = (
    ("text", "text", REQUIRED, "What to tokenize."),
    ("add_special", "switch", True, "Begin and end tokens where the model's file asks for them."),
    ("parse_special", "switch", True, "Special tokens that are spelled in the text count as such."),
)
RESULT = ("command", "token_ids", "prompt_tokens", "timings")


def run(worker, text, add_special, parse_special):
    """Send token_ids and their number, as prompt_tokens."""
    from ...session import raw

    ids = worker.tokenizer.encode(raw(text), add_special=add_special, parse_special=parse_special)
    fields = {"command": "tokenize", "token_ids": ids, "prompt_tokens": len(ids)}
    worker.send("result", {**fields, "timings": worker.times()})
