"""What the benchmarks under pytest share: the models they load, and this machine's memory bandwidth, measured once."""

import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--model", action="append", default=[], metavar="GGUF", help="a model for the tokenizer benchmarks; repeatable"
    )


def pytest_generate_tests(metafunc):
    if "model" in metafunc.fixturenames:
        metafunc.parametrize("model", metafunc.config.getoption("--model") or ["demo"], ids=lambda path: path.rsplit("/", 1)[-1])


@pytest.fixture(scope="session")
def read_rate():
    """GB/s that one thread reads from memory."""
    from bench.bandwidth import read_rate

    return read_rate(1)
