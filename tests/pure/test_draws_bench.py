"""bench/draws.py: it passes a right sampler, by either way to draw, and sees a wrong one."""

import sys
from pathlib import Path

import pytest
from fakes import FakePlan, FollowingPlan, session

from reflex.sample import choose

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench import draws


@pytest.mark.parametrize("plan", [FakePlan, FollowingPlan])
@pytest.mark.parametrize("name", draws.SETTINGS)
def test_a_right_sampler_passes(plan, name):
    row = draws.measure(session(plan=plan), draws.SETTINGS[name], 1200, 60)
    assert row["chi_square"] < row["limit"] and row["impossible"] == 0
    assert row["same_as_definition"] == row["judged"] == 60


class Warmer(FakePlan):
    def sample(self, row, temperature, top_k, top_p, min_p, random):
        return choose(self._rows[row], 1.5 * temperature, top_k, top_p, min_p, random)


class Unfiltered(FakePlan):
    def sample(self, row, temperature, top_k, top_p, min_p, random):
        return choose(self._rows[row], temperature, 0, 1.0, 0.0, random)


def test_a_wrong_temperature_is_seen():
    row = draws.measure(session(plan=Warmer), draws.SETTINGS["warm"], 1200, 60)
    assert row["chi_square"] > row["limit"] and row["same_as_definition"] < 60


def test_a_missing_filter_is_seen():
    assert draws.measure(session(plan=Unfiltered), draws.SETTINGS["top-p"], 1200, 60)["impossible"] > 0
