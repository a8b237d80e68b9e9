"""What `inspect` says the cpu backend takes is what a model has asked for once it has answered, whatever its family."""

import pytest
import tiny

import reflex
from reflex import arch, native
from reflex.fits import on_cpu

OTHERS = 1 << 17  # bytes beside the plan's memory, fewer than any buffer of activations: the header, the vocabulary, the team


@pytest.mark.parametrize(("name", "kind"), [*((name, "F32") for name in arch.families()), ("llama", "Q8_0"), ("olmoe", "Q8_0")])
def test_every_buffer_is_in_the_estimate(tmp_path, monkeypatch, name, kind):
    asked, alloc = {}, native.alloc

    def counted(size, what="buffer"):
        asked[what] = asked.get(what, 0) + size
        return alloc(size, what)

    monkeypatch.setattr(native, "alloc", counted)
    with reflex.load(str(tiny.write(name, tmp_path / "m.gguf", kind)), backend="cpu") as model:
        model.system1("the quick brown fox", [" jumps", " sleeps"])
        model.generate("the quick", max_tokens=2, temperature=1.0, seed=1)
        places = model._session.plan.memory.places
        taken = sum(size for what, size in asked.items() if what in places)
        others = sum(asked.values()) - taken
        found = on_cpu(model.file, model._session.plan.program, 1)
        assert found["fixed_bytes"] + model.context * found["bytes_per_token"] == taken
        assert others < OTHERS
