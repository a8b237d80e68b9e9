"""Rows of a table to rows of results: what each actor does, and a run without actors too.

A row that cannot be scored (no text, too long for the context) gets its error as a result; everything else that fails is raised.
"""

import os

from ..errors import ContextOverflowError, InvalidInputError, TokenizerError
from ..rules import score_of

OF_A_ROW = (InvalidInputError, ContextOverflowError, TokenizerError)
TRIAL = "a"  # a prompt that shows whether labels and settings are good


class Scorer:
    """A loaded model with its labels. `engine`: arguments of reflex.load; `settings`: those of Model.system1."""

    def __init__(self, model, labels, engine, settings, chat=False, system=""):
        self.model, self.labels, self.engine, self.settings = model, labels, engine, settings
        self.chat = chat or bool(system)
        self.system = [{"role": "system", "content": system}] if system else []
        self._model = None

    def load(self):
        """Load the model and score one short prompt: what is wrong with the labels is wrong for all rows. The process's id."""
        from ..api import load

        self._model = load(self.model, **self.engine)
        self._decide(TRIAL)
        return os.getpid()

    def _decide(self, text):
        if self.chat:
            messages = [*self.system, {"role": "user", "content": text}]
            return self._model.system1(candidates=self.labels, messages=messages, **self.settings)
        return self._model.system1(text, self.labels, **self.settings)

    def score(self, texts):
        """The results of some rows, values in the order of columns.RESULTS each."""
        return [self._row(text) for text in texts]

    def _row(self, text):
        if text is None:
            return failed(InvalidInputError("the prompt is null", "a text", "null", remedy="fill it in, or leave the row out"))
        try:
            found = self._decide(text)
        except OF_A_ROW as error:
            return failed(error)
        scores = [score_of(candidate, found.rule) for candidate in found.candidates]
        best = found.candidates[found.best_index]
        return [found.best_text, best.probability, found.margin, found.entropy_bits, found.prompt_tokens, scores, None]

    def close(self):
        """Give back the model."""
        if self._model is not None:
            self._model.close()
            self._model = None


def failed(error):
    """The results of a row that has an error."""
    return [None, None, None, None, None, None, f"{error.category}: {error}"]
