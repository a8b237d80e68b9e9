"""Two computations of the same text side by side: where do they first differ by more than rounding explains?

Both get the same tokens at every step (teacher forcing), so one difference does not hide the next. Either side is a Session
or a recording made earlier with `record`. Owns the tolerances. Called by the `check` command and the API.
Refuses a recording of another prompt or vocabulary.
"""

from math import exp, fsum, isfinite, log, sqrt

from .errors import InternalError, InvalidInputError
from .records import Record, table

TOLERANCE = 0.4  # largest difference of a log-probability, in standard deviations of the reference's logits
MARGIN = 0.5  # logits: a closer race between the first two may end the other way without being an error
COMPARED = 64  # the reference's most likely tokens: what a recording keeps, and what a live reference is compared on too


class Step(Record):
    """One position."""

    step: int
    token_id: int  # the reference's most likely token, and the next input of both sides
    difference: float  # largest of the compared log-probabilities, in standard deviations of the reference's logits
    same_argmax: bool
    margin: float  # lead of the reference's token over its runner-up, in logits
    within: bool  # the tolerance
    __slots__ = (*__annotations__,)


class Checked(Record):
    """What `check` found."""

    command: str
    model: str  # path of the file
    backend: str
    against: str
    prompt_tokens: int
    tolerance: float  # standard deviations of the reference's logits
    same: bool  # every step is within the tolerance
    first_different: int | None  # number of the first step that is not
    worst: float  # largest difference of all steps
    steps: tuple[Step, ...]
    __slots__ = (*__annotations__,)

    @property
    def exit_code(self):
        """0 the same, 1 different."""
        return 0 if self.same else 1

    def table(self):
        """One dictionary per step."""
        return [step.to_dict() for step in self.steps]

    def _repr_html_(self):
        titles = ("step", "token", "difference / std", "same argmax", "margin", "within tolerance")
        rows = [(s.step, s.token_id, f"{s.difference:.4f}", s.same_argmax, f"{s.margin:.3f}", s.within) for s in self.steps]
        return table(titles, rows, strong=self.first_different)


class View:
    """The distribution at one step: log-probabilities by token id, the logits' deviation, the first token and its lead."""

    __slots__ = ("argmax", "logprobs", "margin", "std")

    def __init__(self, argmax, margin, std, logprobs):
        self.argmax = argmax
        self.margin = margin
        self.std = std
        self.logprobs = logprobs  # id -> natural logarithm


def look(logits):
    """The View of one row of logits."""
    values = list(logits)
    top = max(values)
    if not isfinite(top) or not isfinite(min(values)):
        raise InternalError("logits are not finite", "numbers", "inf or nan")
    argmax = values.index(top)
    mean = fsum(values) / len(values)
    std = sqrt(fsum((value - mean) ** 2 for value in values) / len(values))
    shift = top + log(fsum(exp(value - top) for value in values))
    runner_up = max(values[:argmax] + values[argmax + 1 :], default=top)
    return View(argmax, top - runner_up, std, {token: value - shift for token, value in enumerate(values)})


def likely(view):
    """Ids of the COMPARED most likely tokens, falling, lower ids first among equals."""
    return sorted(view.logprobs, key=lambda token: (-view.logprobs[token], token))[:COMPARED]


def views(session, ids, count):
    """Yield the View behind `ids` and behind each token sent in; `count` of them."""
    session.reserve(len(ids), count)
    session.sync(ids)
    for _ in range(count):
        token = yield look(session.plan.logits(0))
        session.append(token)


def replay(recording, ids, count):
    """Yield the Views of a recording."""
    if recording.get("prompt_ids") != ids:
        raise InvalidInputError("the recording is of another prompt or tokenizer", recording.get("prompt_ids"), ids, "--reference")
    steps = recording.get("steps", ())
    if len(steps) < count:
        raise InvalidInputError("the recording is too short", f"{count} steps", f"{len(steps)} steps", "--reference")
    try:
        for step in steps[:count]:
            logprobs = dict(zip(step["ids"], step["logprobs"], strict=True))
            yield View(step["token_id"], step["margin"], step["std"], logprobs)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError("the recording is damaged", "what --record writes", repr(error), "--reference") from None


def record(session, prompt, steps=16):
    """A recording of `steps` greedy steps after `prompt`, ready for JSON; `check` compares other sessions with it."""
    ids = session.encode(prompt)
    source = views(session, ids, steps)
    rows: list[dict] = []
    sent = None
    for _ in range(steps):
        view = source.send(sent)
        sent = view.argmax
        kept = likely(view)
        logprobs = [view.logprobs[token] for token in kept]
        rows.append({"token_id": view.argmax, "margin": view.margin, "std": view.std, "ids": kept, "logprobs": logprobs})
    head = {"type": "recording", "schema_version": 1, "backend": session.backend, "model": session.model}
    return {**head, "vocabulary": session.plan.vocabulary, "prompt_ids": ids, "steps": rows}


def check(session, reference, prompt, steps=16, tolerance=TOLERANCE):
    """Compare `session` with `reference` (a Session, or a recording) over `steps` tokens after `prompt`; returns Checked.

    A step is out of tolerance where the log-probability of one of the reference's COMPARED most likely tokens differs by more
    than `tolerance` standard deviations of its logits, or where another token wins although its lead is at least MARGIN."""
    if steps < 1 or not (isfinite(tolerance) and tolerance >= 0):
        asked = f"{steps} steps, tolerance {tolerance}"
        raise InvalidInputError("nothing to compare", "1 step or more, tolerance 0 or more", asked)
    ids = session.encode(prompt)
    recorded = isinstance(reference, dict)
    other = reference.get("vocabulary") if recorded else reference.plan.vocabulary
    if other != session.plan.vocabulary:
        raise InvalidInputError("the two sides have different vocabularies", f"{other} tokens", f"{session.plan.vocabulary} tokens")
    trusted = replay(reference, ids, steps) if recorded else views(reference, same_ids(reference, prompt, ids), steps)
    tested = views(session, ids, steps)
    found: list[Step] = []
    sent = None
    for number in range(steps):
        want = next(trusted) if recorded else trusted.send(sent)
        got = tested.send(sent)
        sent = want.argmax
        found.append(compare(number, want, got, tolerance))
    first = next((step.step for step in found if not step.within), None)
    name = f"recording of {reference.get('backend')}" if recorded else reference.backend
    worst = max(step.difference for step in found)
    outcome = (first is None, first, worst, tuple(found))
    return Checked("check", session.model, session.backend, name, len(ids), tolerance, *outcome)


def same_ids(reference, prompt, ids):
    """The prompt's ids, refused where the two sides disagree about them."""
    other = reference.encode(prompt)
    if other != ids:
        raise InvalidInputError("the two sides tokenize the prompt differently", other, ids, "check")
    return ids


def compare(number, want, got, tolerance):
    """The Step of two Views."""
    largest = max(abs(got.logprobs[token] - want.logprobs[token]) for token in likely(want))
    difference = largest / want.std if want.std else (0.0 if largest == 0 else float("inf"))
    same = got.argmax == want.argmax
    within = difference <= tolerance and (same or want.margin < MARGIN)
    return Step(number, want.argmax, difference, same, want.margin, within)
