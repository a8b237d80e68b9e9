"""Named taps: what is read is what the model computes, on every backend that can be stopped, for every family."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from inside import FAMILIES, Inside
from tiny import MODELS, VOCABULARY, write

import reflex
from reflex import native
from reflex.errors import ContextOverflowError, InvalidInputError, StateError
from reflex.lab.taps import WALKED

IDS = np.random.default_rng(3).integers(3, VOCABULARY, 21).tolist()  # the windows of the tiny models are 16 tokens
CLOSE = {"reference": 2e-5, "cpu": 1e-4}  # largest difference / standard deviation, of F32 models
ONE_OF_EACH = ("llama-smollm", "gemma3", "qwen3moe", "command-r", "gpt-oss", "deci", "gpt2", "granite", "qwen35", "falcon-h1")


def close(a, b, limit):
    return np.abs(a - b).max() <= limit * max(np.std(b), 1e-6)


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Tiny models by name and backend, opened once."""
    paths, opened = {}, {}

    def get(name, backend="cpu", **options):
        if name not in paths:
            paths[name] = str(write(name, tmp_path_factory.mktemp("tiny") / f"{name}.gguf"))
        key = (name, backend, *options.items())
        if key not in opened:
            opened[key] = reflex.load(paths[name], backend=backend, threads=1, **options)
        return opened[key]

    yield get
    for model in opened.values():
        model.close()


# ---- against a forward pass of its own ------------------------------------------------------------------


@pytest.mark.parametrize("backend", WALKED)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_tap_equals_the_oracle(load, name, backend):
    model = load(name, backend)
    want = Inside(model.path).forward(IDS)
    names = model.taps().names
    assert set(names) == set(want), "every name that the oracle knows, and no other"
    found = model.trace(IDS, names)
    for tap in names:
        if tap.endswith(".router"):
            assert (found[tap]["expert"] == want[tap].expert).all()
            assert close(found[tap]["weight"], want[tap].weight, CLOSE[backend])
        else:
            assert found[tap].dtype == np.float32 and found[tap].shape == want[tap].shape
            assert close(found[tap], want[tap], CLOSE[backend]), tap


# ---- against itself, for every family -------------------------------------------------------------------


def by_hand(q, k, step, sinks):
    """The pattern of one head of one row, from the definition, in float64."""
    args = step.args
    rows = len(q)
    q = q.reshape(rows, args["heads"], args["key_dim"]).astype(float)
    k = k.reshape(rows, args["kv_heads"], args["key_dim"]).astype(float)
    found = np.zeros((args["heads"], rows, rows))
    for head in range(args["heads"]):
        for row in range(rows):
            seen = range(max(0, row - args["window"] + 1) if args["window"] else 0, row + 1)
            score = [sum(q[row, head] * k[s, head * args["kv_heads"] // args["heads"]]) * args["scale"] for s in seen]
            if args["softcap"]:
                score = [args["softcap"] * np.tanh(s / args["softcap"]) for s in score]
            power = np.exp(np.array(score) - max(score))
            extra = 0 if sinks is None else np.exp(sinks[head] - max(score))
            found[head, row, seen] = power / (power.sum() + extra)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_taps_fit_together(load, name):
    with reflex.load(load(name).path, backend="cpu", threads=2) as model:
        program = model._session.plan.program
        found = model.trace(IDS, "*")
        assert np.array_equal(found["logits"], model.logits(IDS, every=True)), "to the bit"
        scale = np.float32(next(s.args["scale"] for s in reversed(program.steps) if s.op == "add" and s.out == "x"))
        stream, layer = found["embedding"], 0
        for layer in range(len(program.layers) - 1):
            own = {n.split(".", 2)[2]: found[n] for n in found if n.startswith(f"layers.{layer}.")}
            assert np.array_equal(own["residual_in"], stream)
            stream = own["residual_in"] + scale * own.get("attention_out", np.float32(0))
            steps = program.steps[program.layers[layer] : program.layers[layer + 1]]
            stream += scale * own.get("feed_forward", np.float32(0)) + own.get("layer_input", np.float32(0))
            factor = next((model._session.plan.file.tensors[s.weights[0]] for s in steps if s.op == "weigh" and s.out == "x"), None)
            stream *= np.frombuffer(native.view(factor.address, 1, "f"), "f4") if factor else np.float32(1)
            if not any(step.op == "streams_correct" for step in steps):
                assert close(own["residual_out"], stream, 1e-6)
            stream = own["residual_out"]
            assert ("attention" in own) == ("heads" in own)
        for number, step in enumerate(program.steps):
            if step.op == "attention":
                compare_attention(model, found, number, step)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "F16"])
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_quantized_models_compute_the_same_bits(tmp_path, name, kind):
    """Where inputs are quantized for a kernel, several operations share the copy, but not in a walk."""
    with reflex.load(write(name, tmp_path / "m.gguf", kind), backend="cpu", threads=2) as model:
        whole = model.trace(IDS, "*")
        assert np.array_equal(whole["logits"], model.logits(IDS, every=True))
        assert model.patch(IDS, {tap: whole[tap] for tap in whole}, taps="*") == whole
        with model.patched({"layers.*.residual_out": lambda stream: stream, "layers.*.heads": lambda heads: heads}):
            assert np.array_equal(model.logits(IDS, every=True), whole["logits"])


def compare_attention(model, found, number, step):
    """Rows of the pattern sum to 1, follow from q and k, and give the heads with v; q, k and v are steps before."""
    sinks = model._looking(None).walk.sinks(step)
    steps = model._session.plan.program.steps
    owner = next(n for n, s in enumerate(steps) if s.op == "attention" and s.args["layer"] == step.args["layer"])  # of the cache
    places = [(number, step.ins[0]), *((owner, buffer) for buffer in steps[owner].ins[1:])]
    q, k, v = (next(found[f"steps.{n}.{b}"] for n in range(at, -1, -1) if f"steps.{n}.{b}" in found) for at, b in places)
    layer = next(p.name for p in model._looking(None).known.values() if p.kind == "attention" and p.at == number + 1)
    pattern, heads = found[layer], found[layer.replace("attention", "heads")]
    assert np.abs(pattern.sum(-1) - 1).max() < 1e-5
    assert pattern.shape[2] == len(IDS) + (sinks is not None), "the last column of a model with sinks is the sink"
    assert np.abs(pattern[:, :, : len(IDS)] - by_hand(q, k, step, sinks)).max() < 1e-5
    v = v.reshape(len(v), step.args["kv_heads"], -1)
    made = [p[:, : len(IDS)] @ v[:, i * v.shape[1] // len(pattern)] for i, p in enumerate(pattern)]
    assert close(heads, np.stack(made, 1), 1e-5)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_backends_have_the_same_taps(load, name):
    cpu, reference = load(name), load(name, "reference")
    assert cpu.taps("*").names == reference.taps("*").names
    one, other = cpu.trace(IDS, "*"), reference.trace(IDS, "*")
    for tap in one:
        if one[tap].dtype.names:
            assert (one[tap]["expert"] == other[tap]["expert"]).all()
        else:
            assert close(one[tap], other[tap], 1e-4), tap
    beside = cpu.trace(IDS, "layers.*", backend="reference")
    assert beside.backend == "reference" and all(np.array_equal(beside[tap], other[tap]) for tap in beside)


# ---- what is kept ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", WALKED)
def test_only_the_rows_asked_for(load, backend):
    model = load("gemma3", backend)
    names = ("layers.2.*", "final_norm", "logits")
    whole = model.trace(IDS, names)
    for rows, kept in ((-1, [20]), ([4, 2], [2, 4]), (slice(-3, None), [18, 19, 20]), (slice(0, 0), [])):
        part = model.trace(IDS, names, rows=rows)
        assert part.rows == tuple(kept)
        for tap in part:
            want = whole[tap][:, kept] if tap.endswith("attention") else whole[tap][kept]
            assert np.array_equal(part[tap], want), tap
    for rows in (99, "a", 1.5, [0, 99]):
        with pytest.raises(InvalidInputError, match="no such rows"):
            model.trace(IDS, rows=rows)


@pytest.mark.parametrize("backend", WALKED)
def test_texts_longer_than_a_batch(load, backend):
    model = load("llama-smollm", backend)
    ids = np.random.default_rng(4).integers(3, VOCABULARY, 600).tolist()
    found = model.trace(ids, ("layers.1.*", "logits"), rows=[5, 511, 512, 599])
    assert np.array_equal(found["logits"], model.logits(ids, every=True)[[5, 511, 512, 599]])
    assert np.abs(found["layers.1.attention"].sum(-1) - 1).max() < 1e-5
    assert found["layers.1.attention"].shape == (4, 4, 600) and (found["layers.1.attention"][:, 1, 512:] == 0).all()
    few = model.trace(ids[:600], "layers.1.residual_out", rows=[5])
    assert np.array_equal(few["layers.1.residual_out"][0], found["layers.1.residual_out"][0])


@pytest.mark.parametrize("backend", WALKED)
def test_logits_come_in_parts_where_they_are_many(load, backend, monkeypatch):
    model = load("gpt2", backend)
    want = model.trace(IDS, "logits")["logits"]
    monkeypatch.setattr(model._looking(None).walk, "most_logits", 4)
    assert np.array_equal(model.trace(IDS, "logits")["logits"], want)


def test_tracing_leaves_the_timelines_as_they_were(load):
    model = load("qwen3")
    timeline = model.session(IDS)
    before, text = timeline.logits(), timeline.generate(max_tokens=5).text
    timeline.rewind(len(IDS))
    model.trace(IDS[::-1])
    assert np.array_equal(timeline.logits(), before) and timeline.fork().generate(max_tokens=5).text == text


def test_nothing_behind_the_last_tap_is_computed(load, monkeypatch):
    model = load("llama-smollm", "reference")
    ran = []
    inner = model._looking(None).walk.run
    monkeypatch.setattr(model._looking(None).walk, "run", lambda first, last: (ran.append(last), inner(first, last)))
    model.trace(IDS, "layers.0.residual_out")
    assert max(ran) == model._session.plan.program.layers[1]


# ---- names ----------------------------------------------------------------------------------------------


def test_lists_say_shapes_and_backends(load):
    taps = load("gpt-oss").taps()
    assert len(taps) == len(taps.names) and taps.names[0] == "embedding" and taps.names[-2:] == ["final_norm", "logits"]
    rows = {row["name"]: row for row in taps.table()}
    assert rows["layers.0.attention"]["shape"] == [4, "rows", "columns + 1"]
    for tap in ("attention", "attention_out", "router"):
        assert rows[f"layers.0.{tap}"]["backends"] == ["reference", "cpu"]
    for tap in ("embedding", "layers.0.residual_in", "layers.0.heads", "layers.0.residual_out", "final_norm", "logits"):
        assert rows[tap]["backends"] == ["reference", "cpu", "cuda"]
    assert "layers.0.router" in repr(taps) and "each row sums to 1" in taps._repr_html_()
    assert [tap.name for tap in load("gpt-oss").taps("layers.*.router")] == [f"layers.{i}.router" for i in range(4)]
    without = load("deci").taps("layers.1.*").names
    assert "layers.1.attention" not in without and "layers.1.feed_forward" in without


def test_by_default_the_hidden_states(load):
    found = load("llama-smollm").trace(IDS)
    assert list(found) == ["embedding", *(f"layers.{i}.residual_out" for i in range(3)), "final_norm"]
    assert found.stack("residual_out").shape == (3, len(IDS), 64)
    with pytest.raises(InvalidInputError, match="was not traced"):
        found["layers.0.heads"]
    with pytest.raises(InvalidInputError, match="was not traced"):
        found.stack("heads")


@pytest.mark.parametrize("wrong", ["layers.9.heads", "heads", "", 7, ["embedding", "layer.*"]])
def test_unknown_names_are_refused_with_those_that_exist(load, wrong):
    for ask in (load("llama-smollm").trace, load("llama-smollm", "reference").trace):
        with pytest.raises(InvalidInputError, match=r"no such tap.*layers\.0-2\.heads.*steps\.0-") as refused:
            ask(IDS, wrong)
        assert "\n" not in str(refused.value)


def test_another_backend_computes_beside(load):
    with reflex.load(load("qwen3").path, backend="reference", threads=1) as model:
        assert np.array_equal(model.trace(IDS, "embedding", backend="cpu")["embedding"], load("qwen3").trace(IDS)["embedding"])
        with pytest.raises(InvalidInputError, match="compute beside"):
            model.trace(IDS, backend="gpu")


def test_closed_models_and_long_texts_are_refused(load):
    with reflex.load(load("qwen3").path, backend="cpu", context=16, threads=1) as model:
        for ask in (model.trace, model.lens, lambda ids: model.patch(ids, {})):
            with pytest.raises(ContextOverflowError, match="at most 16 tokens"):
                ask(IDS)
        model.trace(IDS[:4], backend="reference")
    for ask in (model.trace, model.lens, lambda ids: model.patch(ids, {}), lambda ids: model.taps()):
        with pytest.raises(StateError, match="closed"):
            ask(IDS)


# ---- records and imports --------------------------------------------------------------------------------


def test_traces_are_records(load):
    found = load("qwen3moe").trace(IDS, ("embedding", "layers.1.router"))
    assert found == load("qwen3moe").trace(IDS, ("embedding", "layers.1.router")) != load("qwen3moe").trace(IDS)
    assert found.to_dict()["taps"]["embedding"] == found["embedding"].tolist()
    assert [row["tap"] for row in found.table()] == ["embedding", "layers.1.router"] and "embedding" in found._repr_html_()
    assert found.table()[0]["std"] == pytest.approx(found["embedding"].std())
    with pytest.raises(ValueError, match="read-only"):
        found["embedding"][0] = 1
    with pytest.raises(AttributeError):
        found.rows = ()
    assert "embedding" in found and len(found) == 2 and "cpu" in repr(found)


def run_python(code):
    start = f"import sys; sys.path[:0] = {[str(Path(reflex.__file__).parents[1])]!r}\n"
    return subprocess.run([sys.executable, "-IS", "-c", start + code], capture_output=True, text=True)


def test_the_lab_is_imported_only_by_what_needs_it(load):
    code = f"import reflex\nwith reflex.load({load('qwen3').path!r}, backend='cpu') as m:\n    m.system1('a', ['b', 'c'])\n"
    done = run_python(code + "print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    assert not [name for name in done.stdout.split() if name.startswith(("reflex.lab", "numpy", "pandas", "tqdm"))]


def test_importing_takes_under_five_milliseconds():
    code = "from time import process_time_ns as now\nfirst = now()\nimport reflex\nprint(now() - first)"
    assert min(int(run_python(code).stdout) for _ in range(5)) < 5e6


def test_pandas_is_asked_for_by_name_where_it_is_missing(load, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidInputError, match=r"needs pandas.*reflex-gguf\[lab\]"):
        load("qwen3").taps().to_pandas()
