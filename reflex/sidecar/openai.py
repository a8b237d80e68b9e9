"""OpenAI's chat and completions: a request's body to fields for the worker, its answers to objects or chunks in OpenAI's shape.

Numbers of tokens and the reason of the end are the worker's. Called by app, with bodies that are as their schema says.
"""

import os
import time

from ..errors import InvalidInputError, UnsupportedError

COMPLETION_TOKENS = 16  # OpenAI's default for completions; for chat it is the worker's
SAME = ("top_p", "top_k", "min_p", "repeat_penalty", "seed")  # fields that the worker has under the same name
WHOLE = ("top_k", "seed")
FLOOR = -9999.0  # OpenAI's number for a probability of 0


class Form:
    """What an answer looks like: one object, or chunks. `fields`: what to ask the worker's `generate` for."""

    PREFIX = OBJECT = CHUNK = ""  # of ids; kinds of the two

    def __init__(self, body, model):
        self.streams = bool(body.get("stream"))
        self.head = {"id": f"{self.PREFIX}-{os.urandom(12).hex()}", "created": int(time.time()), "model": model}
        options = body.get("stream_options") or {}
        if options and not self.streams:
            raise InvalidInputError("stream_options has no meaning here", "stream: true", "none", "stream_options")
        self.counts = bool(options.get("include_usage"))
        self.logprobs = False
        self._length = 0  # characters of the text so far
        temperature = body.get("temperature")
        self.fields = {"temperature": 1.0 if temperature is None else temperature}
        for name in SAME:
            if body.get(name) is not None:
                self.fields[name] = int(body[name]) if name in WHOLE else body[name]
        stop = body.get("stop")
        if stop:
            self.fields["stop"] = [stop] if isinstance(stop, str) else stop
        self._hold(body.get("response_format"))

    def _hold(self, wanted):
        kind = wanted and wanted["type"]
        if kind == "json_schema":
            self.fields["json_schema"] = wanted["json_schema"]["schema"]
        elif kind == "json_object":
            self.fields["json_schema"] = {"type": "object"}

    def ask_for_logprobs(self, beside):
        """Want log-probabilities: of each token, and of that many beside it."""
        self.logprobs = True
        self.fields["logprobs"] = True
        if beside:
            self.fields["top_logprobs"] = int(beside)

    @property
    def by_token(self):
        """Whether the worker is to send tokens one by one."""
        return self.streams or self.logprobs

    # ---- answers ----

    def opening(self):
        """The first chunks."""
        return []

    def choice(self, text):
        """The part of a choice that has the text."""
        raise NotImplementedError

    def delta(self, text):
        """The same in a chunk; None: there is no more."""
        raise NotImplementedError

    def spelled(self, tokens):
        """Log-probabilities of tokens."""
        raise NotImplementedError

    def whole(self, tokens, result):
        """The one object of an answer that is not streamed."""
        details = self.spelled(tokens) if self.logprobs else None
        choice = {"index": 0, **self.choice(result["text"]), "logprobs": details, "finish_reason": result["finish_reason"]}
        return {**self.head, "object": self.OBJECT, "choices": [choice], "usage": usage(result), "timings": result["timings"]}

    def chunk(self, delta, details=None, reason=None):
        """A chunk of a stream."""
        more = {"usage": None} if self.counts else {}
        choice = {"index": 0, **delta, "logprobs": details, "finish_reason": reason}
        return {**self.head, "object": self.CHUNK, "choices": [choice], **more}

    def piece(self, token):
        """The chunk of a token, None where it brings nothing."""
        if not token["text"] and not self.logprobs:
            return None
        details = self.spelled([token]) if self.logprobs and token["token_id"] is not None else None
        return self.chunk(self.delta(token["text"]), details)

    def closing(self, result):
        """The last chunks."""
        yield self.chunk(self.delta(None), None, result["finish_reason"])
        if self.counts:
            yield {**self.head, "object": self.CHUNK, "choices": [], "usage": usage(result), "timings": result["timings"]}


class Chat(Form):
    """POST /v1/chat/completions."""

    PREFIX, OBJECT, CHUNK = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, body, model):
        super().__init__(body, model)
        self.fields |= conversation(body)
        lengths = [body[name] for name in ("max_completion_tokens", "max_tokens") if body.get(name) is not None]
        if len(lengths) == 2:
            raise InvalidInputError("two limits of tokens", "max_completion_tokens or max_tokens", "both", "max_tokens")
        if lengths:
            self.fields["max_tokens"] = int(lengths[0])
        if body.get("logprobs"):
            self.ask_for_logprobs(body.get("top_logprobs"))
        elif body.get("top_logprobs"):
            raise InvalidInputError("top_logprobs has no meaning here", "logprobs: true", "none", "top_logprobs")

    def opening(self):
        return [self.chunk({"delta": {"role": "assistant", "content": ""}})]

    def choice(self, text):
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def delta(self, text):
        return {"delta": {} if text is None else {"content": text}}

    def spelled(self, tokens):
        own = [token for token in tokens if token["token_id"] is not None]
        return {
            "content": [{**likely(t), "top_logprobs": [likely(each) for each in t.get("top_logprobs", ())]} for t in own],
            "refusal": None,
        }


class Completion(Form):
    """POST /v1/completions."""

    PREFIX, OBJECT, CHUNK = "cmpl", "text_completion", "text_completion"

    def __init__(self, body, model):
        super().__init__(body, model)
        self.fields["prompt"] = prompt(body["prompt"])
        self.fields["max_tokens"] = int(body.get("max_tokens") or COMPLETION_TOKENS)
        if body.get("logprobs") is not None:
            self.ask_for_logprobs(body["logprobs"])

    def choice(self, text):
        return {"text": text}

    def delta(self, text):
        return {"text": text or ""}

    def spelled(self, tokens):
        found = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token in tokens:
            if token["token_id"] is not None:
                said = likely(token)
                found["tokens"].append(said["token"])
                found["token_logprobs"].append(said["logprob"])
                found["top_logprobs"].append({likely(t)["token"]: likely(t)["logprob"] for t in token.get("top_logprobs", ())})
                found["text_offset"].append(self._length)
            self._length += len(token["text"])
        return found


def usage(result):
    """The numbers of tokens of a result, as the worker counted them."""
    made, read = result["completion_tokens"], result["prompt_tokens"]
    return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}


def likely(token):
    """A token with its log-probability."""
    value = FLOOR if token["logprob"] is None else token["logprob"]
    return {"token": bytes(token["bytes"]).decode("utf-8", "replace"), "logprob": value, "bytes": token["bytes"]}


def prompt(value):
    """A text, or token ids as whole numbers."""
    return value if isinstance(value, str) else [int(token) for token in value]


def conversation(body):
    """The fields for a conversation."""
    more = {"variables": body["chat_template_kwargs"]} if body.get("chat_template_kwargs") else {}
    return {"messages": [message(each, f"messages[{index}]") for index, each in enumerate(body["messages"])], **more}


def message(said, place):
    """A message with its content as one text: parts are joined by line breaks."""
    content = said["content"]
    if isinstance(content, list):
        content = "\n".join([part["text"] for part in content])
    if content is None:
        raise UnsupportedError("a message has no content", "a text", "null", f"{place}.content", "write what was said as text")
    return {"role": said["role"], "content": content, **({"name": said["name"]} if said.get("name") else {})}
