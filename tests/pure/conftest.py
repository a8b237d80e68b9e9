"""Fixtures that several files of this folder share."""

import pytest
from gguf_bytes import Gguf

from reflex import tokenizer
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
