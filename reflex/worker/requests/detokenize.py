"""The text of token ids; bytes that are no UTF-8 become U+FFFD."""

from ..protocol import REQUIRED

FIELDS = (
    ("token_ids", "tokens", REQUIRED, "The tokens."),
    ("special", "switch", True, "Spell special tokens too."),
)
RESULT = ("command", "text", "timings")


def run(worker, token_ids, special):
    """Send text."""
    from ...session import checked_ids

    ids = checked_ids(token_ids, worker.tokenizer.size)
    text = worker.tokenizer.decode(ids, special=special).decode("utf-8", "replace")
    worker.send("result", {"command": "detokenize", "text": text, "timings": worker.times()})
