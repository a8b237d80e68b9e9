"""The error tree. Every failure a user can meet is one of these; each carries one category and one exit code.

docs/errors.md is made from these classes and from every place that raises one (bench/error_tables.py). The second paragraph of a
class says what to do where the error at hand has no remedy of its own.
"""

LONGEST_PART = 600  # characters of one part of a line: names and texts of a file can have any length


class ReflexError(Exception):
    """One line for a person: what was expected, what was found, where, and what to do about it.

    What a file says may stand in it: control codes are spelled out and long parts are cut."""

    category = "internal"
    exit_code = 8

    def __init__(self, message, expected=None, found=None, where=None, remedy=None):
        super().__init__(message)
        self.message = message
        self.expected = expected
        self.found = found
        self.where = where
        self.remedy = remedy

    def __str__(self):
        parts = [self.message]
        if self.expected is not None:
            parts.append(f"expected {self.expected}")
        if self.found is not None:
            parts.append(f"found {self.found}")
        if self.where is not None:
            parts.append(f"at {self.where}")
        parts = [part if len(part) <= LONGEST_PART else f"{part[:LONGEST_PART]}... ({len(part)} characters)" for part in parts]
        text = "; ".join(parts)
        if self.remedy is not None:
            text += f" -> {self.remedy}"
        text = " ".join(text.split())
        if text.isprintable():
            return text
        return "".join([c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text])

    def line(self):
        """What a person reads on stderr."""
        return f"reflex: {self.category}: {self}"

    def as_dict(self):
        """The fields of the `error` JSON line."""
        return {
            "category": self.category,
            "message": self.message,
            "expected": self.expected,
            "found": self.found,
            "where": self.where,
            "remedy": self.remedy,
        }


class ModelFileError(ReflexError):
    """The GGUF file is missing, truncated, corrupt or contradicts itself.

    Download or convert the model again; the place in the file is named."""

    category = "model_file"
    exit_code = 3


class UnsupportedError(ReflexError):
    """A valid file, or a request, asks for something this engine does not implement.

    Use a file or an option that the message names, or another program."""

    category = "unsupported"
    exit_code = 3


class TokenizerError(ReflexError):
    """The vocabulary in the file cannot be used.

    Convert the model again, together with its tokenizer."""

    category = "tokenizer"
    exit_code = 3


class KernelCacheError(ReflexError):
    """The ahead-of-time code is missing, stale, corrupt or for another processor.

    Run `python precompile.py`, or install the wheel again."""

    category = "kernel_cache"
    exit_code = 7


class DeviceError(ReflexError):
    """The GPU or its driver is missing, refuses or fails.

    `reflex doctor` says more; `--backend cpu` does without the GPU."""

    category = "device"
    exit_code = 4


class OutOfMemoryError(ReflexError):
    """Memory of the machine or of the GPU does not suffice; said before it is touched.

    Use a shorter context (`--ctx`), free memory or take a smaller model."""

    category = "out_of_memory"
    exit_code = 5


class ContextOverflowError(ReflexError):
    """Prompt and answer do not fit in the context; said before any work.

    Shorten the prompt or raise `--ctx`, up to what the model allows."""

    category = "context_overflow"
    exit_code = 6


class StateError(ReflexError):
    """An object is used after it was closed, or while another use of it is under way.

    Take turns, or load the model once for each user of it."""

    category = "state"


class AdapterError(ReflexError):
    """An adapter does not fit its model.

    Use the adapter with the model it was made for."""

    category = "adapter"


class InputOutputError(ReflexError):
    """Reading the input or writing the result failed.

    See to the disk, the pipe or the permission that is named."""

    category = "io"


class InvalidInputError(ReflexError):
    """The request itself is wrong: an option, a prompt, a message, a template, a grammar.

    Change the request as the message says; `reflex COMMAND --help` lists the options."""

    category = "invalid_input"
    exit_code = 2


class InternalError(ReflexError):
    """A mistake of this engine, or weights that give no numbers.

    Run again with `--trace` and report it; where numbers are not finite, `reflex check` finds the step."""

    category = "internal"


def closest(name, known, count=3):
    """The `count` names of `known` nearest to `name` by shared letter pairs, for error messages."""

    def pairs(text):
        return {text[i : i + 2] for i in range(max(1, len(text) - 1))}

    wanted = pairs(name)
    ranked = sorted(known, key=lambda k: (-len(wanted & pairs(k)) / len(wanted | pairs(k)), k))
    return ", ".join(ranked[:count])
