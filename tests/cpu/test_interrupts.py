"""Ctrl-C, closed pipes, slow readers and full disks: what was made is printed once and whole, and the exit code says what happened.

The signals are real ones. To meet an exact moment the process sends them to itself, just before or after a piece of its work.
"""

import fcntl
import json
import os
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import process
import pytest
import tiny
from process import until

LONG = "The quick brown fox jumps over the lazy dog. " * 50  # more than one batch of rows
VARIED = ("--temperature", "60", "--seed", "3")
INTERRUPT = """
import os, signal
import reflex.{module} as module
inner, number = {target}, 0
def watched(*words, **named):
    global number
    number += 1
    if number == {number} and {before}:
        os.kill(os.getpid(), signal.SIGINT)
    done = inner(*words, **named)
    if number == {number} and not {before}:
        os.kill(os.getpid(), signal.SIGINT)
    return done
{target} = watched
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny.write("llama-smollm", path, ends=False)
    return path


@pytest.fixture(scope="module")
def whole(model):
    """(argv, stdout) of an uninterrupted generation, by whether it is JSON."""
    argv = {json: ("generate", model, LONG, "--max-tokens", "40", *VARIED, *(["--json"] if json else [])) for json in (False, True)}
    return {json: (words, process.reflex(*words).stdout) for json, words in argv.items()}


MOMENTS = {
    "while the model opens": ("open", "module.open_model", 1, True),
    "after it was opened": ("open", "module.open_model", 1, False),
    "before the prompt": ("backends.cpu", "module.Plan.evaluate", 1, True),
    "in the middle of the prompt": ("backends.cpu", "module.Plan.evaluate", 1, False),
    "after the prompt": ("backends.cpu", "module.Plan.evaluate", 2, False),
    "at the first token": ("tokenizer", "module.Stream.feed", 1, True),
    "within a step": ("tokenizer", "module.Stream.feed", 7, False),
    "while decoding": ("backends.cpu", "module.Plan.evaluate", 9, False),
    "before a piece is written": ("cli.output", "module._write", 5, True),
    "after a piece was written": ("cli.output", "module._write", 5, False),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupt_keeps_what_exists(model, whole, moment):
    module, target, number, before = MOMENTS[moment]
    code = INTERRUPT.format(module=module, target=target, number=number, before=before)
    argv, full = whole[False]
    done = process.reflex(*argv, before=code)
    assert (done.returncode, done.stderr) == (130, b"")
    shown = done.stdout.removesuffix(b"\n")
    assert full.startswith(shown.removesuffix("\ufffd".encode()))  # a part of a character that would have followed
    at = list(MOMENTS).index(moment)
    assert shown == b"" if at < 5 else shown or at == 5
    assert len(done.stdout) < len(full)


@pytest.mark.parametrize("moment", list(MOMENTS)[2:])
def test_an_interrupted_result_is_a_result(model, whole, moment):
    module, target, number, before = MOMENTS[moment]
    argv, full = whole[True]
    done = process.reflex(*argv, before=INTERRUPT.format(module=module, target=target, number=number, before=before))
    assert (done.returncode, done.stderr) == (130, b"")
    *tokens, result = map(json.loads, done.stdout.splitlines())
    *all_tokens, full_result = map(json.loads, full.splitlines())
    assert result["finish_reason"] == "interrupt"
    assert tokens == all_tokens[: len(tokens)]
    assert len(result["token_ids"]) - len(tokens) in (0, 1), "at most the token that was being made"
    assert result["token_ids"] == full_result["token_ids"][: len(result["token_ids"])]
    assert full_result["text"].startswith(result["text"].rstrip("\ufffd"))


@pytest.mark.parametrize("place", [("generate", "module.Generation.interrupt", 1, True), ("cli.output", "module._write", 12, True)])
def test_an_impatient_interrupt_does_not_cut_the_rest(model, whole, place):
    """A second signal while the last text or the result is on its way."""
    argv, full = whole[True]
    code = ""
    for module, target, number, before in (("backends.cpu", "module.Plan.evaluate", 9, False), place):
        one = INTERRUPT.format(module=module, target=target, number=number, before=before)
        code += f"exec({one!r}, {{}})\n"
    done = process.reflex(*argv, before=code)
    assert (done.returncode, done.stderr) == (130, b"")
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["finish_reason"] == "interrupt" and full[:500].startswith(done.stdout[:100])


@pytest.mark.parametrize("moment", list(MOMENTS)[:4])
def test_an_interrupted_decision_prints_nothing(model, moment):
    module, target, number, before = MOMENTS[moment]
    code = INTERRUPT.format(module=module, target=target, number=number, before=before)
    done = process.reflex("system1", model, LONG, "--candidate", " a", "--candidate", " b", before=code)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


HEARD = """
import os
from reflex.cli.generate import Patience
inner = Patience.__call__
def heard(*words):
    os.write({sink}, b"x")
    inner(*words)
Patience.__call__ = heard
"""


def test_two_interrupts_do_not_wait_for_a_reader_that_stopped(model):
    (reader, writer), (source, sink) = os.pipe(), os.pipe()
    argv = ("generate", model, "hello", "--max-tokens", "1000", "--json", "--temperature", "2", "--logprobs", "--threads", "1")
    words = process.words(*argv, before=HEARD.format(sink=sink))
    running = subprocess.Popen(words, stdout=writer, stderr=subprocess.PIPE, pass_fds=[sink])
    os.close(writer)
    until(lambda: running.poll() is not None or (sleeps(running) and unread(reader)))  # its one thread waits for room alone
    assert running.poll() is None, running.stderr.read()
    running.send_signal(signal.SIGINT)
    assert os.read(source, 1) == b"x"
    until(lambda: sleeps(running) or running.poll() is not None)
    assert running.poll() is None, "the first one waits"
    running.send_signal(signal.SIGINT)
    assert running.wait(300) == 130 and running.stderr.read() == b""
    for end in (reader, source, sink):
        os.close(end)


def unread(descriptor):
    """Bytes that wait in a pipe."""
    return struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]


def sleeps(running):
    """Whether a process waits for something."""
    return Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize("milliseconds", [0, 4, 8, 12, 16, 20, 30, 50])
def test_an_interrupt_at_any_time_of_a_start_leaves_no_traceback(model, milliseconds):
    argv = process.words("generate", model, LONG, "--max-tokens", "200")
    running = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # Python itself installs its handler some milliseconds after exec: before, a signal ends the process; from then until the
    # first line of ours Python may fail to start, with words of its own and exit code 1.
    time.sleep(milliseconds / 1000)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=300)
    assert running.returncode in (0, 1, 130, -signal.SIGINT)
    assert b"reflex" not in errors, errors.decode()


def test_an_ignored_interrupt_stays_ignored(model, whole):
    argv, full = whole[False]
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code += INTERRUPT.format(module="backends.cpu", target="module.Plan.evaluate", number=5, before=True)
    done = process.reflex(*argv, before=code)
    assert (done.returncode, done.stdout) == (0, full)


# ---- where the result goes -------------------------------------------------------------------------------


def shell(line, *argv):
    """Run a line of sh in which "$@" is the command."""
    return subprocess.run(["sh", "-c", line, "sh", *process.words(*argv)], capture_output=True, timeout=300)


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_pipe_that_is_closed_after_one_byte(model, more):
    line = '{ "$@"; echo "code $?" >&2; } | head -c 1'
    done = shell(line, "generate", model, "hello", "--max-tokens", "900", "--temperature", "2", "--seed", "3", *more)
    assert len(done.stdout) == 1
    assert done.stderr in (b"code 141\n", b"code 0\n"), "0: all was written before the reader left"


@pytest.mark.parametrize("more", [(), ("--json",)])
@pytest.mark.parametrize("command", [("generate", "--max-tokens", "5"), ("system1", "--candidate", " a")])
def test_a_full_disk_is_one_line_and_an_error(model, command, more):
    done = shell('"$@" > /dev/full', command[0], model, "hello", *command[1:], *more)
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 8 and line.startswith("reflex: io: ") and "No space left" in line


def test_a_slow_reader_gets_everything(model, whole):
    argv, full = whole[True]
    done = shell('"$@" | (sleep 0.3; while read -r line; do sleep 0.005; printf "%s\\n" "$line"; done)', *argv)
    assert done.stdout == full and done.stderr == b""


def test_the_end_of_stdin_ends_the_input(model):
    argument = process.reflex("generate", model, "hello", "--max-tokens", "3")
    assert shell('printf hello | "$@"', "generate", model, "-", "--max-tokens", "3").stdout == argument.stdout != b""
    for line in ('"$@" < /dev/null', 'printf "" | "$@"'):
        done = shell(line, "generate", model, "-")
        assert done.returncode == 2 and b"end of input" in done.stderr and done.stderr.count(b"\n") == 1
    done = shell('"$@" < /dev/null', "generate", model)
    assert done.returncode == 2 and done.stderr.startswith(b"reflex: invalid_input: ")


@pytest.mark.parametrize("line", ['"$@" <&-'])
def test_a_stdin_that_cannot_be_read_is_one_line(model, line):
    done = shell(line, "generate", model, "-")
    assert done.returncode == 8 and done.stderr.startswith(b"reflex: io: ") and b"stdin" in done.stderr
