"""Adapters: logits are those of a model with the products merged into float weights, and those of llama.cpp; what does not fit is
named, all of it.
"""

import json

import adapters
import numpy as np
import process
import pytest
from rewrite import rewrite
from tiny import write

import reflex
from reflex.client import Client
from reflex.errors import AdapterError, InvalidInputError, ModelFileError, StateError, UnsupportedError

CLOSE = 2e-5  # standard deviations of the logits: float32 sums in another order
IDS = np.random.default_rng(3).integers(3, 500, 40).tolist()
FAMILIES = ["llama-untied", "llama-smollm", "llama-fused", "qwen2-fused-bias", "gemma2", "olmoe", "ernie4_5-moe", "gpt-oss"]
FAMILIES += ["deepseek2", "deepseek2-joined", "qwen35moe", "granitehybrid", "kimi-linear", "lfm2"]
OTHERS = "position_embd", "conv", "ssm_norm"
KINDS = ["F16", "BF16", "Q8_0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(params=["cpu", "reference"])
def backend(request):
    return request.param


def model(folder, name, **changes):
    path = folder / f"{name}{''.join(map(str, changes.values()))}.gguf"
    return path if path.exists() else write(name, path, **changes)


def adapted(names):
    """Those that a program multiplies by: no biases of experts, no tables of positions, norms of groups or convolutions."""
    return [name for name in names if name.endswith(".weight") and not any(part in name for part in OTHERS)]


def logits(path, backend="cpu", **options):
    with reflex.load(path, backend=backend, threads=2, **options) as m:
        return m.logits(IDS, every=True)


def off(found, wanted):
    return np.abs(found - wanted).max() / wanted.std()


@pytest.mark.parametrize("name", FAMILIES)
def test_two_adapters_are_merged_weights(folder, tmp_path, backend, name):
    path = model(folder, name)
    names = adapted(adapters.matrices(path))
    first = adapters.write(tmp_path / "a", path, names, rank=8, seed=1)
    second = adapters.write(tmp_path / "b", path, names[::2], rank=48, seed=2, alpha=24.0)
    rewrite(path, tmp_path / "merged", adapters.merging((first, 2.0 * 0.5), (second, 0.5 * -0.3)))
    wanted = logits(tmp_path / "merged", backend)
    found = logits(path, backend, lora=[(tmp_path / "a", 0.5), f"{tmp_path / 'b'}=-0.3"])
    assert off(found, wanted) < CLOSE and off(logits(path, backend), wanted) > 0.1


def tensor_kinds(folder):
    """(family, name of a tensor) of every kind of matrix in the families above."""
    seen = set()
    for family in FAMILIES:
        for name in adapted(adapters.matrices(model(folder, family))):
            role = name.split(".")[-2]
            if role not in seen:
                seen.add(role)
                yield family, name


def test_every_kind_of_matrix_alone(folder, tmp_path):
    wrong, count = [], 0
    for family, name in tensor_kinds(folder):
        path = model(folder, family)
        pairs = adapters.write(tmp_path / "a", path, [name], rank=5, seed=9)
        rewrite(path, tmp_path / "merged", adapters.merging((pairs, 16.0 / 5)))
        wanted = logits(tmp_path / "merged")
        if off(logits(path, lora=tmp_path / "a"), wanted) > CLOSE or off(logits(path), wanted) < 1e-3:
            wrong.append((family, name))
        count += 1
    assert not wrong and count >= 30


@pytest.mark.parametrize("kind", KINDS)
def test_adapters_in_other_formats(folder, tmp_path, backend, kind):
    path = model(folder, "olmoe")
    names = adapted(adapters.matrices(path))
    pairs = adapters.write(tmp_path / "a", path, names, rank=32, kind=kind)
    rewrite(path, tmp_path / "merged", adapters.merging((pairs, 0.5)))
    rounding = 0.1 if kind == "Q8_0" and backend == "cpu" else CLOSE  # of activations, for integer products
    assert off(logits(path, backend, lora=tmp_path / "a"), logits(tmp_path / "merged", backend)) < rounding


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_beside_quantized_weights_that_stay_as_they_are(folder, tmp_path, backend, kind):
    """What an adapter adds to logits of quantized weights is what it adds in the merged model of the same weights' values."""
    path = model(folder, "llama-untied", kind=kind)
    names = adapted(adapters.matrices(path))
    pairs = adapters.write(tmp_path / "a", path, names, rank=8)
    rewrite(path, tmp_path / "merged", adapters.merging((pairs, 2.0)))
    with reflex.load(path, backend=backend, lora=tmp_path / "a") as m:
        found = m.logits(IDS, every=True)
        held = sum(tensor.nbytes for tensor in m.file.tensors.values())
        own = sum(tensor.nbytes for tensor in m.file.base.values())
        table = {n: t.nbytes for n, t in m.file.tensors.items() if n.endswith("turned")}
    size = sum(a.nbytes + b.nbytes for a, b in pairs.values())
    assert held == own + size + sum(table.values()) and len(table) == 1 and sum(table.values()) < size / 10
    wanted = logits(tmp_path / "merged", "reference")
    rounding = 3 * off(logits(path, backend), logits(path, "reference"))  # of activations
    assert off(found, wanted) < max(rounding, CLOSE) and off(wanted, logits(path, "reference")) > 1


@pytest.mark.parametrize("name", ["llama-untied", "olmoe"])
def test_as_llama_cpp_applies_them(folder, tmp_path, name):
    from llama import Llama

    path = model(folder, name)
    names = adapted(adapters.matrices(path))
    adapters.write(tmp_path / "a", path, names, rank=8, seed=1)
    adapters.write(tmp_path / "b", path, names[::3], rank=16, seed=2)
    other = Llama(path)
    other.adapt((tmp_path / "a", 0.7), (tmp_path / "b", -0.4))
    wanted = other.logits(IDS)
    other.close()
    assert off(logits(path, lora=[(tmp_path / "a", 0.7), (tmp_path / "b", -0.4)]), wanted) < 1e-3


def test_a_zero_alpha_means_no_division_by_the_rank(folder, tmp_path):
    path = model(folder, "llama-untied")
    pairs = adapters.write(tmp_path / "a", path, ["blk.0.attn_q.weight"], alpha=0.0)
    rewrite(path, tmp_path / "merged", adapters.merging((pairs, 1.0)))
    assert off(logits(path, lora=tmp_path / "a"), logits(tmp_path / "merged")) < CLOSE


def test_scores_packed_and_steps(folder, tmp_path):
    """One pass for all candidates, and one token after another, as the merged model gives them."""
    path = model(folder, "olmoe")
    pairs = adapters.write(tmp_path / "a", path, adapted(adapters.matrices(path)))
    rewrite(path, tmp_path / "merged", adapters.merging((pairs, 2.0)))
    answers = []
    for options in ({"path": tmp_path / "merged"}, {"path": path, "lora": [tmp_path / "a"]}):
        with reflex.load(options.pop("path"), backend="cpu", **options) as m:
            decision = m.system1("the quick brown", ["fox jumps", " over", " a lazy dog"])
            answers.append(([c.sum for c in decision.candidates], m.generate("the quick", max_tokens=12).token_ids))
    assert np.allclose(*(sums for sums, _ in answers), rtol=1e-4) and answers[0][1] == answers[1][1]


# ---- what does not fit ----


def refused(path, *given):
    with pytest.raises(AdapterError) as raised:
        reflex.load(path, backend="cpu", lora=given).close()
    return raised.value


def test_everything_that_does_not_fit_is_named(folder, tmp_path):
    path = model(folder, "llama-untied")

    def change(written):
        for layer in range(3):
            written[f"blk.{layer}.nonsense.weight.lora_a"] = np.zeros((4, 64), "float32")
            written[f"blk.{layer}.nonsense.weight.lora_b"] = np.zeros((64, 4), "float32")
        written["blk.0.attn_q.weight.lora_a"] = written["blk.0.attn_q.weight.lora_a"][:, :32]
        written["blk.1.attn_k.weight.lora_b"] = written["blk.1.attn_k.weight.lora_b"][:, :4]
        written["blk.2.ffn_up.weight.lora_b"] = written["blk.2.ffn_up.weight.lora_b"].T.copy()
        written["output_norm.weight.lora_a"] = written["output_norm.weight.lora_b"] = np.zeros((1, 64), "float32")
        return written

    names = ["blk.0.attn_q.weight", "blk.1.attn_k.weight", "blk.2.ffn_up.weight", "output.weight", "blk.1.ffn_up.weight"]
    adapters.write(tmp_path / "a", path, names, change=change, others=[("blk.2.ffn_down.weight.lora_b", np.zeros((64, 8), "f4"))])
    error = refused(path, tmp_path / "a")
    parts = error.found.split("; ")
    assert [part.split(" ")[0] for part in parts] == [
        "blk.0.attn_q.weight", "blk.1.attn_k.weight", "blk.2.ffn_up.weight", "blk.0-2.nonsense.weight", "output_norm.weight",
        "blk.2.ffn_down.weight",
    ]  # fmt: skip
    assert "is no tensor of the model" in parts[3] and "is no matrix" in parts[4] and "lacks .lora_a" in parts[5]
    assert "needs .lora_a [64, 8] and .lora_b" in parts[0] and error.category == "adapter"


KEYS = {
    "this is no LoRA adapter; expected general.type adapter; found model": {"general.type": "model"},
    "found no such key": {"general.type": None},
    "expected adapter.type lora; found control": {"adapter.type": "control"},
    "for another architecture; expected llama; found gemma2": {"general.architecture": "gemma2"},
    "missing key adapter.lora.alpha": {"adapter.lora.alpha": None},
    "value is not finite": {"adapter.lora.alpha": float("nan")},
}


@pytest.mark.parametrize("said", KEYS)
def test_files_of_another_kind(folder, tmp_path, said):
    path = model(folder, "llama-untied")
    adapters.write(tmp_path / "a", path, ["output.weight"], keys=KEYS[said])
    assert said in str(refused(path, tmp_path / "a"))


def test_a_file_that_is_no_adapter_at_all(folder, tmp_path):
    path = model(folder, "llama-untied")
    (tmp_path / "text").write_text("hello" * 20)
    adapters.write(tmp_path / "none", path, [])
    data = adapters.write(tmp_path / "whole", path, ["output.weight"]) and (tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    for name in ("text", "none", "cut", "missing"):
        assert str(tmp_path / name) in str(refused(path, tmp_path / name))
    assert "this is no LoRA adapter" in str(refused(path, path))


def test_tensors_beside_the_pairs(folder, tmp_path, capsys):
    """A copy of the model's own, or rope factors, change nothing; anything else would."""
    path = model(folder, "llama-untied")
    with reflex.load(path, backend="reference") as m:
        norm = m._session.plan.weight("output_norm.weight").copy()
    others = [("output_norm.weight", norm), ("rope_freqs.weight", np.ones(8, "float32"))]
    pairs = adapters.write(tmp_path / "a", path, ["output.weight"], others=others)
    rewrite(path, tmp_path / "merged", adapters.merging((pairs, 2.0)))
    assert off(logits(path, lora=tmp_path / "a"), logits(tmp_path / "merged")) < CLOSE
    adapters.write(tmp_path / "b", path, ["output.weight"], others=[("output_norm.weight", 2 * norm)])
    assert "output_norm.weight is no half of a pair" in str(refused(path, tmp_path / "b"))


@pytest.mark.parametrize("given", [("a", "much"), ("a", float("nan")), ("a", 1e9), ("a", True), 5])
def test_scales_that_mean_nothing(folder, given):
    with pytest.raises((InvalidInputError, TypeError)):
        reflex.load(model(folder, "llama-untied"), backend="cpu", lora=[given])


# ---- with the rest ----


def test_a_state_belongs_to_its_adapters(folder, tmp_path):
    path = model(folder, "llama-untied")
    for number in (1, 2):
        adapters.write(tmp_path / f"{number}", path, ["blk.0.attn_q.weight", "blk.0.attn_v.weight"], seed=number)
    with reflex.load(path, backend="cpu", lora=[(tmp_path / "1", 0.5)]) as m:
        m.session(IDS).export_state(tmp_path / "state")
        assert len(m.import_state(tmp_path / "state")) == 40
    for lora in ([], [(tmp_path / "1", 0.6)], [(tmp_path / "2", 0.5)], [(tmp_path / "1", 0.5), tmp_path / "2"]):
        with reflex.load(path, backend="cpu", lora=lora) as m, pytest.raises(StateError, match="other adapters"):
            m.import_state(tmp_path / "state")


def test_types_change_the_model_and_not_its_adapters(folder, tmp_path):
    path = model(folder, "llama-untied")
    adapters.write(tmp_path / "a", path, adapted(adapters.matrices(path)), rank=32)
    with reflex.load(path, backend="cpu", lora=tmp_path / "a") as m, m.with_types({"attn": "Q8_0"}) as changed:
        kinds = {name: tensor.type for name, tensor in changed.file.tensors.items()}
        assert {kind for name, kind in kinds.items() if "lora" in name} == {0}
        assert {kind for name, kind in kinds.items() if "attn_q.weight" in name and "lora" not in name} == {8}
        assert 0 < off(changed.logits(IDS, every=True), m.logits(IDS, every=True)) < 0.2


def test_commands_and_worker(folder, tmp_path):
    path, lora = model(folder, "llama-untied"), f"{tmp_path / 'a=b'}=0.5"
    adapters.write(tmp_path / "a=b", path, adapted(adapters.matrices(path)))
    options = ("--candidate", "a", "--candidate", "b", "--backend", "cpu", "--json")
    done = process.reflex("system1", path, "the quick", *options, "--lora", lora)
    assert done.returncode == 0, done.stderr.decode()
    with reflex.load(path, backend="cpu", lora=[(tmp_path / "a=b", 0.5)]) as m:
        wanted = [c.sum for c in m.system1("the quick", ["a", "b"]).candidates]
    assert [c["sum"] for c in json.loads(done.stdout)["candidates"]] == wanted
    with Client(process.words("stdio", path, "--backend", "cpu", f"--lora={lora}")) as worker:
        assert [c["sum"] for c in worker.system1("the quick", ["a", "b"])["candidates"]] == wanted
    done = process.reflex("check", path, "the quick", "--backend", "cpu", "--lora", lora, "--steps", "2")
    assert done.returncode == 0, done.stderr.decode()
    done = process.reflex("system1", path, "the quick", *options, "--lora", tmp_path / "none")
    assert done.returncode == 8 and json.loads(done.stdout)["category"] == "adapter" and done.stderr.count(b"\n") == 1


def test_damaged_adapters_are_refused_or_harmless(folder, tmp_path):
    """Bytes of the header changed and files cut: an error of the tree, or an adapter that adds other numbers; nothing else."""
    path, random = model(folder, "llama-untied"), np.random.default_rng(17)
    adapters.write(tmp_path / "a", path, ["blk.0.attn_q.weight", "token_embd.weight", "output.weight"])
    data = (tmp_path / "a").read_bytes()
    taken = 0
    for _ in range(100):
        damaged = bytearray(data)
        for at in random.integers(0, 1200, random.integers(1, 4)):
            damaged[at] = int(random.integers(256))
        (tmp_path / "b").write_bytes(damaged[: random.integers(1, len(data))] if random.random() < 0.2 else damaged)
        try:
            with reflex.load(path, backend="cpu", threads=1, context=64, lora=tmp_path / "b") as m:
                m.logits([5, 6, 7])
                taken += 1
        except (AdapterError, ModelFileError, UnsupportedError) as error:
            assert len(error.line()) < 2000
    assert 0 < taken < 70
