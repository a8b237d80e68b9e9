"""Every kind of request: one file that has `FIELDS`, `RESULT` (names of the fields of its result) and `run(worker, **fields)`.

Nothing lists them.
"""

CHAT = 'In place of prompt, a conversation: `[{"role": "user", "content": "..."}]`, put into words by the file\'s chat template.'
PROMPT = (  # every request that begins with a text
    ("prompt", "prompt", None, "The text to begin with, or its token ids."),
    ("messages", "messages", None, CHAT),
    ("variables", "object", {}, "Further variables of the chat template, such as `enable_thinking`."),
)
STATE = (  # every request that answers one prompt
    ("import_state", "path", None, "Take the state in this file, as far as the prompt begins like the text it was made of."),
    ("export_state", "path", None, "Write the state that the prompt leaves to this file, before the result is sent."),
)
