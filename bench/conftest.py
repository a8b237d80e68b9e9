"""What the benchmarks under pytest share: the models they load, and this machine's memory bandwidth, measured once."""

import pytest

from bench import record


def pytest_addoption(parser):
    parser.addoption("--model", action="append", default=[], metavar="GGUF", help="for the tokenizer benchmarks; repeatable")


def pytest_generate_tests(metafunc):
    if "model" in metafunc.fixturenames:
        metafunc.parametrize("model", metafunc.config.getoption("--model") or ["demo"], ids=lambda path: path.rsplit("/", 1)[-1])


@pytest.fixture(scope="session")
def read_rate():
    """GB/s that one thread reads from memory."""
    from bench.bandwidth import read_rate

    return read_rate(1)


def pytest_terminal_summary(terminalreporter, config):
    """A table of the figures that pytest-benchmark's own has no columns for."""
    found = [
        {"name": bench.name, "microseconds": record.summary([1e6 * t for t in bench.stats.data], 1), **bench.extra_info}
        for bench in config._benchmarksession.benchmarks
        if bench.stats and bench.extra_info
    ]
    for row in found:
        figures = (f"{value:>9} {name}" for name, value in row.items() if name not in ("name", "microseconds"))
        terminalreporter.write_line(f"{row['name']:<88}{row['microseconds']['median']:>11.1f} us {' '.join(figures)}")
