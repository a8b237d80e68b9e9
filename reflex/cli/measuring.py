"""What the commands that measure on a text share: their options, reading the text, and Ctrl-C, which keeps what is known."""

from ..errors import InputOutputError, InvalidInputError
from . import front

WINDOWS = (
    ("--method", ("sliding", "llama.cpp"), "sliding", "How the text is cut: windows moved by the stride, or as llama.cpp does."),
    ("--window", "int", 0, "Most tokens seen together; 0 takes 512, or the context where that is less."),
    ("--stride", "int", 0, "Tokens from one window to the next; 0 takes half a window."),
)
PICTURE = ("--picture", "text", "", "Write a picture to this file, .png, .svg or .pdf; needs matplotlib.")


def read_text(path):
    """The bytes of a text: a file, `-` for stdin, or `demo` for the text that comes with Reflex."""
    if path == "demo":
        from ..lab.text import TEXT

        return TEXT.encode()
    if path == "-":
        return front.stdin()
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InputOutputError("cannot read the text", found=error.strerror, where=path) from None
    except ValueError:
        raise InvalidInputError("this is no file name", found="a zero byte", where=repr(path)) from None


def checked_picture(path):
    """Refuse a picture that could not be written before anything is measured."""
    if path:
        from ..lab.charts import check

        check(path)


def draw(found, path, out):
    """Write the picture of a result, if it was asked for."""
    if path:
        from ..lab.charts import save

        save(found.plot(), path)
        out.note(f"wrote {path}")


def finish(steps, what):
    """Do all steps of a measure; the exit code: 0, or 130 where Ctrl-C came before the end."""
    from ..lab.progress import progress

    try:
        for _ in progress(steps, what):
            pass
    except KeyboardInterrupt:
        return 130
    return 0


def opened(path, engine, out):
    """The Model of a command."""
    from ..api import Model
    from ..open import open_model

    return Model(*open_model(path, **engine, mark=out.mark, note=out.note), options=engine)


def pm(value, error, form=".4f"):
    """`value ± error` as text; without an error only the value."""
    return format(value, form) if error is None else f"{value:{form}} ± {error:{form}}"


def in_windows(record):
    """A line about the windows of a result."""
    begin = "no begin token" if record.begin is None else f"each begins with {record.begin!r}, which is not scored"
    return f"windows: {record.method}, {record.window} tokens, stride {record.stride}; {begin}"
