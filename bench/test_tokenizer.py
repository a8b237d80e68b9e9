"""Building the token tables of a model file, and text to ids and back.

    pytest bench/test_tokenizer.py [--model FILE.gguf ...]      by default the demo model

Extra columns: tokens, and megabytes of text per second. The short text is what a cold start encodes.
"""

import pytest

from reflex import demo
from reflex.gguf import reader
from reflex.tokenizer import load

SHORT = "Is this review positive or negative? The room was clean, but nobody answered the phone. Answer:"
PROSE = (
    "The keepers of the lighthouse wrote down every storm, every ship and every lamp they lit, 3,140 pages in all. "
    "Größe, œuvre, naïve; Ελλάδα и Москва; 東京と大阪、서울. "
)
CODE = "def mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n    return total / len(values)\n\n"
TEXTS = {"short": SHORT, "prose": PROSE * 40, "code": CODE * 80, "spaces": " " * 4000, "letters": "ab" * 2000}


@pytest.fixture
def file(model):
    opened = reader.open_model(demo.resolve(model))
    yield opened
    opened.close()


def finish(benchmark, text, tokens):
    benchmark.extra_info["tokens"] = tokens
    benchmark.extra_info["MB/s"] = round(len(text.encode()) / benchmark.stats.stats.median / 1e6, 2)


def test_first_ids(benchmark, file):
    """What a cold start pays: tables are built by the first text."""
    benchmark.pedantic(lambda: load(file).encode(SHORT), warmup_rounds=1, rounds=15)
    benchmark.extra_info["vocabulary"] = load(file).size


@pytest.mark.parametrize("kind", TEXTS)
def test_encode(benchmark, file, kind):
    tokenizer = load(file)
    ids = benchmark(tokenizer.encode, TEXTS[kind])
    finish(benchmark, TEXTS[kind], len(ids))


def test_decode(benchmark, file):
    tokenizer = load(file)
    ids = tokenizer.encode(TEXTS["prose"], add_special=False)
    assert benchmark(tokenizer.decode, ids).decode().strip() == TEXTS["prose"].strip()
    finish(benchmark, TEXTS["prose"], len(ids))
