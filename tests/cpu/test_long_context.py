"""What shows only in long texts: chunks of positions, and queries that grow with the position, past 8192 tokens of Llama 4."""

import numpy as np
import pytest
from llama import Llama
from tiny import VOCABULARY, write

from reflex import arch
from reflex.arch import load_spec
from reflex.arch.spec import FAMILY_DEFAULTS, Family
from reflex.backends.cpu import Plan
from reflex.gguf.reader import open_model
from reflex.program import build

CONTEXT, LENGTH, WANTED = 8448, 8300, 50
SIZES = {"context_length": CONTEXT}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    sizes = {"width": 32, "heads": 2, "kv_heads": 1, "experts": (2, 1, 32), "keys": SIZES}
    return write("llama4", tmp_path_factory.mktemp("long") / "m.gguf", **sizes)


def ours(path, ids):
    """Logits of the last WANTED tokens."""
    file = open_model(str(path))
    plan = Plan(file, build(load_spec(file), CONTEXT), CONTEXT, 2)
    for first in range(0, len(ids), 512):
        part = ids[first : first + 512]
        outputs = [row for row in range(len(part)) if first + row >= LENGTH - WANTED]
        plan.evaluate(part, first, list(range(first, first + len(part))), [0] * len(part), [0] * len(part), outputs)
    found = np.array([plan.logits(row).tolist() for row in range(WANTED)])
    plan.close()
    file.close()
    return found


def distance(a, b):
    return np.abs(a - b).max() / b.std()


def test_llama4_past_its_first_chunk(path, monkeypatch):
    ids = np.random.default_rng(3).integers(0, VOCABULARY, LENGTH).tolist()
    oracle = Llama(path, CONTEXT, 2, 512)
    wanted = oracle.logits(ids)[-WANTED:]
    oracle.close()
    assert distance(ours(path, ids), wanted) < 0.01
    module = arch.find("llama4")
    for change in ({"chunk": 0}, {"temper": None}):
        with monkeypatch.context() as patch:
            facts = {name: getattr(module.FAMILY, name) for name in FAMILY_DEFAULTS}
            patch.setattr(module, "FAMILY", Family(**facts | change))
            assert distance(ours(path, ids), wanted) > 0.1, change
