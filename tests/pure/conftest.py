"""Fixtures that several files of this folder share."""

import pytest
from gguf_bytes import Gguf

from reflex import tokenizer
from reflex.errors import ModelFileError
from reflex.gguf import reader


@pytest.fixture
def load(tmp_path):
    """load(keys) -> the Tokenizer of a file with these keys."""
    opened = []

    def make(keys):
        path = tmp_path / f"{len(opened)}.gguf"
        path.write_bytes(bytes(Gguf(keys=[("general.architecture", "string", "test"), *keys]).data))
        opened.append(reader.open_model(str(path)))
        return tokenizer.load(opened[-1])

    yield make
    for file in opened:
        file.close()


@pytest.fixture
def refused(tmp_path):
    """refused(changes) -> the error that a changed tiny model meets (changed_models.py)."""
    from changed_models import write_changed

    from reflex.arch import load_spec

    def load(kind=ModelFileError, **changes):
        file = reader.open_model(write_changed(tmp_path / "changed.gguf", **changes))
        try:
            with pytest.raises(kind) as caught:
                load_spec(file)
        finally:
            file.close()
        return str(caught.value)

    return load
