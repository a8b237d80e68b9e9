"""Whether 10,000 seeded draws of a backend follow the distribution that the settings describe.

    python bench/draws.py MODEL [--backend cuda]

Draws come from where a generation takes them: the backend's own runs (`Plan.follow`) where it has them, else `Plan.sample`. A row
per setting: the chi-square statistic, the value that it exceeds once in 100,000 times, draws that the filters exclude, and in how
many of 100 cases the token is that of reflex.sample.choose. Exit code 1 where a statistic is too large or a token is impossible.
"""

import argparse
import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reflex.open import open_model
from reflex.sample import Sampling, choose, uniform

DRAWS, JUDGED = 10_000, 100
PROMPT = "The capital of France is"
SETTINGS = {
    "plain": {"temperature": 1.0},
    "warm": {"temperature": 1.6},
    "top-k": {"temperature": 1.3, "top_k": 12},
    "top-p": {"temperature": 1.5, "top_p": 0.9},
    "min-p": {"temperature": 2.0, "min_p": 0.02},
    "everything": {"temperature": 1.2, "top_k": 40, "top_p": 0.95, "min_p": 0.005},
}


def shares(logits, sampling):
    """{id: probability} of a draw, by the definition of the filters."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))[: sampling.top_k or None]
    top = logits[order[0]]
    plain = [math.exp(logits[token] - top) for token in order]
    if sampling.top_p < 1:
        mass, goal, count = 0.0, sampling.top_p * math.fsum(plain), 0
        while count < len(plain) and (count == 0 or mass < goal):
            mass += plain[count]
            count += 1
        order, plain = order[:count], plain[:count]
    kept = [token for token, value in zip(order, plain, strict=True) if value >= sampling.min_p]
    weights = {token: math.exp((logits[token] - top) / sampling.temperature) for token in kept}
    total = math.fsum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def chi_square(counts, wanted, draws):
    """(statistic, its limit, cells); tokens expected less than 10 times share a cell."""
    statistic, rare_wanted, rare_found, cells = 0.0, 0.0, 0, 0
    for token, share in wanted.items():
        expected, found = share * draws, counts.get(token, 0)
        if expected < 10:
            rare_wanted, rare_found = rare_wanted + expected, rare_found + found
        else:
            statistic, cells = statistic + (found - expected) ** 2 / expected, cells + 1
    if rare_wanted:
        statistic, cells = statistic + (rare_found - rare_wanted) ** 2 / rare_wanted, cells + 1
    freedom = max(cells - 1, 1)
    limit = freedom * (1 - 2 / (9 * freedom) + 4.265 * math.sqrt(2 / (9 * freedom))) ** 3  # Wilson and Hilferty
    return statistic, limit, cells


def drawer(session, ids, sampling):
    """A function of the number of the draw: the token after `ids`."""
    plan = session.plan
    session.sync(ids)
    if not hasattr(plan, "follow"):
        settings = sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p
        return lambda count: plan.sample(0, *settings, uniform(sampling.seed, count))
    session.rewind(len(ids) - 1)
    return lambda count: next(session.follow(ids[-1], sampling, count, (), 1))[0]


def measure(session, settings, draws=DRAWS, judged=JUDGED):
    """One row of the report."""
    sampling = Sampling(seed=2026, **settings)
    ids = session.encode(PROMPT)
    session.sync(ids)
    logits = list(session.plan.logits(0))
    draw = drawer(session, ids, sampling)
    tokens = [draw(count) for count in range(draws)]
    wanted = shares(logits, sampling)
    counts = {token: tokens.count(token) for token in set(tokens)}
    statistic, limit, cells = chi_square(counts, wanted, draws)
    filters = sampling.top_k, sampling.top_p, sampling.min_p
    numbers = range(0, draws, max(1, draws // judged))
    same = sum(tokens[n] == choose(logits, sampling.temperature, *filters, uniform(sampling.seed, n)) for n in numbers)
    return {
        "chi_square": round(statistic, 2),
        "limit": round(limit, 2),
        "cells": cells,
        "impossible": sum(count for token, count in counts.items() if token not in wanted),
        "same_as_definition": same,
        "judged": len(numbers),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--draws", type=int, default=DRAWS)
    options = parser.parse_args()
    file, tokenizer, session = open_model(options.model, options.backend, 256)
    rows = {name: measure(session, settings, options.draws) for name, settings in SETTINGS.items()}
    print(json.dumps({"backend": session.backend, "draws": options.draws, "rows": rows}, indent=1))
    session.close()
    tokenizer.close()
    file.close()
    return int(any(row["chi_square"] > row["limit"] or row["impossible"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
