"""State files: what comes back is, bit for bit, what was computed; what is damaged or of something else is refused."""

import errno
import os

import numpy as np
import pytest
from tiny import write

import reflex
from reflex import native
from reflex.errors import ContextOverflowError, InputOutputError, InvalidInputError, StateError
from reflex.state import KINDS, export_state, identity, import_state, layout

FAMILIES = ["llama-smollm", "gemma2", "gpt2", "falcon", "olmoe", "phi3-long", "deci", "deepseek2", "mistral4"]
FAMILIES += ["qwen35", "falcon-h1", "kimi-linear", "mamba2", "lfm2", "gemma4", "gemma3n", "llama4"]
LENGTHS = [1, 31, 256, 300]  # less than a block of keys, a whole block of the file, more than one
RANDOM = np.random.default_rng(11)
IDS = RANDOM.integers(3, 500, 400).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name in FAMILIES:
        write(name, folder / f"{name}.gguf")
    return folder


@pytest.fixture(params=["cpu", "reference"])
def backend(request):
    return request.param


@pytest.fixture
def small(folder, tmp_path):
    """(path of a model, path of a state of 40 of its tokens)."""
    model, path = folder / "llama-smollm.gguf", tmp_path / "state"
    with reflex.load(model, backend="cpu", threads=1) as m:
        m.session(IDS[:40]).export_state(path)
    return model, path


def computed(model):
    """The sizes of the batches that a model computes from now on, a list that grows."""
    sizes, evaluate = [], model._session.plan.evaluate

    def counted(ids, *rest):
        sizes.append(len(ids))
        return evaluate(ids, *rest)

    model._session.plan.evaluate = counted
    return sizes


@pytest.mark.parametrize("name", FAMILIES)
def test_what_comes_back_is_what_was_computed(folder, tmp_path, backend, name):
    path, again = tmp_path / "state", tmp_path / "again"
    with reflex.load(folder / f"{name}.gguf", backend=backend, threads=2) as m:
        expected = {count: m.logits(IDS[:count]) for count in LENGTHS}
        words = m.session(IDS[:300]).system1(["one", "two three"])
        for count in LENGTHS:
            m.session(IDS[:count]).export_state(path)
            with reflex.load(folder / f"{name}.gguf", backend=backend, threads=2) as n:
                sizes = computed(n)
                timeline = n.import_state(path)
                assert timeline.ids == IDS[:count]
                timeline.export_state(again)  # before anything is computed
                assert not sizes and again.read_bytes() == path.read_bytes()
                assert np.array_equal(timeline.logits(), expected[count]) and sizes == [1]
                if count == 300:
                    assert timeline.system1(["one", "two three"]) == words and sum(sizes) <= 20


@pytest.mark.parametrize("common", [0, 1, 40, 255, 256, 257, 299])
def test_a_prompt_may_share_only_a_beginning(folder, tmp_path, backend, common):
    path, ids = tmp_path / "state", [*IDS[:common], 501, 502, 503]
    with reflex.load(folder / "llama-smollm.gguf", backend=backend) as m:
        m.session(IDS[:300]).export_state(path)
        expected = m.logits(ids)
    with reflex.load(folder / "llama-smollm.gguf", backend=backend, context=320) as m:
        found = import_state(m._session, str(path), ids)
        sizes = computed(m)
        assert (found.tokens, found.reused) == (300, common) and bool(found.notes) == (common == 0)
        assert np.array_equal(m.logits(ids), expected) and sum(sizes) == 3


@pytest.mark.parametrize("common, reused", [(0, 0), (256, 0), (298, 0), (299, 299), (300, 300)])
def test_a_state_of_recurrent_layers_cannot_be_cut(folder, tmp_path, backend, common, reused):
    """But for the last token, which is computed again."""
    path, ids = tmp_path / "state", [*IDS[:common], 501, 502, 503]
    with reflex.load(folder / "qwen35.gguf", backend=backend) as m:
        m.session(IDS[:300]).export_state(path)
        expected = m.logits(ids)
    with reflex.load(folder / "qwen35.gguf", backend=backend, context=320) as m:
        found = import_state(m._session, str(path), ids)
        sizes = computed(m)
        assert (found.tokens, found.reused) == (300, reused) and bool(found.notes) == (reused == 0)
        assert np.array_equal(m.logits(ids), expected) and sum(sizes) == len(ids) - (reused and 299)


@pytest.mark.parametrize("count", [1, 2, 512, 513, 514])
def test_states_at_the_ends_of_batches(folder, tmp_path, backend, count):
    path, ids = tmp_path / "state", (IDS + IDS)[:count]
    with reflex.load(folder / "qwen35.gguf", backend=backend) as m:
        m.session(ids).export_state(path)
        expected = m.logits(ids)
    with reflex.load(folder / "qwen35.gguf", backend=backend) as m:
        timeline = m.import_state(path)
        sizes = computed(m)
        assert np.array_equal(timeline.logits(), expected) and sizes == [1]


def test_a_context_shorter_than_the_state(folder, tmp_path):
    path = tmp_path / "state"
    with reflex.load(folder / "llama-smollm.gguf", backend="cpu") as m:
        m.session(IDS[:300]).export_state(path)
        expected = m.logits([*IDS[:30], 5])
    with reflex.load(folder / "llama-smollm.gguf", backend="cpu", context=40) as m:
        with pytest.raises(ContextOverflowError, match="300 tokens"):
            m.import_state(path)
        assert import_state(m._session, str(path), [*IDS[:30], 5]).reused == 30
        assert np.array_equal(m.logits([*IDS[:30], 5]), expected)


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_backends_read_each_other(folder, tmp_path, backend, kind):
    path, other = tmp_path / "state", {"cpu": "reference", "reference": "cpu"}[backend]
    with reflex.load(folder / "gemma2.gguf", backend=backend) as m:
        m.session(IDS[:270]).export_state(path, kind)
        expected = m.logits(IDS[:271])
    with reflex.load(folder / "gemma2.gguf", backend=other) as m:
        found = import_state(m._session, str(path), IDS[:271])
        assert len(found.notes) == (2 if kind == "f16" else 1) and backend in found.notes[0]
        difference = np.abs(m.logits(IDS[:271]) - expected).max() / expected.std()
        assert difference < (3e-2 if kind == "f16" else 1e-4)
    size = os.path.getsize(path)
    layers = 270 * sum(heads * (keys + values) for heads, keys, values in m_caches(folder))
    assert layers * KIND_BYTES[kind] < size < layers * KIND_BYTES[kind] + 6 * layout.PAGE


KIND_BYTES = {None: 4, "f32": 4, "f16": 2}


def m_caches(folder):
    with reflex.load(folder / "gemma2.gguf", backend="cpu") as m:
        return list(m._session.plan.program.caches)


# ---- damage ----


def refused(model, path):
    try:
        import_state(model._session, str(path))
    except StateError:
        return True
    return False


# bytes flipped and cuts made: of keys and values, of latent rows, of states of two kinds, of caches of two sizes that layers share
DAMAGES = {"llama-smollm": (9000, 1000), "deepseek2": (2500, 250), "qwen35": (2500, 250), "falcon-h1": (2500, 250)}
DAMAGES |= {"gemma4": (2500, 250)}


@pytest.mark.parametrize("name", DAMAGES)
def test_every_flipped_byte_and_every_cut_is_refused(folder, tmp_path, name):
    """On the bytes themselves, as `import_state` looks at them, and some through the file."""
    model, path, (flips, cuts) = folder / f"{name}.gguf", tmp_path / "state", DAMAGES[name]
    with reflex.load(model, backend="cpu", threads=1) as m:
        m.session(IDS[:40]).export_state(path)
    data = path.read_bytes()
    with reflex.load(model, backend="cpu", threads=1) as m:
        plan = m._session.plan
        store, library = plan.store(), native.library()
        prints = identity.of(plan.file, plan.program, store)
        room = native.alloc(len(data))
        whole = native.view(room.address, len(data))

        def accepted(size):
            found = layout.Found(str(path), native.Mapping(room.address, size), size, ())
            try:
                found.read()
                shape = layout.Shape(store, found.tokens, found.half)
                found.check(shape, prints)
                for number in range(len(shape.sizes)):
                    found.verify(library, shape, number)
            except StateError:
                return False
            return True

        whole[:] = data
        assert accepted(len(data))
        for _ in range(flips):
            at, bits = int(RANDOM.integers(len(data))), int(RANDOM.integers(1, 256))
            whole[at] ^= bits
            assert not accepted(len(data)), at
            whole[at] ^= bits
        for size in RANDOM.integers(layout.PAGE, len(data), cuts).tolist():
            assert not accepted(size), size
        room.free()
        before = m.logits(IDS[:50])
        for cut in (*RANDOM.integers(0, len(data), 20).tolist(), 0, 7, layout.PAGE, len(data) - 1):
            (tmp_path / "damaged").write_bytes(data[:cut])
            assert refused(m, tmp_path / "damaged")
        (tmp_path / "damaged").write_bytes(data + b"\0")
        assert refused(m, tmp_path / "damaged")
        assert np.array_equal(m.logits(IDS[:50]), before)  # nothing of them was used
        assert not refused(m, path)


@pytest.mark.parametrize("threads", [1, 2])
def test_damage_in_any_block_is_found_by_any_thread(folder, tmp_path, monkeypatch, threads):
    monkeypatch.setattr("reflex.threads.sched_getaffinity", lambda process: range(threads))
    path = tmp_path / "state"
    with reflex.load(folder / "llama-smollm.gguf", backend="cpu") as m:
        m.session(IDS * 2).export_state(path)
        data = bytearray(path.read_bytes())
        for at in (len(data) // 4, len(data) // 2, len(data) * 3 // 4):
            data[at] ^= 1
            path.write_bytes(data)
            with pytest.raises(StateError, match="damaged; expected digest"):
                m.import_state(path)
            data[at] ^= 1
        path.write_bytes(data)
        assert len(m.import_state(path)) == 800


@pytest.mark.parametrize("common", [0, 1, 256, 257, 800])
def test_damage_of_what_a_prompt_does_not_share_is_found(folder, tmp_path, backend, common):
    path, ids = tmp_path / "state", IDS * 2
    with reflex.load(folder / "llama-smollm.gguf", backend=backend) as m:
        m.session(ids).export_state(path)
        with layout.open_state(str(path)) as found:
            at = found.offset(layout.Shape(m._session.plan.store(), found.tokens, found.half), 3)
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        (tmp_path / "damaged").write_bytes(data)
        prompt = [*ids[:common], 501, 502]
        expected = m.logits(prompt)
    with reflex.load(folder / "llama-smollm.gguf", backend=backend) as m:
        with pytest.raises(StateError, match="damaged; expected digest"):
            import_state(m._session, str(tmp_path / "damaged"), prompt)
        assert np.array_equal(m.logits(prompt), expected)
        assert import_state(m._session, str(path), prompt).reused == common


def test_another_version_is_refused(small, tmp_path):
    model, path = small
    data = bytearray(path.read_bytes())
    data[8:16] = (1).to_bytes(8, "little")
    (tmp_path / "old").write_bytes(data)
    with reflex.load(model, backend="cpu") as m, pytest.raises(StateError, match="another version; expected 2; found 1"):
        m.import_state(tmp_path / "old")


def test_flips_of_two_bits_are_seen():
    """Of a block of several stripes: each pair of neighbouring words, and of words that share a lane."""
    library, size = native.library(), 1000
    block = (native.UInt8 * size).from_buffer_copy(RANDOM.bytes(size))
    at, seen = native.address_of(block), set()
    for distance in (0, 8, 128):
        for _ in range(4000):
            byte, one, two = int(RANDOM.integers(size - distance)), 1 << int(RANDOM.integers(8)), 1 << int(RANDOM.integers(8))
            block[byte] ^= one
            block[byte + distance] ^= two
            if distance or one != two:
                seen.add((bytes(block), library.digest(at, size, 7)))
            block[byte] ^= one
            block[byte + distance] ^= two
    assert len({found for _, found in seen}) == len({data for data, _ in seen})
    assert library.digest(at, size, 7) not in {found for _, found in seen}
    assert library.digest(at, size, 7) != library.digest(at, size, 8) != library.digest(at, size - 1, 8)


# ---- other models ----


def other_models(folder, tmp_path):
    """(what is another, path of a model)."""
    source = folder / "llama-smollm.gguf"
    yield "another model", write("llama-smollm", tmp_path / "seed.gguf", seed=5)
    yield "another model", write("llama-smollm", tmp_path / "type.gguf", kind="Q8_0")
    yield "another model", folder / "gemma2.gguf"
    for key, what in (("tokenizer.ggml.eos_token_id", "another tokenizer"), ("llama.context_length", "another model")):
        data = bytearray(source.read_bytes())
        at = data.index(key.encode()) + len(key) + 4  # behind the type
        data[at : at + 4] = (3 if "eos" in key else 1000).to_bytes(4, "little")
        path = tmp_path / f"{key}.gguf"
        path.write_bytes(data)
        yield what, path


def test_a_state_of_another_model_is_refused(folder, tmp_path, small):
    for what, model in other_models(folder, tmp_path):
        with reflex.load(model, backend="cpu") as m, pytest.raises(StateError, match=f"the state belongs to {what}"):
            m.import_state(small[1])
    other = pytest.raises(StateError, match="another model")
    with reflex.load(small[0], backend="cpu") as m, m.with_types({"attn_q": "Q8_0"}) as changed, other:
        changed.import_state(small[1])


def test_a_rotation_that_depends_on_the_context(folder, tmp_path):
    """phi3's long factors are used where the context is longer than 64 tokens."""
    path = tmp_path / "state"
    with reflex.load(folder / "phi3-long.gguf", backend="cpu", context=60) as m:
        m.session(IDS[:20]).export_state(path)
        assert len(m.import_state(path)) == 20
    with reflex.load(folder / "phi3-long.gguf", backend="cpu") as m, pytest.raises(StateError, match="another form of the cache"):
        m.import_state(path)


def test_the_fingerprint_covers_what_it_says(folder, tmp_path):
    """A byte at the first, middle or last piece of any tensor, and any byte of metadata and table."""
    source = (folder / "llama-smollm.gguf").read_bytes()
    changed = tmp_path / "changed.gguf"
    with reflex.load(folder / "llama-smollm.gguf", backend="cpu") as m:
        expected = identity.model(m.file)
        base = m.file.shards[0].mapping.address
        tensors = [(t.address - base, t.nbytes) for t in list(m.file.tensors.values())[::7]]
    for at, nbytes in tensors:
        for place in (at, at + nbytes // 2, at + nbytes - 1):
            data = bytearray(source)
            data[place] ^= 1
            changed.write_bytes(data)
            file = reflex.gguf.reader.open_model(str(changed))
            assert identity.model(file) != expected
            file.close()


# ---- files ----


@pytest.mark.parametrize("what", ["missing", "folder", "pipe", "nul"])
def test_what_is_no_file(small, tmp_path, what):
    path = {"missing": tmp_path / "none", "folder": tmp_path, "pipe": tmp_path / "pipe", "nul": "a\0b"}[what]
    if what == "pipe":
        os.mkfifo(path)
    with reflex.load(small[0], backend="cpu") as m, pytest.raises(InputOutputError):
        m.import_state(path)


def test_an_export_is_whole_or_not_there(small, tmp_path):
    with reflex.load(small[0], backend="cpu") as m:
        timeline = m.session(IDS[:40])
        with pytest.raises(InputOutputError, match="cannot write the state"):
            timeline.export_state(tmp_path / "none" / "state")
        with pytest.raises(InvalidInputError, match="f32 or f16"):
            timeline.export_state(tmp_path / "kind", "q8_0")
        kept = small[1].read_bytes()
        m._session.plan.store = lambda: Breaking(type(m._session.plan).store(m._session.plan))
        with pytest.raises(OSError, match="broken"):
            export_state(m._session, IDS[:40], str(small[1]))
    assert small[1].read_bytes() == kept and sorted(p.name for p in tmp_path.iterdir()) == ["state"]


def test_a_full_disk_while_threads_write(small, tmp_path, monkeypatch):
    """One error, nothing left, and the next export works."""
    from reflex import output_file

    monkeypatch.setattr("reflex.threads.sched_getaffinity", lambda process: range(3))
    pwrite, calls = os.pwrite, []

    def fails(descriptor, data, place):
        calls.append(place)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data[:1000], place)  # and some writes are short

    with reflex.load(small[0], backend="cpu") as m:
        timeline = m.session(IDS * 2)
        timeline.export_state(tmp_path / "whole")
        monkeypatch.setattr(output_file.os, "pwrite", fails)
        with pytest.raises(InputOutputError, match="cannot write the state; found No space left"):
            timeline.export_state(tmp_path / "again")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["state", "whole"]
        timeline.export_state(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "whole").read_bytes()


class Breaking:
    def __init__(self, store):
        self.sections, self.fixed, self.half, self.origin = store.sections, store.fixed, store.half, store.origin
        self.parallel, self.fetches = True, False

    def read(self, *_):
        raise OSError("broken")
