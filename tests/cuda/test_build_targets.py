"""What a build makes for the GPU of the machine it runs on, against a stub driver: its cubin, the PTX, or nothing."""

import json

import pytest
from stub import fake

CODE = """
import json
from reflex.backends import choice
choice.gpu_shown = lambda: {available}
import precompile
print(json.dumps(precompile.local_gpus()))
"""


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    path = fake.build(tmp_path_factory.mktemp("stub"))
    if path is None:
        pytest.skip("no C compiler for the stub driver")
    return path


@pytest.mark.parametrize(
    ("settings", "targets"),
    [
        ({}, ["sm_90"]),
        ({"CAPABILITY": "8.7"}, ["sm_80"]),
        ({"CAPABILITY": "7.5"}, ["sm_75"]),
        ({"CAPABILITY": "13.0"}, ["ptx"]),
        ({"CAPABILITY": "7.0"}, []),
        ({"DEVICES": 0}, []),
        ({"FAIL": "cuInit:999"}, []),
    ],
)
def test_targets_of_the_gpus_here(stub, settings, targets):
    done = fake.python(CODE.format(available=True), fake.environment(stub, **settings))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == targets


def test_a_machine_without_a_driver_builds_for_its_processor_only():
    done = fake.python(CODE.format(available=False), fake.environment("/nonexistent/libcuda.so.1"))
    assert json.loads(done.stdout) == []
