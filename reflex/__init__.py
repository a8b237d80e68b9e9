"""Reflex: scores and continues text with a GGUF model, from a cold start, with code compiled ahead of time.

Everything public is re-exported from here and imported on first use: `import reflex` itself does nothing.
"""

_HOME = {  # public name -> module that owns it
    "Candidate": "score",
    "Decision": "score",
    "Generated": "generate",
    "Generation": "generate",
    "Lens": "lab.lens",
    "Likely": "timeline",
    "Logprobs": "timeline",
    "Model": "api",
    "ReflexError": "errors",
    "Taps": "lab.taps",
    "Timeline": "timeline",
    "Token": "generate",
    "Trace": "lab.trace",
    "load": "api",
}

__all__ = ["Candidate", "Decision", "Generated", "Generation", "Lens", "Likely", "Logprobs", "Model"]
__all__ += ["ReflexError", "Taps", "Timeline", "Token", "Trace", "load"]

_PACKAGES = ("lab", "quant")  # `reflex.lab` is there after `import reflex`, but imported on first use


def __getattr__(name):
    home = _HOME.get(name)
    if name in _PACKAGES:
        return __import__(f"reflex.{name}", None, None, ["__name__"])
    if home is None:
        raise AttributeError(f"module 'reflex' has no attribute {name!r}")
    value = getattr(__import__(f"reflex.{home}", None, None, [name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *_HOME, *_PACKAGES])
