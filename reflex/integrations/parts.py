"""What a run over a table has done: one file per finished part in a folder beside the output, so that the next run goes on.

`plan.json` says what the parts are of; a run with another plan is refused. One run at a time: the folder is locked. A part is there
whole or not at all. Called by ray.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil

from ..errors import InputOutputError, InvalidInputError, StateError
from ..gguf.reader import open_model
from ..output_file import write

VERSION = 1
PIECE, PIECES = 4096, 256  # of a model's file that its mark is made of
HEAD = 1 << 20  # bytes


def mark_of(path):
    """What tells a model from another one without reading all of it: its files' sizes, their beginnings and pieces of the rest."""
    model = open_model(path)
    paths = [shard.path for shard in model.shards]
    model.close()
    return hashlib.sha256(b"".join(map(_mark, paths))).hexdigest()


def _mark(path):
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.sha256(b"%d" % size + file.read(HEAD))
            for number in range(PIECES):
                file.seek(max(0, size - PIECE) * number // (PIECES - 1))
                digest.update(file.read(PIECE))
    except OSError as error:
        raise InputOutputError("cannot read the model", found=error.strerror, where=path) from None
    return digest.digest()


class Parts:
    """The folder `target`.parts, locked. `plan`: a dictionary that says everything the results depend on; `rows`: rows of a part,
    `total`: of all."""

    def __init__(self, target, plan, rows, total):
        self.folder = f"{target}.parts"
        self.target, self.rows, self.total = target, rows, total
        self.count = -(-total // rows)
        self.plan = {"version": VERSION, "rows": rows, "total": total, **plan}
        self._lock()
        try:
            self._compare()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _lock(self):
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.folder)
            self._descriptor = os.open(f"{self.folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InputOutputError("cannot keep parts", found=error.strerror, where=self.folder) from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            remedy = "wait for its end, or name another output"
            raise StateError("another run makes this table", "one at a time", "another one", self.folder, remedy) from None

    def _compare(self):
        path = f"{self.folder}/plan.json"
        try:
            with open(path, encoding="utf-8") as file:
                old = json.load(file)
        except FileNotFoundError:
            if set(os.listdir(self.folder)) - {"lock"}:
                remedy = "remove it, or name another output"
                raise InvalidInputError("the folder of parts holds something else", path, "no plan", self.folder, remedy) from None
            write(path, json.dumps(self.plan, indent=1).encode(), "the plan of the parts")
            return
        except (OSError, ValueError) as error:
            remedy = "remove the folder to begin again"
            raise InvalidInputError("the plan of the parts cannot be read", "JSON", str(error), path, remedy) from None
        other = [name for name in self.plan if not isinstance(old, dict) or old.get(name) != self.plan[name]]
        if other and not self._any():
            write(path, json.dumps(self.plan, indent=1).encode(), "the plan of the parts")
        elif other:
            remedy = "give the same options, or remove the folder to begin again"
            found = f"another {', another '.join(other)}"
            raise InvalidInputError("the parts are of another run", "the same run", found, self.folder, remedy)

    def _any(self):
        return bool(set(os.listdir(self.folder)) - {"lock", "plan.json"})

    def first(self, number):
        """The first row of a part."""
        return number * self.rows

    def length(self, number):
        """Rows of a part."""
        return min(self.rows, self.total - self.first(number))

    def _path(self, number):
        return f"{self.folder}/{number:08}.json"

    def get(self, number):
        """The rows of a part, None where it is not there or not whole."""
        try:
            with open(self._path(number), encoding="utf-8") as file:
                found = json.load(file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return None  # made again
        return found if isinstance(found, list) and len(found) == self.length(number) else None

    def put(self, number, found):
        """Keep the rows of a part."""
        write(self._path(number), json.dumps(found).encode(), "a part")

    def all(self):
        """The rows of all parts in their order."""
        for number in range(self.count):
            found = self.get(number)
            if found is None:
                remedy = "run the same command again"
                raise InputOutputError("a part is gone", "all parts", f"none with number {number}", self.folder, remedy)
            yield from found

    def finish(self, make):
        """Let `make(path)` write the output, put it in its place and remove the parts."""
        beside = f"{self.folder}/whole{os.path.splitext(self.target)[1]}"
        try:
            make(beside)
            descriptor = os.open(beside, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
            os.replace(beside, self.target)
        except OSError as error:
            remedy = "all parts are kept: make room and run the same command again"
            raise InputOutputError(
                "cannot write the table", found=error.strerror or str(error), where=self.target, remedy=remedy
            ) from None
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self):
        """Let others have the folder; one without parts is removed."""
        if os.path.isdir(self.folder) and not self._any():
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._descriptor)
