"""Run two backends, or one and a recording, side by side; report the first step that differs by more than rounding.

Both sides get the same tokens at every step. Exit code 0: the same; 1: different; 2 and above: it could not be found out.
With --record, write a recording of the reference for a later --reference instead of comparing.
"""

from . import front

PARAMETERS = (
    ("MODEL", "text", None, "A .gguf file, or demo."),
    ("PROMPT", "text", None, "The text after which both sides continue; - reads it from stdin."),
    ("--against", ("reference", "cpu", "cuda"), "reference", "The backend that is taken to be right."),
    ("--reference", "text", "", "A recording to compare with instead of a backend."),
    ("--record", "text", "", "Write a recording of the --against backend to this file."),
    ("--steps", "int", 16, "How many tokens to compare."),
    *front.ENGINE,
    *front.SHOWN,
)


def run(out, model, prompt, against, reference, record, steps, engine):
    """Exit code 0 or 1 after printing the comparison."""
    from ..check import check
    from ..check import record as make_recording
    from ..open import open_model

    out.mark("imports")
    text = front.prompt(prompt)
    trusted = load(reference) if reference else open_model(model, **{**engine, "backend": against})[2]
    if record:
        save(record, make_recording(trusted, text, steps))
        out.note(f"wrote {steps} steps of {against} to {record}")
        return 0
    session = open_model(model, **engine, mark=out.mark, note=out.note)[2]
    checked = check(session, trusted, text, steps)
    out.mark("check")
    if out.json:
        out.record("result", checked.to_dict())
    else:
        show(out, checked)
    return checked.exit_code


def show(out, checked):
    """One line per step, then the verdict."""
    lines = [f"{'step':>4} {'token':>7} {'difference/std':>15} {'margin':>8}  within {checked.tolerance}"]
    for step in checked.steps:
        verdict = ("yes" if step.within else "NO") + ("" if step.same_argmax else ", another token wins")
        lines.append(f"{step.step:4} {step.token_id:7} {step.difference:15.6f} {step.margin:8.3f}  {verdict}")
    pair = f"{checked.backend} and {checked.against}"
    if checked.same:
        lines.append(f"the same: {pair} agree on {len(checked.steps)} steps, worst difference {checked.worst:.6f}")
    else:
        lines.append(f"different: {pair} disagree first at step {checked.first_different}, worst difference {checked.worst:.6f}")
    out.text("\n".join(lines) + "\n")


def load(path):
    """A recording from its file."""
    import json

    from ..errors import InputOutputError, InvalidInputError

    try:
        with open(path, encoding="utf-8") as file:
            recording = json.load(file)
    except OSError as error:
        raise InputOutputError("cannot read the recording", found=error.strerror, where=path) from None
    except ValueError as error:
        raise InvalidInputError("this is not a recording", "JSON written by check --record", str(error), path) from None
    if not isinstance(recording, dict) or recording.get("type") != "recording":
        raise InvalidInputError("this is not a recording", "JSON written by check --record", "something else", path)
    return recording


def save(path, recording):
    """Write a recording to its file."""
    from ..output_file import write
    from .jsonline import encode

    write(path, encode(recording).encode() + b"\n", "the recording")
