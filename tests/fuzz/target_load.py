"""Whole loads: damaged models of every family through reader, tokenizer, record, program and plan to the logits of one batch."""

import tempfile
from pathlib import Path

import tiny
from changes import Entry, Tree, change, damage

from reflex import tokenizer
from reflex.arch import load_spec
from reflex.backends.cpu import Plan
from reflex.errors import ReflexError
from reflex.gguf.reader import open_model
from reflex.program import build

TEXT = b"the quick brown fox jumps"
# Keys that files of some families have and others must not choke on, with a type that writers use: u32, f32, string or bool.
FURTHER = {
    4: ("nextn_predict_layers", "attention.sliding_window", "attention.sliding_window_pattern", "expert_count", "expert_used_count",
        "expert_group_count", "expert_group_used_count", "leading_dense_block_count", "interleave_moe_layer_step",
        "rope.dimension_count", "rope.scaling.original_context_length", "expert_gating_func", "attention.key_length"),
    11: ("nextn_predict_layers", "attention.sliding_window", "leading_dense_block_count"),
    10: ("attention.sliding_window", "rope.scaling.original_context_length"),
    6: ("rope.scaling.factor", "rope.scaling.alpha", "rope.scaling.attn_factor", "rope.freq_base", "attention.scale", "logit_scale",
        "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_log_multiplier", "expert_weights_scale",
        "attention.clamp_kqv", "attention.temperature_scale", "embedding_scale", "residual_scale", "final_logit_softcapping"),
    12: ("rope.scaling.factor", "rope.freq_base", "rope.scaling.alpha", "attention.layer_norm_rms_epsilon"),
}  # fmt: skip


class Target:
    def __init__(self, names=None):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "m.gguf"
        self.models = {}
        for name in names or tiny.MODELS:
            if "layers" in name:  # deep ones show nothing more
                continue
            tree = Tree(Path(tiny.write(name, self.path)).read_bytes())
            architecture = tiny.MODELS[name][0].encode()
            zero = {4: bytes(4), 6: bytes(4), 10: bytes(8), 11: bytes(8), 12: bytes(8)}
            known = [Entry(architecture + b"." + key.encode(), kind, zero[kind]) for kind, keys in FURTHER.items() for key in keys]
            self.models[name] = tree, known + [entry for entry in tree.keys if not entry.name.startswith(b"tokenizer.")]

    def make(self, random):
        tree, known = self.models[random.choice(list(self.models))]
        return random.randbytes(1) + change(tree, random, known)

    def again(self, data, random):
        return data[:1] + damage(data[1:], random)

    def run(self, data):
        self.path.write_bytes(data[1:])
        file = words = plan = None
        try:
            file = open_model(str(self.path))
            words = tokenizer.load(file)
            ids = words.encode(TEXT)[:4] or [0]
            spec = load_spec(file)
            context = spec.context_length if data[0] % 8 == 0 else min(spec.context_length, 64)
            plan = Plan(file, build(spec, context), context, 1)
            ids = ids[:context]
            count = len(ids)
            plan.evaluate(ids, 0, list(range(count)), [0] * count, [0] * count, [count - 1], strands=((0, count, -1, 0),))
            plan.logits(0)
        except ReflexError as error:
            line = str(error)
            if error.category in ("internal", "kernel_cache", "device") or not line.isprintable() or len(line) > 3000:
                raise AssertionError(line) from error
            return error.category
        finally:
            for opened in (plan, words, file):
                if opened:
                    opened.close()
        return "computes"
