"""Adapters of every tensor that any family has: what is taken is applied wherever the tensor is read, and equals merged weights;
all else is refused by name. Nothing is left out in silence, and nothing is expanded.
"""

import re

import adapters
import gguf
import numpy as np
import pytest
from tiny import MODELS, Model, write

import reflex
from reflex import native
from reflex.errors import AdapterError

IDS = np.random.default_rng(3).integers(3, 500, 24).tolist()
CLOSE = 5e-5  # standard deviations of the logits: float32 sums in another order; deep models make more of them
RANK, FACTOR = 4, 16.0 / 4
PRODUCTS = "linear", "expert_linear", "head_linear", "embed"
TABLES = ("per_layer_token_embd.weight",)  # whose orientation in an adapter nobody has defined
CONTEXT, STEP, LISTS = 128, 1024, 1 << 18  # tokens; bytes for a further step, and for which rows go to which expert


def kinds(name):
    return {re.sub(r"\d+", "", tensor) for tensor, shape in Model(name).shapes() if len(shape) > 1}


def representatives():
    """Every architecture, and of its variants those that have a kind of tensor that those before them lack."""
    seen = {}
    for name, (architecture, _) in MODELS.items():
        found = seen.setdefault(architecture, set())
        if not kinds(name) <= found:
            found |= kinds(name)
            yield name


def opened(path, **options):
    return reflex.load(path, backend=options.pop("backend", "cpu"), threads=1, context=CONTEXT, **options)


def logits(path, **options):
    with opened(path, **options) as m:
        return m.logits(IDS, every=True)


def off(found, wanted):
    return np.abs(found - wanted).max() / wanted.std()


def refused(path, adapter):
    """The names that a refusal lists, its ranges of layers written out."""
    with pytest.raises(AdapterError) as raised:
        opened(path, lora=adapter).close()
    assert "\n" not in raised.value.line()
    for part in raised.value.found.split("; "):
        name = part.split(" ")[0]
        layers = re.match(r"blk\.([\d,-]+)\.(.*)", name)
        if not layers:
            yield name
            continue
        for few in layers[1].split(","):
            first, _, last = few.partition("-")
            yield from (f"blk.{i}.{layers[2]}" for i in range(int(first), int(last or first) + 1))


def merged(path, target, pairs):
    """A copy of a F32 file with what the pairs add in its matrices."""
    data = bytearray(path.read_bytes())
    for tensor in gguf.GGUFReader(str(path)).tensors:
        if tensor.name in pairs:
            numbers = np.frombuffer(data, np.float32, tensor.n_elements, tensor.data_offset)
            added = FACTOR * adapters.delta(tensor.name, *pairs[tensor.name]).reshape(-1)
            data[tensor.data_offset : tensor.data_offset + tensor.n_bytes] = (numbers + added.astype("f4")).tobytes()
    target.write_bytes(data)
    return target


def reads(program, of):
    """{what `of` makes of a tensor's name: steps that read it} of the steps with products."""
    found = {}
    for step in program.steps:
        if step.op in PRODUCTS:
            name = of(step.weights[0])
            found[name] = found.get(name, 0) + 1
    return found


def adapted(weight):
    """The tensor that a half of an adapter is for."""
    owner = re.match(r"adapter 0: (.*\.weight|.*ssm_a|.*ssm_d)", weight)
    return owner and owner[1].replace(".lora_a", "").replace(".lora_b", "")


@pytest.fixture
def allocated(monkeypatch):
    """allocated(): the bytes asked for since it was last called."""
    sizes, alloc = [], native.alloc

    def counted(size, *rest):
        sizes.append(size)
        return alloc(size, *rest)

    def so_far():
        total = sum(sizes)
        sizes.clear()
        return total

    monkeypatch.setattr(native, "alloc", counted)
    return so_far


@pytest.mark.parametrize("name", [*representatives()])
def test_taken_whole_or_refused_by_name(tmp_path, allocated, name):
    path = write(name, tmp_path / "m.gguf")
    matrices = list(adapters.matrices(path))
    with opened(path) as m:
        plain, p, base = m.logits(IDS, every=True), m._session.plan.program, m.file.tensors
        held, memory = sum(tensor.nbytes for tensor in base.values()), allocated()
        read = reads(p, lambda weight: weight)
    others = [tensor for tensor in matrices if tensor not in read or tensor in TABLES]
    taken = [tensor for tensor in matrices if tensor not in others]
    if others:
        adapters.write(tmp_path / "all", path, matrices, rank=RANK)
        assert sorted(refused(path, tmp_path / "all")) == sorted(others)
    pairs = adapters.write(tmp_path / "a", path, taken, rank=RANK)
    wanted = logits(merged(path, tmp_path / "merged", pairs))
    allocated()
    with opened(path, lora=tmp_path / "a") as m:
        found = m.logits(IDS, every=True)
        more, f = allocated() - memory, m._session.plan.program
        made = sum(tensor.nbytes for key, tensor in m.file.tensors.items() if re.search(r" (turned|keys|values|results)$", key))
        assert sum(tensor.nbytes for tensor in m.file.tensors.values()) - held == made + size(pairs)
    assert {tensor: 2 * count for tensor, count in read.items() if tensor in taken} == {
        tensor: count for tensor, count in reads(f, adapted).items() if tensor
    }, "two steps wherever a matrix is read"
    columns, steps = (sum(f.widths.values()) - sum(p.widths.values()), len(f.steps) - len(p.steps))
    assert more <= 4 * CONTEXT * columns + STEP * steps + 3 * made + LISTS
    difference = off(found, wanted)
    if difference > CLOSE:
        difference /= max(1, off(logits(tmp_path / "merged", backend="reference"), wanted) / CLOSE)
    assert difference < 3 * CLOSE and off(plain, wanted) > 1


def size(pairs):
    return sum(a.nbytes + b.nbytes for a, b in pairs.values())


def test_weights_in_blocks_stay_in_blocks(tmp_path, allocated):
    """Allocated is what the further steps leave, not two matrices in float32."""
    path = write("llama-untied", tmp_path / "m.gguf", "Q4_0", width=512, feed_forward=512)
    adapters.write(tmp_path / "a", path, list(adapters.matrices(path)), rank=RANK)
    found = []
    for options in ({}, {"lora": tmp_path / "a"}):
        allocated()
        with opened(path, **options) as m:
            m.logits(IDS[:2])
            found.append((allocated(), sum(m._session.plan.program.widths.values()), len(m._session.plan.program.steps)))
    (before, narrow, few), (after, wide, many) = found
    assert after - before <= 4 * CONTEXT * (wide - narrow) + STEP * (many - few) < 4 * 512 * 512 * 2
