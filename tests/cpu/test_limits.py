"""The last place of a context can be used and none after it: sizes around the blocks of the cache, both real backends."""

import numpy as np
import pytest
import tiny

import reflex
from reflex.errors import ContextOverflowError

IDS = [3 + 7 * i % 250 for i in range(70)]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny.write("llama-smollm", tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="module", params=["cpu", "reference"])
def wide(request, path):
    with reflex.load(path, backend=request.param, context=128, threads=1) as model:
        yield model


@pytest.mark.parametrize("size", [1, 2, 31, 32, 33, 63, 64, 65])
def test_a_full_context_and_one_token_more(path, wide, size):
    with reflex.load(path, backend=wide.backend, context=size, threads=1) as model:
        full = model.session(IDS[:size])
        close = {"rtol": 0, "atol": 0} if wide.backend == "cpu" else {"rtol": 1e-4, "atol": 1e-4}
        np.testing.assert_allclose(full.logits(), wide.logits(IDS[:size]), **close)
        calls = []
        model._session.plan.evaluate = lambda *args: calls.append(args)
        for ask in (
            lambda: full.append([5]),
            lambda: full.generate(max_tokens=1),
            lambda: full.logprobs([5]),
            lambda: full.system1([" fox"]),
            lambda: model.generate(IDS[:size], max_tokens=1),
            lambda: model.logits(IDS[: size + 1]),
            lambda: model.logits(IDS[: size + 1], every=True),
            lambda: model.trace(IDS[: size + 1]),
        ):
            with pytest.raises(ContextOverflowError) as refused:
                ask()
            assert f"at most {size} tokens" in str(refused.value) and f"{size + 1} tokens" in str(refused.value)
            assert "raise --ctx (this model allows 1024)" in str(refused.value)
        assert calls == []


@pytest.mark.parametrize("size", [2, 32, 33, 64])
def test_the_last_place_is_filled(path, wide, size):
    with reflex.load(path, backend=wide.backend, context=size, threads=1) as model:
        made = model.generate(IDS[: size - 1], max_tokens=1)
        assert made.token_ids == wide.generate(IDS[: size - 1], max_tokens=1).token_ids
        half = IDS[: size // 2]
        assert model.generate(half).token_ids == wide.generate(half, max_tokens=size - size // 2).token_ids


def test_a_text_that_no_context_can_hold_is_refused_before_it_is_tokenized(path, wide):
    """Counted: the tokenizer's scratch, up to 54 bytes for each byte of one long word, is never asked for. At the longest text
    that might fit, the tokens are counted."""
    tokenizer = wide.tokenizer
    longest = tokenizer.longest()
    assert longest == max(len(tokenizer.token_bytes(token)) for token in range(tokenizer.size))
    most = longest * 1024
    with reflex.load(path, backend=wide.backend, threads=1) as model:
        asked = []
        encode = model.tokenizer._words.encode
        model.tokenizer._words.encode = lambda data, *rest: asked.append(len(data)) or encode(data, *rest)
        size = max(most, 1 << 20) + 1
        found = f"at most 1024 tokens; found {size} bytes, at least {-(-size // longest)} tokens"
        text = "a" * size
        for ask in (
            lambda: model.generate(text, max_tokens=1),
            lambda: model.system1(text.encode(), ["b", "c"]),
            lambda: model.logits(text),
        ):
            with pytest.raises(ContextOverflowError, match=found):
                ask()
        assert asked == []
        with pytest.raises(ContextOverflowError, match=f"at most 1024 tokens; found {(1 << 20)} prompt"):
            model.generate("\x07" * (1 << 20), max_tokens=1)
        assert asked == [1 << 20]
