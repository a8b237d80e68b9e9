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
from .native import raise_failed
from .rules import DEFAULT as _DEFAULT
from .score import score as _score
from .session import Batch, Session
from .timeline import Timeline, constrained

ROWS = 32  # rows of logits computed at once: bounds the memory beside the caller's own array


def load(
    path, backend="auto", context=None, threads=None, device="", weights="quantized", experts="lazy", expert_memory="", lora=()
):
    """Open a GGUF file (a path, or `demo`) and return a Model.

    `backend`: auto, cpu, cuda or reference. `context`: tokens, by default the model's own limit. `threads`: by default the
    cores this process may use. `device` (number or UUID), `weights` (quantized, f16, f32) and `experts` (lazy: those of a
    mixture go to the device when a batch asks for them, if it asks for few; eager: at once) concern cuda, and so does
    `expert_memory`: bytes, or a text like 8G, that experts may take on the device; empty for no limit. `lora`: adapter files,
    each a path, or a pair (path, scale), applied beside the weights as they are. Raises one error of `reflex.ReflexError`'s tree,
    naming what was expected and what to do."""
    from posix import fspath

    from .open import open_model

    options = {"backend": backend, "context": context, "threads": threads}
    options |= {"device": device, "weights": weights, "experts": experts, "expert_memory": expert_memory, "lora": lora}
    return Model(*open_model(fspath(path), **options), options=options)


class Model:
    """An open model; `with` closes it. Every method may be called any number of times; prefixes are reused between calls."""

    def __init__(self, file, tokenizer, session, options=None):
        self._file = file
        self._options = options or {}  # of open_model, for with_types
        self._session = session
        self._inside = {}  # backend -> what looks inside it (lab/ask.py), on first use
        self.tokenizer = tokenizer

    @property
    def path(self):
        """Path of the file."""
        return self._live().model

    @property
    def file(self):
        """The open GGUF file: its metadata and, as `file.tensors`, {name: Tensor}."""
        self._live()
        return self._file

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
        for row, logits in every_row(session, ids):
            found[row] = logits
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

    def import_state(self, path):
        """A Timeline of the tokens whose state a file holds (see `Timeline.export_state`). They need not be computed again, neither
        by it nor by a call whose prompt begins with its text. Raises StateError where the file is damaged or of another model,
        and ContextOverflowError where it is longer than this model's context."""
        from posix import fspath

        from .state import import_state

        session = self._live().fork()
        return Timeline(session, import_state(session, fspath(path)).ids)

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

    def taps(self, names=None, backend=None):
        """What can be read and replaced inside this model, a Taps: names, shapes, what each is and which backends have it.

        `names`: one or several, with * for any part; without them all but the numbered steps (`steps.*`)."""
        return self._looking(backend).taps(names)

    def with_types(self, types, importance=None):
        """A second Model, of the same file and with the same options, some of whose tensors have another type, in memory only.

        `types`: {name of a tensor, or regular expression that is searched for in the names of matrices: name of a block format};
        later ones win, and tensors that have the type already stay as they are. `importance`: {tensor name: one float per column},
        like `reflex.lab.imatrix.read(path).entries`, for formats that use it. Values are decoded from this model's and encoded
        again. Close both; neither needs the other. Raises InvalidInputError where nothing is meant or blocks do not fit the rows,
        UnsupportedError for formats that have no encoder."""
        from .lab.overlay import Overlay
        from .open import open_model

        session = self._live()
        options = {**self._options, "backend": session.backend, "context": session.context}
        overlay = Overlay(self._file, types, importance)
        try:
            return Model(*open_model(self._file.path, **options, change=overlay.apply), options=options)
        finally:
            overlay.close()

    def trace(self, text, taps=None, rows=None, backend=None):
        """Values inside the model while it computes `text` (or token ids); returns a Trace: trace[name] is a numpy array.

        `taps`: names as of `taps()`, with * for any part; by default the embedding, the residual stream after every layer and the
        final norm. `rows`: which tokens' rows to keep, an index, a list or a slice; all by default. `backend`: reference or cpu to
        compute beside this model's own, whose weights or cache then take further memory until `close`. What the model's timelines
        have cached is computed again afterwards. Raises InvalidInputError for unknown names and UnsupportedError where the
        backend lacks one, before any work."""
        return self._looking(backend).trace(text, taps, rows)

    def patch(self, text, patches, taps=("logits",), rows=None, backend=None):
        """Like `trace`, but with values replaced on the way: everything behind is computed from the new ones.

        `patches`: {tap: value}, where a name may have * for parts. A value is an array shaped like the tap, one number for all of
        it, a pair (index, value) that is assigned, or a function that gets a copy of the tap's array and returns another or changes
        it in place. A text of more than 512 tokens, wrong shapes and experts that do not exist are an InvalidInputError."""
        return self._looking(backend).patch(text, patches, taps, rows)

    def patched(self, patches):
        """A context in which all that this model computes goes through `patches`, see `patch`: `with model.patched({...}): ...`.
        Arrays have a row for each token computed at once, which depends on what is cached, so functions and numbers fit best."""
        return self._looking(None).patched(patches)

    def lens(self, text, layers=None, rows=None, top=5, logits=False, backend=None):
        """What the model would say after each layer, by its own final norm and output matrix; returns a Lens. `layers`: numbers,
        negative ones from the last; all by default. `rows` as of `trace`. `top`: how many tokens. With `logits` all logits are
        kept too: layers * rows * vocabulary * 4 bytes."""
        return self._looking(backend).lens(text, layers, rows, top, logits)

    def _looking(self, backend):
        """What looks inside: this model's own plan, or one of another backend beside it."""
        session = self._live()
        name = backend or session.backend
        if name not in self._inside:
            from .lab.ask import Looking

            self._inside[name] = Looking(session if name == session.backend else self._beside(name))
        return self._inside[name]

    def _beside(self, name):
        """A timeline of another backend over the same file."""
        from .open import plan_class, thread_count

        if name not in ("cpu", "reference"):
            raise InvalidInputError("no such backend to compute beside", "cpu or reference", repr(name))
        session = self._session
        plan = plan_class(name)(self._file, session.plan.program, session.context, thread_count(None))
        return Session(plan, self.tokenizer, session.model, name, session.longest)

    def close(self):
        """Give back all memory; the model cannot be used afterwards. Raises what went wrong on a thread behind the last result."""
        self._close()
        raise_failed()

    def _close(self):
        if self._session is not None:
            self._session.close()
            for looking in self._inside.values():
                if looking.session is not self._session:
                    looking.session.close()
            self.tokenizer.close()
            self._file.close()
            self._session, self._inside = None, {}

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self._close()
        if kind is None:  # else what ended the block matters more
            raise_failed()

    def __repr__(self):
        if self._session is None:
            return "Model(closed)"
        return f"Model({self.path!r}, backend={self.backend!r}, context={self.context})"

    def _live(self):
        if self._session is None:
            raise StateError("the model was closed", remedy="load it again")
        return self._session


def every_row(session, ids):
    """Yields (row, logits after it) for every token of a text; logits are a view that the next one ends."""
    for start in range(0, len(ids), ROWS):
        batch = plain_batch(start, ids[start : start + ROWS])
        session.evaluate(batch)
        for row in batch.outputs:
            yield start + row, session.plan.logits(row)
    session.ids = list(ids)


def plain_batch(start, ids):
    """A Batch of a timeline's tokens from slot `start` on, with the logits of every row."""
    batch = Batch(start)
    batch.add_plain(ids)
    batch.outputs = list(range(len(ids)))
    return batch
