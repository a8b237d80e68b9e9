"""What `--chat`, `--system` and `--messages` ask for: a conversation, which the template of the model's file turns into the prompt.

Owns the reading of messages. Imported only where one of these options is used; called by the front for generate and system1.
"""

from .. import chat
from ..errors import InputOutputError, InvalidInputError
from . import front


class Chat:
    """A prompt that needs the model's file: called with it and its tokenizer, it is a text from then on."""

    def __init__(self, word, system, file):
        self.messages = conversation(word, system, file)
        self.text = ""

    def __call__(self, file, tokenizer):
        self.text = chat.prompt(file, tokenizer, self.messages)
        return self.text

    def __str__(self):
        return self.text


def conversation(word, system, file):
    """The messages: the system message, those of the file, and PROMPT as the last one of the user."""
    if word == file == "-":
        raise InvalidInputError("stdin cannot be both", "one -", "PROMPT - and --messages -")
    messages = load(file) if file else []
    if system:
        if messages and messages[0]["role"] == "system":
            found = f"--system and the first message of {file}"
            raise InvalidInputError("there are two system messages", "one", found, remedy="leave one out")
        messages = [{"role": "system", "content": system}, *messages]
    if word or not file:
        messages = [*messages, {"role": "user", "content": front.prompt(word)}]
    return messages


def load(path):
    """The messages of a JSON file, or of stdin where it is -."""
    import json

    where = "stdin" if path == "-" else path
    if path == "-":
        data = front.stdin()
    else:
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise InputOutputError("cannot read the messages", found=error.strerror, where=path) from None
    try:
        messages = json.loads(data)
    except (ValueError, RecursionError) as error:
        found = "end of input" if not data.strip() else str(error)
        raise InvalidInputError("the messages are no JSON", chat.MESSAGE, found, where) from None
    return chat.checked(messages, where)
