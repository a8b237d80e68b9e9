"""The Python interface: `load` a model, then ask it. `import reflex` re-exports this lazily.

    m = reflex.load("model.gguf")
    m.system1("The capital of France is", [" Paris", " London"]).best_text
    print(m.generate("Once upon a time", max_tokens=40))

A Model is one file, one backend and one timeline with prefix reuse; `session()` opens further timelines of the caller's own.
Refuses more than one request at a time by design: it computes in the calling thread. numpy is imported only for arrays.
"""

from .check import check as _check
from .errors import InvalidInputError, StateError
from .generate import generate as _generate
from .rules import DEFAULT as _DEFAULT
from .score import score as _score
from .session import Batch, Session
from .timeline import Timeline, constrained

ROWS = 32  # rows of logits computed at once: bounds the memory beside the caller's own array


def load(path, backend="auto", context=None, threads=None, device="", weights="quantized"):
    """Open a GGUF file (a path, or `demo`) and return a Model.

    `backend`: auto, cpu, cuda or reference. `context`: tokens, by default the model's own limit. `threads`: by default the
    cores this process may use. `device` (number or UUID) and `weights` (quantized, f16, f32) concern cuda. Raises one error
    of `reflex.ReflexError`'s tree, naming what was expected and what to do."""
    from posix import fspath

    from .open import open_model

    return Model(*open_model(fspath(path), backend, context, threads, device, weights))


class Model:
    """An open model; `with` closes it. Every method may be called any number of times; prefixes are reused between calls."""

    def __init__(self, file, tokenizer, session):
        self._file = file
        self._session = session
        self._tracing = None  # a Session of the reference backend, opened by the first trace
        self.tokenizer = tokenizer

    @property
    def path(self):
        return self._live().model

    @property
    def backend(self):
        """Name of the backend that computes: cpu, cuda or reference."""
        return self._live().backend

    @property
    def context(self):
        """The most tokens of prompt and answer together."""
        return self._live().context

    def system1(self, prompt=None, candidates=(), rule=_DEFAULT, temperature=1.0, terminator="", prior="", messages=None):
        """Score candidate continuations of `prompt` in one forward pass; returns a Decision, which is frozen.

        `prompt`: text, or token ids. With `messages`, candidates are answers to a conversation, see `chat`. `candidates`: a list of
        str or bytes. `rule`: sum (natural logarithm of the candidate's probability after the prompt),
        mean (the same per token), byte (per byte of text) or pmi (the sum less that of the same tokens after `prior`).
        `temperature` divides the scores before the softmax over the candidates. `terminator`: a text that ends every
        candidate. `prior`: by default the begin token where the model's texts start with it, else a line break.

        `decision.candidates[i]`: token_ids and logprobs (one float per token), sum, mean, per_byte, pmi, probability. The first
        of equals wins. What may surprise - duplicates, prefixes, merged seams - is in `decision.warnings`. No score depends on
        the order of candidates or on what was computed before. Raises InvalidInputError and ContextOverflowError before work."""
        return _score(self._live(), self._prompt(prompt, messages), candidates, rule, temperature, terminator, prior)

    def generate(
        self, prompt=None, stream=False, max_tokens=None, stop=(), logprobs=False, constraint=None, messages=None, **settings
    ):
        """Continue `prompt`; returns a Generated (its str() is the text), or with `stream` an iterator of Token events.

        `prompt`: text, or token ids. With `messages`, the answer to a conversation, see `chat`. `settings`: temperature (0 = the
        most likely token), top_k, top_p, min_p, repeat_penalty, repeat_last, seed, which reflex/sample.py defines; and at most one
        of choices, regex and json_schema, as for `constraint`, whose result may be given instead."""
        constraint = constrained(self._live(), constraint, settings)
        prompt = self._prompt(prompt, messages)
        generation = _generate(self._live().fork(), prompt, max_tokens, stop, logprobs, constraint, **settings)
        return generation if stream else generation.result()

    def constraint(self, choices=(), regex=None, json_schema=None):
        """What `generate` may write: one of some texts, a text that matches from end to end, or compact JSON of a schema (a dict or
        JSON text). Used again, it keeps what was worked out about this model's tokens. See docs/constrain.md."""
        from .constrain import grammar_of

        return grammar_of(choices, regex, json_schema).bind(self._live())

    def logits(self, text, every=False):
        """Logits after `text` (or token ids) as a float32 array [vocabulary]; with `every`, after each of its tokens
        [tokens, vocabulary]."""
        import numpy

        session = self._live()
        ids = session.encode(text)
        if not every:
            session.sync(ids)
            return numpy.array(session.plan.logits(0), numpy.float32)
        session.reserve(len(ids), 0)
        found = numpy.empty((len(ids), session.plan.vocabulary), numpy.float32)
        for start in range(0, len(ids), ROWS):
            batch = plain_batch(start, ids[start : start + ROWS])
            session.evaluate(batch)
            for row in batch.outputs:
                found[start + row] = session.plan.logits(row)
        session.ids = ids
        return found

    def tokenize(self, text, add_special=True, parse_special=True):
        """Token ids of `text`. `add_special`: begin and end tokens where the file asks for them."""
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, ids, special=True):
        """Text of token ids; bytes that are no UTF-8 become U+FFFD."""
        return self.tokenizer.decode(ids, special=special).decode("utf-8", "replace")

    def chat(self, messages, prompt=None, **variables):
        """The prompt that the file's chat template makes of `messages`, a list of {"role": ..., "content": ...}, and of `prompt` as
        the last one of the user. `variables`: further ones of the template (tools, enable_thinking, ...). `generate` and `system1`
        take `messages` too."""
        self._live()
        from .chat import prompt as make

        if prompt is not None and isinstance(messages, (list, tuple)):
            messages = [*messages, {"role": "user", "content": prompt}]
        return make(self._file, self.tokenizer, messages, **variables)

    def _prompt(self, prompt, messages):
        if messages is not None:
            return self.chat(messages, prompt)
        if prompt is None:
            raise InvalidInputError("there is no prompt", "prompt or messages", "neither")
        return prompt

    def session(self, text=None):
        """A new Timeline, empty or with a text (or token ids); it shares this model's cache."""
        session = self._live().fork()
        session.rewind(0)
        timeline = Timeline(session)
        return timeline if text is None else timeline.append(text)

    def logprobs(self, text):
        """How likely `text` (or token ids) is, token by token; returns Logprobs. A first token that nothing precedes has none."""
        return self.session().logprobs(text)

    def check(self, reference, prompt, steps=16, **options):
        """Compare with another Model, Session or recording step by step; returns a Checked. See reflex/check.py."""
        if isinstance(reference, Model):
            reference = reference._live()
        elif isinstance(reference, Timeline):
            reference = reference.core
        return _check(self._live(), reference, prompt, steps, **options)

    def trace(self, text, taps=None):
        """What every step of the program produced for `text`, by the reference backend: {name: float32 array [rows, columns]}.

        Names are `<step number>.<buffer>`, in order. `taps`: keep only buffers of these names. Arrays are copies. The first
        call on another backend opens the file for the reference too, which keeps the weights it decodes until `close`."""
        session = self._reference()
        ids = session.encode(text)
        session.reserve(len(ids), 0)
        found = {}

        def keep(name, number, array):
            if taps is None or name in taps:
                found[f"{number}.{name}"] = array.copy()

        session.plan.taps = keep
        try:
            session.evaluate(plain_batch(0, ids))
        finally:
            session.plan.taps = None
        return found

    def _reference(self):
        """A timeline of the reference backend: this model's own, or one beside it."""
        session = self._live()
        if session.backend == "reference":
            return session
        if self._tracing is None:
            from .arch import load_spec
            from .backends.reference import Plan
            from .program import build

            program = build(load_spec(self._file), session.context)
            plan = Plan(self._file, program, session.context)
            self._tracing = Session(plan, self.tokenizer, session.model, "reference", session.longest)
        return self._tracing

    def close(self):
        """Give back all memory; the model cannot be used afterwards."""
        if self._session is not None:
            self._session.close()
            if self._tracing is not None:
                self._tracing.close()
            self.tokenizer.close()
            self._file.close()
            self._session = self._tracing = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        if self._session is None:
            return "Model(closed)"
        return f"Model({self.path!r}, backend={self.backend!r}, context={self.context})"

    def _live(self):
        if self._session is None:
            raise StateError("the model was closed", remedy="load it again")
        return self._session


def plain_batch(start, ids):
    """A Batch of a timeline's tokens from slot `start` on, with the logits of every row."""
    batch = Batch(start)
    batch.add_plain(ids)
    batch.outputs = list(range(len(ids)))
    return batch
