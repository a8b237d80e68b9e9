"""docs/worker.md, its tables made from the requests' own: `python -m reflex.worker.page > docs/worker.md`.

A test compares the committed page with this text.
"""

import inspect

from . import protocol
from .channel import LAST_WORDS, MOST_LINES
from .loop import CANCEL_BYTES
from .socket import LONGEST

TEXT = """# The worker

Made by `python -m reflex.worker.page`; do not edit.

    reflex stdio model.gguf                      # one client, over stdin and stdout
    reflex uds model.gguf /run/reflex.sock       # one client at a time, at a local socket

The model is loaded once; then every line in is a request, a JSON object, and is answered by one or more lines, JSON objects
too. There is no network listener: HTTP is a program of its own in front of this one: [sidecar.md](sidecar.md).

    > {{"command": "system1", "id": 1, "prompt": "The capital of France is", "candidates": [" Paris", " London"]}}
    < {{"schema_version": 1, "type": "result", "id": 1, "command": "system1", "best_text": " Paris", ...}}
    > {{"command": "generate", "id": "b", "prompt": "Once", "max_tokens": 2, "stream": true}}
    < {{"schema_version": 1, "type": "token", "id": "b", "index": 0, "token_id": 2501, "text": " upon", ...}}
    < {{"schema_version": 1, "type": "token", "id": "b", "index": 1, "token_id": 253, "text": " a", ...}}
    < {{"schema_version": 1, "type": "result", "id": "b", "command": "generate", "text": " upon a", "finish_reason": "length", ...}}

From Python, without anything of the engine being imported:

    from reflex.client import Client

    with Client("/run/reflex.sock") as worker:   # or Client(["reflex", "stdio", "model.gguf"])
        worker.system1("The capital of France is", [" Paris", " London"])["best_text"]
        for token in worker.generate("Once upon a time", max_tokens=40):
            print(token["text"], end="")

## Requests

Every request has `command`, and may have `id`: a text of at most {longest_id} characters or a whole number, which every answer
to it repeats. A field that is null counts as not given. Unknown fields are refused, with the nearest known ones named.

{requests}
Texts are UTF-8. A lone surrogate from `\\udc80` to `\\udcff` stands for one byte that is no UTF-8; others are refused.

## Answers

| `type` | when | fields |
|---|---|---|
| `ready` | first, once: the model is loaded | `command`, `model`, `backend`, `context`, `chat`, `socket` (uds), `phases` |
| `token` | one step of a `generate` with `stream` | `index`, `token_id`, `text`, `bytes`, `logprob`, `top_logprobs` if asked for |
| `result` | last: the request succeeded, or was cancelled | `command`, and those of the command |
| `error` | last: it did not | `category`, `message`, `expected`, `found`, `where`, `remedy`: [errors.md](errors.md) |

`chat`: whether the file has a chat template. `phases`: for each, milliseconds since the process began at which it ended. A `token`
whose `token_id` is null only brings text that was held back.

All begin with `schema_version`, `type` and, where the request has one, `id`. Names are those of `--json`, but for a token's
`id`, which is `token_id` here. Every result has `timings`, in milliseconds: `waited` since the line came, `first_token` and
`total` since work on it began. `prompt_tokens` and `completion_tokens` are the numbers of tokens that were computed with, begin
tokens among them, the end token not; tokens of a stop text count, it is never in `text`.

`finish_reason` is `stop` (an end token, a stop text, a constraint that is complete), `length`, or `cancelled`. A generation
that was cancelled has all that was made until then, and `token` answers make up its `text`; where nothing had begun, the result
has `command` and `finish_reason` alone.

With `import_state` a result also has `state`: `tokens` of the file, how many of them were `reused`, and `warnings`. Paths are
absolute; the worker reads and writes them as its own user. What was imported is forgotten with the request, so that the next one
computes everything itself. A file that is damaged or of another model is an error of category `state`.

## Order

- One request at a time, in the order of their lines. Lines that come meanwhile wait: up to {lines} of them, or {megabytes} MiB;
  after that the client has to. With uds, further clients wait in the system's queue. A client that has nothing to ask for
  `--idle` seconds loses its turn (its connection is closed) when another one waits, and not before.
- `cancel` works when it comes: before the next token, or the next batch of a long prompt. Longer ones than {cancel} bytes wait
  for their turn, when there is nothing left to cancel.
- A client that leaves cancels its request. One that only ends its side (`shutdown`, the end of stdin) gets all answers.
- A client that does not read an answer, or 64 KiB of it, within `--stall` seconds is given up: uds closes the connection, stdio
  ends (exit code 8).
- A line of more than {megabytes} MiB is answered by an error when it is clear that it is too long; the rest of it is skipped.
  What is no request, for whatever reason, is an error of category `invalid_input`, and the next line works.
- Nothing of a request shows in another: each begins an empty timeline, its numbers are to the bit those of a worker that was
  just started. Tokens that the cache holds already are not computed again; memory stays that of the longest request so far.
- SIGTERM and SIGINT: the request at hand is cancelled and answered, lines that wait are refused (category `state`), all of that
  within {last:g} s for a client that does not read; the socket is removed; exit code 0 after SIGTERM, 130 after SIGINT. A
  second signal does not wait.
- An error while loading is one line on stderr, one `error` on stdout, and the exit code of its category. A device that fails
  later is answered with its error; then the worker ends with exit code 4, since devices do not recover.

## The socket

SOCKET has at most {longest} bytes. It is made before the model is loaded, so that clients can connect at once, and for its
owner alone (mode 0600 from its first moment on). If it exists, the worker connects: where somebody answers it refuses to start,
where nobody does the file is what a killed worker left, and is replaced. What is no socket is never touched.
"""


def requests():
    """A section per command."""
    parts = []
    for name in protocol.names():
        module = protocol.command(name)
        parts.append(f"### {name}\n\n{inspect.cleandoc(module.__doc__)}\n")
        if module.FIELDS:
            parts.append("| field | kind | default | meaning |\n|---|---|---|---|")
        for field, kind, default, meaning in module.FIELDS:
            parts.append(f"| `{field}` | {protocol.KINDS[kind][1]} | {spelled(default)} | {meaning} |")
        parts.append("\nIts result has " * bool(module.FIELDS) or "Its result has ")
        parts[-1] += ", ".join([f"`{name}`" for name in module.RESULT]) + ".\n"
    return "\n".join(parts)


def spelled(default):
    """The default of a field; nothing where that is nothing."""
    if default is protocol.REQUIRED:
        return "required"
    if default in (None, "", ()) or default == {}:
        return ""
    return {"True": "`true`", "False": "`false`"}.get(str(default), f"`{default}`")


def text():
    """The page as Markdown."""
    return TEXT.format(
        requests=requests(),
        longest_id=protocol.LONGEST_ID,
        lines=MOST_LINES,
        megabytes=protocol.LONGEST_LINE >> 20,
        cancel=CANCEL_BYTES,
        last=LAST_WORDS,
        longest=LONGEST,
    )


if __name__ == "__main__":
    print(text(), end="")
