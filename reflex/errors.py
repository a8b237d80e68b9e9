"""The error tree. Every failure a user can meet is one of these; each carries one category and one exit code.

ReflexError
  ModelFileError       model_file        3   the GGUF file is missing, truncated, corrupt or contradicts itself
  UnsupportedError     unsupported       3   a valid file asks for something this engine does not implement
  TokenizerError       tokenizer         3   the vocabulary in the file cannot be used
  KernelCacheError     kernel_cache      7   the ahead-of-time code is missing, stale, corrupt or for another CPU
  DeviceError          device            4
  OutOfMemoryError     out_of_memory     5
  ContextOverflowError context_overflow  6
  StateError           state             8
  AdapterError         adapter           8
  InputOutputError     io                8
  InvalidInputError    invalid_input     2
  InternalError        internal          8
"""


class ReflexError(Exception):
    """One line for a person: what was expected, what was found, where, and what to do about it."""

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
        text = "; ".join(parts)
        if self.remedy is not None:
            text += f" -> {self.remedy}"
        return " ".join(text.split())

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
    category = "model_file"
    exit_code = 3


class UnsupportedError(ReflexError):
    category = "unsupported"
    exit_code = 3


class TokenizerError(ReflexError):
    category = "tokenizer"
    exit_code = 3


class KernelCacheError(ReflexError):
    category = "kernel_cache"
    exit_code = 7


class DeviceError(ReflexError):
    category = "device"
    exit_code = 4


class OutOfMemoryError(ReflexError):
    category = "out_of_memory"
    exit_code = 5


class ContextOverflowError(ReflexError):
    category = "context_overflow"
    exit_code = 6


class StateError(ReflexError):
    category = "state"


class AdapterError(ReflexError):
    category = "adapter"


class InputOutputError(ReflexError):
    category = "io"


class InvalidInputError(ReflexError):
    category = "invalid_input"
    exit_code = 2


class InternalError(ReflexError):
    category = "internal"


def closest(name, known, count=3):
    """The `count` names of `known` nearest to `name` by shared letter pairs, for error messages."""

    def pairs(text):
        return {text[i : i + 2] for i in range(max(1, len(text) - 1))}

    wanted = pairs(name)
    ranked = sorted(known, key=lambda k: (-len(wanted & pairs(k)) / len(wanted | pairs(k)), k))
    return ", ".join(ranked[:count])
