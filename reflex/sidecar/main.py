"""The sidecar from its command line to its exit code. The worker starts first, then the socket, then everything large is imported.

Errors at the start are one line and the exit code of their category; a first worker that cannot start has said its own.
"""

import gc
import os
import sys

from ..errors import InputOutputError, InternalError, ReflexError
from . import options as command_line
from .process import Process, program

QUIET = 1.0  # seconds after the start in which nothing is imported that the first answer does not need
PARTING = 5.0  # seconds for the worker to end by itself
LONGEST_TOKEN = 4096  # characters


def main():
    """The process: never returns."""
    try:
        code = run(sys.argv)
    except ModuleNotFoundError as error:
        need = f"reflex-sidecar: internal: the package {error.name} is not installed"
        say(f"{need} -> pip install 'reflex-gguf[sidecar]'")
        code = InternalError.exit_code
    except ReflexError as error:
        say(error.line().replace("reflex:", "reflex-sidecar:", 1))
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    os._exit(code)


def run(argv):
    """The exit code."""
    options = command_line.parse(argv[1:])
    if options is None:
        os.write(1, command_line.help_text().encode())
        return 0
    secret = token(options)
    words = [options.worker or program(argv[0], sys.executable), "stdio", options.model, *options.forwarded]
    process, listener = Process(words), None
    try:
        from .later import set_aside
        from .listen import Listener

        listener = Listener(options)
        tell(options, "listening", f"listening at {listener.url}", {"url": listener.url})
        set_aside()
        import asyncio

        return asyncio.run(serve(options, secret, words, process, listener))
    finally:
        if listener:
            listener.close()
        if not process.ended():
            process.kill()


async def serve(options, secret, words, process, listener):
    """Everything from the loop on; the exit code."""
    import asyncio

    from .app import App
    from .engine import Engine
    from .server import Service

    first = []

    def changed(state, why):
        if state == "ready":
            facts = {name: why[name] for name in ("model", "backend", "context", "phases")}
            tell(options, "ready", f"ready: {why['model']} on {why['backend']}, {why['context']} tokens of context", facts)
        else:
            tell(options, "error", f"{state}: {why}", {"state": state, **why.as_dict()})
            if engine.ready is None and engine.starts == 1:
                first.append(engine.link.process.code or why.exit_code)
                engine.end()
                service.server.should_exit = True

    loop = asyncio.get_running_loop()
    engine = Engine(words, process, options.queue, loop, changed)
    app = App(engine, options, options.model_name or model_name(options.model), secret)
    service = Service(app, engine, options)
    loop.call_later(QUIET, app.pages.prepare)
    gc.freeze()
    gc.enable()
    await service.run(listener.socket)
    await part(engine)
    return first[0] if first and not service.number else service.code


async def part(engine):
    """Let the worker end: by itself, else by force."""
    import asyncio
    import signal

    engine.end()
    engine.link.process.hang_up()
    for number, seconds in ((0, PARTING), (signal.SIGTERM, 1.0), (signal.SIGKILL, PARTING)):
        engine.link.process.signal(number)
        until = engine.loop.time() + seconds
        while engine.loop.time() < until:
            if engine.link.process.ended():
                return
            await asyncio.sleep(0.005)


def model_name(path):
    """The model's id: the name of its file."""
    return os.path.basename(path).removesuffix(".gguf") or path


def token(options):
    """The token that clients must send, None where there is none."""
    from .. import settings

    if not options.token_file:
        return checked(settings.token(), "REFLEX_TOKEN")
    try:
        with open(options.token_file, encoding="utf-8", errors="surrogateescape") as file:
            return checked(file.read(LONGEST_TOKEN + 2).rstrip("\r\n"), options.token_file)
    except OSError as error:
        raise InputOutputError("cannot read the token", found=error.strerror, where=options.token_file) from None


def checked(secret, where):
    """A token that a header can hold."""
    from ..errors import InvalidInputError

    if secret is not None and not (1 <= len(secret) <= LONGEST_TOKEN and secret.isascii() and secret.isprintable()):
        raise InvalidInputError("the token is none", f"1 to {LONGEST_TOKEN} printable ASCII characters on one line", where=where)
    return secret


def tell(options, kind, text, fields):
    """What happens: a line on stderr, and under --json an object on stdout."""
    say(f"reflex-sidecar: {text}")
    if options.json:
        from ..cli.jsonline import encode
        from ..cli.output import SCHEMA_VERSION

        write(1, encode({"schema_version": SCHEMA_VERSION, "type": kind, **fields}) + "\n")


def say(text):
    """A line for the person."""
    write(2, text + "\n")


def write(descriptor, text):
    """Text to a descriptor; where nobody reads it, it is lost."""
    try:
        os.write(descriptor, text.encode("utf-8", "replace"))
    except OSError:
        return
