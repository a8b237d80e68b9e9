"""Decisions: /v1/classify scores labels, /v1/systemone answers typed questions. Both are the worker's `system1`.

The shape of /v1/systemone is that of llama.cpp's server, which is TypeSafe's: a state, questions of the types choice, score and
noul, for each the probabilities and a confidence. Here a language model reads state, question and options, and its
log-probabilities of the options' names are the answer. Called by app, with bodies that are as their schema says.
"""

import json
import os
import time

from ..errors import InvalidInputError
from .openai import conversation, prompt

YES, NO = "yes", "no"


class Classify:
    """POST /v1/classify."""

    def __init__(self, body, model):
        self.head = {
            "id": f"classify-{os.urandom(12).hex()}",
            "object": "classification",
            "created": int(time.time()),
            "model": model,
        }
        if (body.get("prompt") is None) == (body.get("messages") is None):
            found = "neither" if body.get("prompt") is None else "both"
            raise InvalidInputError("a request has one prompt", "prompt or messages", found, "prompt")
        if body.get("messages") is None:
            self.fields = {"prompt": prompt(body["prompt"])}
        else:
            self.fields = conversation(body)
        self.fields |= {"candidates": body["labels"], **scoring(body)}
        self.fields |= {name: body[name] for name in ("terminator", "prior") if body.get(name) is not None}

    async def answer(self, turn):
        """(the answer, tokens read)"""
        found = await turn.result("system1", self.fields)
        best = found["best_index"]
        said = {"label": found["candidates"][best]["text"], "label_index": best, "labels": list(map(labelled, found["candidates"]))}
        said |= {name: found[name] for name in ("rule", "entropy_bits", "margin", "warnings")}
        read = found["prompt_tokens"]
        counts = {"prompt_tokens": read, "completion_tokens": 0, "total_tokens": read}
        return {**self.head, **said, "usage": counts, "timings": found["timings"]}, read


def labelled(candidate):
    """A label with its scores."""
    names = {"probability": "probability", "sum": "logprob", "mean": "mean_logprob", "per_byte": "logprob_per_byte"}
    numbers = {own: candidate[name] for name, own in names.items()}
    return {"label": candidate["text"], **numbers, "tokens": len(candidate["token_ids"]), "token_ids": candidate["token_ids"]}


def scoring(body):
    """The fields for how candidates are compared."""
    return {name: body[name] for name in ("rule", "temperature") if body.get(name) is not None}


class SystemOne:
    """POST /v1/systemone."""

    def __init__(self, body, model):
        self.model = model
        self.state = text(body["state"])
        self.questions = {name: KINDS[said["type"]](said) for name, said in body["questions"].items()}
        self.scoring = scoring(body)

    async def answer(self, turn):
        """(the answer, tokens read)"""
        answers, read = {}, 0
        for name, question in self.questions.items():
            found = await turn.result("system1", self._fields(question, turn.chats))
            read += found["prompt_tokens"]
            answers[name] = question.answer([candidate["probability"] for candidate in found["candidates"]])
        return {"model": self.model, "answers": answers, "usage": {"input_tokens": read, "output_tokens": 0}}, read

    def _fields(self, question, chats):
        """What to ask the worker; `chats`: its model has a chat template."""
        asked = f"{self.state}\n\n{question.text()}"
        if chats:
            return {"messages": [{"role": "user", "content": asked}], "candidates": question.options, **self.scoring}
        return {"prompt": f"{asked}\nAnswer:", "candidates": [f" {option}" for option in question.options], **self.scoring}


class Choice:
    """One of several options."""

    def __init__(self, said):
        self.instructions = text(said["instructions"])
        self.criteria = said["criteria"]
        self.options = list(self.criteria)

    def text(self):
        lines = [f"- {option}{described(meaning)}" for option, meaning in self.criteria.items()]
        return "\n".join([self.instructions, *lines, "Answer with one of these, exactly as it is written."])

    def answer(self, shares):
        best = max(range(len(shares)), key=lambda index: (shares[index], -index))
        named = dict(zip(self.options, shares, strict=True))
        return {"type": "choice", "choice": self.options[best], "probabilities": named, "confidence": peaked(shares)}


class Score:
    """A level of a scale."""

    def __init__(self, said):
        self.instructions = text(said["instructions"])
        self.levels = said["criteria"]
        self.options = [str(level) for level in range(len(self.levels))]

    def text(self):
        lines = [f"{level}{described(meaning)}" for level, meaning in zip(self.options, self.levels, strict=True)]
        return "\n".join([self.instructions, *lines, "Answer with the number."])

    def answer(self, shares):
        legend, named = dict(zip(self.options, self.levels, strict=True)), dict(zip(self.options, shares, strict=True))
        mean = sum([level * share for level, share in enumerate(shares)])
        return {"type": "score", "score": mean, "legend": legend, "probabilities": named, "confidence": gathered(shares)}


class Noul:
    """Yes or no."""

    options = (YES, NO)

    def __init__(self, said):
        self.instructions = text(said["instructions"])
        criteria = said.get("criteria") or {}
        self.criteria = {word: criteria[name] for word, name in ((YES, "true"), (NO, "false")) if criteria.get(name) is not None}

    def text(self):
        lines = [f"{word}{described(meaning)}" for word, meaning in self.criteria.items()]
        return "\n".join([self.instructions, *lines, f"Answer {YES} or {NO}."])

    def answer(self, shares):
        return {"type": "noul", "noul": shares[0]}


KINDS: dict = {"choice": Choice, "score": Score, "noul": Noul}


def text(value):
    """A text; anything else as JSON text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def described(meaning):
    """What follows the name of an option."""
    return "" if meaning is None else f": {text(meaning)}"


def peaked(shares):
    """Confidence in a choice: 0 where all are alike, 1 where one has everything (TypeSafe's formula)."""
    count = len(shares)
    return 1.0 if count < 2 else max(0.0, (count * max(shares) - 1) / (count - 1))


def gathered(shares):
    """Confidence in a level: 1 less the mean distance from the most likely one, in units of that of evenly spread shares from their
    middle (TypeSafe's formula, as llama.cpp's server has it)."""
    count, mode = len(shares), shares.index(max(shares))
    distance = sum([share * abs(level - mode) for level, share in enumerate(shares)])
    even = sum([abs(level - (count - 1) / 2) for level in range(count)]) / count
    return max(0.0, 1 - distance / even)
