"""Every CUDA kernel in the lockstep emulator over the cases in cases/."""

import pytest
from run import emulate, modules

CASES = [case for module in modules() for case in module.cases() if case.emulate]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.kernel}-{c.label}")
def test_kernel(case):
    assert not list(case.check(emulate(case)))
