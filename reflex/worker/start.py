"""From a command line to a worker that is ready, and to the exit code of its process. Called by the commands stdio and uds.

The line `ready` comes before anything is imported that only a request needs.
"""

from ..errors import InputOutputError, InvalidInputError
from .signals import Signals

MODEL = ("MODEL", "text", None, "A .gguf file, or demo.")
STALL = ("--stall", "float", 30.0, "Seconds that 64 KiB of an answer may wait for their reader before the client is given up.")
TRACE = ("--trace", "switch", False, "Show a Python traceback with an error.")
LONGEST = 1e6  # seconds


def seconds(name, value):
    """A number of seconds that makes sense."""
    if not 0 < value <= LONGEST:
        raise InvalidInputError(f"{name} is out of range", f"more than 0, at most {LONGEST:g} seconds", value)
    return value


def run(out, model, engine, stall, serve, where=None):
    """Load the model, say `ready`, answer; the exit code. `where`: makes what clients connect to, before the load.

    `serve(worker, place)` answers until it returns."""
    signals = Signals()
    place = None
    try:
        place = where() if where else None
        worker = begin(out, model, engine, signals, stall, place)
        serve(worker, place)
    except KeyboardInterrupt:
        pass
    finally:
        if place:
            place.close()
    return signals.code


def begin(out, model, engine, signals, stall, place):
    """A Worker that has said that it is ready."""
    from ..open import open_model

    out.mark("imports")
    file, tokenizer, session = open_model(model, **engine, mark=out.mark, note=out.note)
    out.mark("ready")
    fields = {"command": out.command, "model": session.model, "backend": session.backend, "context": session.context}
    fields["chat"] = file.has("tokenizer.chat_template")
    fields |= {**({"socket": place.path} if place else {}), "phases": out.phases()}
    out.timings = out.json = False  # after this line stdout is the worker's, or nobody's, even where a signal comes with it
    out.record("ready", fields)
    import gc

    from .loop import Worker

    gc.freeze()
    gc.enable()  # the launcher switched it off
    worker = Worker(file, tokenizer, session, signals, stall)
    signals.patient = True
    use_the_time(place or 0)
    return worker


def use_the_time(source):
    """Import what requests need, unless one is there already."""
    from select import POLLIN, poll

    from . import protocol

    asked = poll()
    asked.register(source, POLLIN)
    if not asked.poll(0):
        for name in protocol.names():
            protocol.command(name)


def over_stdio(worker, _):
    """Answer the one client at stdin and stdout. BrokenPipeError where it left, InputOutputError where it stopped reading."""
    from .channel import Gone

    try:
        worker.serve(0, 1)
    except Gone as gone:
        if worker.signals.number:
            return
        if str(gone) == "stalled":
            raise InputOutputError("nobody reads the answers", f"a reader within {worker.stall:g} s", where="stdout") from None
        raise BrokenPipeError from None


def over_socket(worker, socket, idle):
    """Answer clients one after the other until a signal comes."""
    from posix import close

    from .channel import Gone, await_client

    while await_client(socket, worker.signals):
        client = socket.accept()
        if client is None:
            continue
        try:
            worker.serve(client, client, idle, socket.fileno())
        except Gone:
            pass
        finally:
            close(client)
        worker.tidy()  # of a client that did not take its answer
