"""Every kind of request: one file that has `FIELDS`, `RESULT` (names of the fields of its result) and `run(worker, **fields)`.

Nothing lists them.
"""

CHAT = 'In place of prompt, a conversation: `[{"role": "user", "content": "..."}]`, put into words by the file\'s chat template.'
PROMPT = (  # every request that begins with a text
    ("prompt", "prompt", None, "The text to begin with, or its token ids."),
    ("messages", "messages", None, CHAT),
    ("variables", "object", {}, "Further variables of the chat template, such as `enable_thinking`."),
)
