"""bench/bits_device.py over the stub driver, which computes nothing: every check is made, what does not agree is said, and nothing
is imported that a machine with a GPU may lack.
"""

import json

import pytest
from stub import fake

CODE = """
import json, sys
sys.path.insert(0, "{bench}")
import bits_device
bits_device.dirty, bits_device.NAN = lambda: None, 0  # which nothing here would overwrite
if {other}:
    told = bits_device.told
    bits_device.told = lambda answers: told(answers)[:2] + ["00"]
row = bits_device.check({name!r}, "F16")
print(json.dumps([row, sorted({{"pytest", "numba", "xllamacpp", "hypothesis"}} & set(sys.modules))]))
"""


@pytest.mark.parametrize("name", ["llama", "olmoe", "qwen35", "deepseek2", "mamba2"])
@pytest.mark.parametrize("other", [False, True])
def test_every_check_is_made(library, name, other):
    done = fake.python(CODE.format(name=name, other=other, bench=fake.ROOT / "bench"), fake.environment(library))
    assert done.returncode == 0, done.stderr
    row, imported = json.loads(done.stdout)
    adapters = ["1 adapters", "2 adapters"]
    assert row["checked"] == 25 and not imported
    if other:
        assert len(row["wrong"]) == 13 and {"a used process", "behind longer", "behind adapters"} <= set(row["wrong"])
    else:
        assert row["wrong"] == adapters
