"""What tests of hostile files share."""

import pytest
import tiny
from changes import Tree


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """files(name) -> the Tree of a tiny model, written once."""
    folder, made = tmp_path_factory.mktemp("models"), {}

    def tree(name):
        if name not in made:
            made[name] = Tree(tiny.write(name, folder / "m.gguf").read_bytes())
        return made[name].copy()

    return tree
