"""Generation: stops, held back text, lengths, sampling, seeds."""

import math

import pytest
from fakes import FakePlan, FakeTokenizer, FollowingPlan, session
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import CONTROL, PIECES, SPECIALS, bpe_keys, spm_keys

from reflex.errors import ContextOverflowError, InvalidInputError
from reflex.generate import Generation, StopHolder, generate
from reflex.sample import Sampling, choose, fresh_seed, penalize, restore, uniform
from reflex.session import Session

PROMPT = "abc"  # two tokens


def scripted(text, **options):
    """A session that continues PROMPT with exactly the tokens of `text`."""
    ids = FakeTokenizer().encode(text)
    start = len(FakeTokenizer().encode(PROMPT))
    return session(script={start + number: token for number, token in enumerate(ids)}, **options), ids


def shown(generation):
    return [event.text for event in generation]


def test_greedy_follows_the_largest_logit_and_streams():
    s, ids = scripted("hello Paris")
    generation = generate(s, PROMPT, max_tokens=len(ids))
    events = list(generation)
    assert [event.id for event in events] == ids
    assert [event.index for event in events] == list(range(len(ids)))
    assert "".join(event.text for event in events) == generation.text == "hello Paris"
    assert events[-1].text == " Paris"
    assert generation.finish_reason == "length"
    assert all(event.logprob is None for event in events)
    assert s.plan.calls == [(2, 1)] + [(1, 1)] * (len(ids) - 1)


def test_logprobs_are_the_models_own():
    s = session()
    (event,) = generate(s, PROMPT, max_tokens=1, logprobs=True, temperature=5.0, seed=1)
    s.sync(s.encode(PROMPT))
    assert event.logprob == s.plan.logprobs(0, [event.id])[0] < 0
    result = generate(s, PROMPT, max_tokens=3, logprobs=True).result()
    events = list(generate(s, PROMPT, max_tokens=3, logprobs=True))
    assert result.logprobs == tuple(event.logprob for event in events if event.id is not None)
    assert result.to_dict()["logprobs"] == list(result.logprobs)
    assert "logprobs" not in generate(s, PROMPT, max_tokens=3).result().to_dict()


@pytest.mark.parametrize("plan", [FakePlan, FollowingPlan])
def test_the_most_likely_tokens_beside_each_one(plan):
    s = session(plan=plan)
    plain = [event.id for event in generate(s, PROMPT, max_tokens=6, temperature=3.0, seed=4)]
    generation, ids = generate(s, PROMPT, max_tokens=6, temperature=3.0, seed=4, top_logprobs=5), []
    for event in generation:
        if event.id is not None:
            logits = list(s.plan.logits(0))
            best = sorted(range(len(logits)), key=lambda token: (-logits[token], token))[:5]
            assert generation.likely == list(zip(best, s.plan.logprobs(0, best), strict=True))
            ids.append(event.id)
    assert ids == [token for token in plain if token is not None]
    assert generate(s, PROMPT, max_tokens=1).likely == []
    for wrong in (-1, 21, 1.5, "a"):
        with pytest.raises(InvalidInputError, match="top_logprobs"):
            generate(s, PROMPT, max_tokens=1, top_logprobs=wrong)


@pytest.mark.parametrize("end", ["</s>", "<end>"])
def test_stops_on_every_end_token_without_showing_it(end):
    s, ids = scripted(f"hello{end}more")
    result = generate(s, PROMPT, max_tokens=20).result()
    assert (result.text, result.finish_reason) == ("hello", "stop")
    assert list(result.token_ids) == ids[:5]
    assert str(result) == "hello"


@pytest.mark.parametrize(
    ("stops", "text", "reason"),
    [
        (["o wo"], "hell", "stop"),
        ("lo", "hel", "stop"),
        (["world", "o"], "hell", "stop"),
        (["d!"], "hello worl", "stop"),
        (["d!?"], "hello world!", "length"),
        (["h"], "", "stop"),
        (["hello world!"], "", "stop"),
        (["xyz"], "hello world!", "length"),
        (["llo ", "lo w", "wor"], "he", "stop"),
    ],
)
def test_stop_strings_across_tokens(stops, text, reason):
    s, ids = scripted("hello world!")
    generation = generate(s, PROMPT, max_tokens=len(ids), stop=stops)
    assert "".join(shown(generation)) == text
    assert (generation.text, generation.finish_reason) == (text, reason)


def test_text_that_may_begin_a_stop_string_is_held_back_and_no_more():
    holder = StopHolder(["END", "\n\n"])
    shown = {"a": "a", "E": "", "x": "Ex", "\n": "", "b": "\nb", "EN": "", "EN ": "ENEN ", "\n\n": "", "z": ""}
    assert [holder.feed(piece) for piece in shown] == list(shown.values())
    assert holder.found
    holder = StopHolder(["END"])
    assert holder.feed("abE") == "ab"
    assert holder.finish() == "E"


def test_the_end_shows_what_was_held_back():
    s, ids = scripted("abEN")
    generation = generate(s, PROMPT, max_tokens=len(ids), stop=["END"])
    events = list(generation)
    assert events[-1].id is None and events[-1].text == "EN"
    assert generation.text == "abEN"


@given(
    text=st.text("ab\u00e9\U0001f638", max_size=12),
    stops=st.lists(st.text("ab\u00e9\U0001f638", min_size=1, max_size=4), min_size=1, max_size=4),
    cuts=st.sets(st.integers(0, 12)),
)
def test_where_tokens_end_makes_no_difference_to_stops(text, stops, cuts):
    """Whatever the pieces: shown is what lies before the stop string that is whole first, and never a part of one that follows."""
    ends = [(end, -len(stop)) for end in range(len(text) + 1) for stop in stops if text[:end].endswith(stop)]
    wanted = text[: min(ends)[0] + min(ends)[1]] if ends else text
    holder, shown, at = StopHolder(stops), "", 0
    for cut in [*sorted(cut for cut in cuts if cut < len(text)), len(text)]:
        shown += holder.feed(text[at:cut])
        at = cut
        assert wanted.startswith(shown)
    shown += "" if holder.found else holder.finish()
    assert (shown, holder.found) == (wanted, bool(ends))


@pytest.mark.parametrize("stops", [["\u65e5"], ["\u672c", "a\u65e5"], ["\u65e5\u672c"], ["b\u65e5\u672c!"]])
def test_a_stop_string_that_ends_within_held_back_bytes(stops):
    s, ids = scripted("ab\u65e5\u672c! and more")
    generation = generate(s, PROMPT, max_tokens=len(ids), stop=stops)
    text = "ab\u65e5\u672c! and more"
    assert "".join(shown(generation)) == text[: text.index(stops[0])] == generation.text
    assert generation.finish_reason == "stop"


def test_emoji_in_pieces_an_invalid_byte_and_the_end():
    s = session()
    byte = {value: 3 + value for value in range(256)}
    ids = [byte[value] for value in (*"\U0001f638".encode(), 0xFF, 0x41, 0xF0, 0x9F)]
    start = len(s.encode(PROMPT))
    s = session(script={start + number: token for number, token in enumerate(ids)})
    events = list(generate(s, PROMPT, max_tokens=len(ids)))
    assert [event.text for event in events] == ["", "", "", "\U0001f638", "\ufffd", "A", "", "", "\ufffd"]
    assert b"".join(event.bytes for event in events) == "\U0001f638".encode() + b"\xffA\xf0\x9f", "raw bytes are kept"
    assert events[-1].id is None and events[-1].bytes == b""
    assert [event.to_dict()["bytes"] for event in events[:2]] == [[0xF0], [0x9F]]


def test_a_control_token_inside_the_text_is_not_shown():
    s, ids = scripted("a<s>b")
    events = list(generate(s, PROMPT, max_tokens=len(ids)))
    assert [(event.text, event.bytes) for event in events] == [("a", b"a"), ("", b""), ("b", b"b")]


def test_partial_utf8_is_held_back():
    s, ids = scripted("日本")
    assert len(ids) == 6
    assert shown(generate(s, PROMPT, max_tokens=6)) == ["", "", "日", "", "", "本"]
    generation = generate(s, PROMPT, max_tokens=4)
    assert shown(generation) == ["", "", "日", "", "\ufffd"]
    assert generation.text == "日\ufffd"


def test_a_stop_string_completed_by_the_flush():
    s, ids = scripted("ab日")
    result = generate(s, PROMPT, max_tokens=len(ids) - 1, stop=["\ufffd"]).result()
    assert (result.text, result.finish_reason) == ("ab", "stop")


@pytest.mark.parametrize("name", ["bpe", "unigrams"])
def test_every_end_token_of_a_file_ends_the_text(load, name):
    """The key of the file and every text that is known to end a turn, in a vocabulary as files have them."""
    ends = ("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<end_of_turn>")
    specials = [(text, CONTROL) for text in ends]
    bpe = bpe_keys(specials=[*SPECIALS, *specials])
    tokenizer = load(bpe if name == "bpe" else spm_keys([*PIECES, *((text, 0.0, kind) for text, kind in specials)]))
    assert len(tokenizer.eog) >= len(ends)
    prompt = [tokenizer.encode("he", add_special=False)[-1]] * 2
    word = prompt[0]
    for end in tokenizer.eog:
        s = Session(FakePlan(tokenizer.size, 64, {2: word, 3: end, 4: word}), tokenizer)
        result = generate(s, prompt, max_tokens=9).result()
        assert (result.token_ids, result.finish_reason) == ((word,), "stop")
        assert s.tokenizer.piece(end).decode() not in result.text


def test_interrupt_keeps_what_exists():
    s, _ = scripted("helloEN and more")
    s.plan.interrupt_at = 8
    generation = generate(s, PROMPT, max_tokens=12, stop=["END"])
    parts = []
    with pytest.raises(KeyboardInterrupt):
        for event in generation:
            parts.append(event.text)
    assert "".join(parts) == "hello"
    assert generation.text == "helloEN"
    assert generation.finish_reason == "interrupt"
    assert (generation.interrupt(), generation.interrupt()) == ("EN", "") and list(generation) == []
    assert generation.result().finish_reason == "interrupt"


def test_interrupt_from_outside_returns_the_held_text():
    s, _ = scripted("abEN and more")
    generation = generate(s, PROMPT, max_tokens=12, stop=["END"])
    for event in generation:
        if event.index == 2:
            break
    assert generation.interrupt() == "EN"
    assert generation.result().text == "abEN"


def test_lengths_and_the_context():
    s = session(context=10)
    length = len(s.encode(PROMPT))
    assert len(generate(s, PROMPT, max_tokens=10 - length).result().token_ids) <= 10 - length
    s = session(context=10)
    with pytest.raises(ContextOverflowError, match="9 wanted"):
        generate(s, PROMPT, max_tokens=9)
    with pytest.raises(ContextOverflowError):
        generate(s, "x" * 10)
    with pytest.raises(InvalidInputError):
        generate(s, PROMPT, max_tokens=0)
    assert s.plan.calls == []
    unlimited, _ = scripted("hello and on and", context=10)
    result = generate(unlimited, PROMPT).result()
    assert (len(result.token_ids), result.finish_reason) == (10 - length, "length")


def test_the_second_generation_reuses_the_first():
    s, _ = scripted("hello")
    generate(s, PROMPT, max_tokens=5).result()
    generate(s, PROMPT, max_tokens=5).result()
    assert s.plan.calls[5] == (1, 1)


def test_same_seed_same_text_other_seed_other_text():
    def text(seed):
        return generate(session(), PROMPT, max_tokens=20, temperature=2.0, seed=seed).result().token_ids

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(5)}) == 5


def test_a_seed_is_always_known():
    generation = Generation(session(), PROMPT, sampling=Sampling(temperature=1.0))
    again = Generation(session(), PROMPT, sampling=Sampling(temperature=1.0, seed=generation.seed))
    assert generation.result() == again.result()
    assert fresh_seed() != fresh_seed()


def test_uniform_is_splitmix64():
    # First outputs of the published generator for seed 0, top 53 bits.
    for count, value in enumerate((0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)):
        assert uniform(0, count) == (value >> 11) / 2**53
    values = [uniform(7, count) for count in range(4000)]
    assert all(0 <= value < 1 for value in values)
    assert abs(sum(values) / 4000 - 0.5) < 0.02


LOGITS = [1.0, 3.0, 2.0, 3.0, -5.0]


def drawn(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, steps=2000):
    counts = [0] * len(LOGITS)
    for step in range(steps):
        counts[choose(LOGITS, temperature, top_k, top_p, min_p, (step + 0.5) / steps)] += 1
    return [count / steps for count in counts]


def test_sampling_definition():
    weights = [math.exp(value) for value in LOGITS]
    assert drawn() == pytest.approx([w / sum(weights) for w in weights], abs=1e-3)
    halved = [math.exp(value / 2) for value in LOGITS]
    assert drawn(temperature=2.0) == pytest.approx([w / sum(halved) for w in halved], abs=1e-3)
    assert drawn(top_k=1) == [0, 1, 0, 0, 0], "of equal logits the lowest id is kept"
    assert drawn(top_k=2) == [0, 0.5, 0, 0.5, 0]
    assert drawn(top_p=0.5) == [0, 0.5, 0, 0.5, 0]
    assert drawn(top_p=1e-9) == [0, 1, 0, 0, 0]
    assert drawn(temperature=9.0, top_p=0.5) == [0, 0.5, 0, 0.5, 0], "the temperature comes last"
    assert drawn(min_p=0.9) == [0, 0.5, 0, 0.5, 0]
    assert drawn(min_p=0.3)[2] > 0 == drawn(min_p=0.4)[2]
    assert drawn(temperature=1e-30) == [0, 0.5, 0, 0.5, 0]
    assert drawn(temperature=0) == [0, 1, 0, 0, 0]
    assert choose(LOGITS, 1.0, 0, 1.0, 0.0, 1 - 2**-53) == 4


@pytest.mark.parametrize("case", range(40))
def test_the_reference_backend_follows_the_definition(case):
    numpy = pytest.importorskip("numpy")
    from reflex.backends.reference import draw

    rng = numpy.random.default_rng(case)
    logits = rng.normal(0, 2, 50).astype(numpy.float32)
    logits[rng.integers(0, 50, 10)] = logits[0]
    settings = [(0.7, 0, 1.0, 0.0), (1.0, 5, 1.0, 0.0), (1.3, 0, 0.8, 0.0), (2.0, 0, 1.0, 0.05), (1.0, 20, 0.9, 0.1)][case % 5]
    for random in rng.random(20):
        assert draw(logits, *settings, random) == choose(logits.tolist(), *settings, random)


def test_settings_at_their_edges():
    assert Sampling(temperature=5e-324).temperature == Sampling(temperature=1e-30).temperature > 0
    assert Sampling(temperature=True, top_k=3.0, seed=-1).top_k == 3
    assert Sampling(seed=-1).seed == 2**64 - 1 and Sampling(seed=2**64 + 5).seed == 5
    assert Sampling(top_k=10**30).top_k >= 2**20, "more than any vocabulary, and it fits a machine word"


def test_the_order_of_the_chain():
    """Penalty, top-k, top-p, min-p, temperature; each case has another answer in any other order of its two steps."""
    logits = [3.0, 2.9, 2.0, -9.0]
    penalized = list(logits)
    penalize(penalized, {0}, 2.0)  # 1.5: token 0 is no longer among the first two
    assert {choose(penalized, 1.0, 2, 1.0, 0.0, step / 50) for step in range(50)} == {1, 2}
    # top-k 2 leaves 0 and 1 at about half each; only after it does top-p 0.5 leave one of them
    share = math.exp(3.0) / sum(map(math.exp, logits))
    assert share < 0.5 and {choose(logits, 1.0, 2, 0.5, 0.0, step / 50) for step in range(50)} == {0}
    # min-p looks at the model's own probabilities: at temperature 100 nothing would be below 0.8 of the first
    assert {choose(logits, 100.0, 0, 1.0, 0.8, step / 50) for step in range(50)} == {0, 1}
    # and so does top-p: at temperature 100 three of the four would be needed
    assert {choose(logits, 100.0, 0, 0.6, 0.0, step / 50) for step in range(50)} == {0, 1}


@pytest.mark.parametrize("settings", [{"top_k": 1, "top_p": 0.1, "min_p": 0.9}, {"temperature": 0, "top_k": 40}])
def test_filters_change_nothing_at_temperature_zero(settings):
    assert generate(session(), PROMPT, max_tokens=5, **settings).result() == generate(session(), PROMPT, max_tokens=5).result()


def test_scoring_takes_no_sampling_settings():
    from reflex.cli import generate as command
    from reflex.cli import system1

    words = {row[0] for row in command.PARAMETERS} & set(map("--{}".format, ("top-k", "top-p", "min-p", "repeat-penalty", "seed")))
    assert len(words) == 5 and not words & {row[0] for row in system1.PARAMETERS}
    assert "Nothing is sampled" in system1.__doc__


def test_repeat_penalty_and_its_undoing():
    logits = [2.0, -2.0, 4.0]
    old = penalize(logits, {0, 1}, 2.0)
    assert logits == [1.0, -4.0, 4.0]
    restore(logits, old)
    assert logits == [2.0, -2.0, 4.0]


def test_repeat_penalty_acts_at_temperature_zero_and_leaves_the_logits():
    s = session(script={2: 70, 3: 70, 4: 70})
    plain = generate(s, PROMPT, max_tokens=3).result()
    assert plain.token_ids == (70, 70, 70)
    s = session(script={2: 70, 3: 70, 4: 70})
    generation = generate(s, PROMPT, max_tokens=2, repeat_penalty=1000.0, logprobs=True)
    first, second = generation
    assert first.id == 70 != second.id
    assert s.plan.logits(0)[70] == 100.0
    assert second.logprob == s.plan.logprobs(0, [second.id])[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": -1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"temperature": "1"},
        {"temperature": None},
        {"temperature": 10**400},
        {"top_k": -1},
        {"top_k": 1.5},
        {"top_k": math.nan},
        {"top_p": math.nan},
        {"min_p": math.nan},
        {"min_p": -0.1},
        {"repeat_penalty": math.nan},
        {"repeat_penalty": 1e-9},
        {"repeat_last": math.inf},
        {"seed": 0.5},
        {"seed": "x"},
        {"top_p": 0},
        {"top_p": 1.5},
        {"min_p": 1},
        {"repeat_penalty": 0},
        {"repeat_last": -1},
    ],
)
def test_settings_without_meaning_are_refused(settings):
    with pytest.raises(InvalidInputError):
        Sampling(**settings)


@pytest.mark.parametrize("stop", ["", [""], [b"x"], "\udcff", [None], ["a", "\ud800"]])
def test_stop_strings_without_meaning_are_refused(stop):
    with pytest.raises(InvalidInputError):
        generate(session(), PROMPT, stop=stop)


# ---- where the backend makes tokens by itself ---------------------------------------------------------------

SAMPLED = {"temperature": 1.3, "top_k": 40, "top_p": 0.95, "min_p": 0.01, "repeat_penalty": 1.4, "seed": 5}


@pytest.mark.parametrize("settings", [{}, SAMPLED])
def test_a_backend_that_makes_tokens_by_itself_gives_the_same_events(settings):
    plain = list(generate(session(), PROMPT, max_tokens=12, logprobs=True, **settings))
    followed = session(plan=FollowingPlan)
    assert list(generate(followed, PROMPT, max_tokens=12, logprobs=True, **settings)) == plain
    assert followed.plan.follows == 1
    assert all(event.logprob is not None for event in plain if event.id is not None)


@pytest.mark.parametrize("settings", [{}, SAMPLED])
@pytest.mark.parametrize("moment", [1, 2, 5])
def test_a_stream_goes_on_after_another_timeline_used_the_backend(settings, moment):
    want = list(generate(session(), PROMPT, max_tokens=12, logprobs=True, **settings))
    s = session(plan=FollowingPlan)
    found = []
    for event in generate(s, PROMPT, max_tokens=12, logprobs=True, **settings):
        found.append(event)
        if event.index + 1 == moment:
            s.fork().sync([40, 41, 42, 43])
    assert found == want
    assert s.plan.follows == (1 if moment == 1 else 2)


def test_two_streams_of_a_backend_that_makes_tokens_by_itself_stay_apart():
    s = session(plan=FollowingPlan)
    first, second = (generate(s.fork(), text, max_tokens=6) for text in (PROMPT, "other"))
    pairs = list(zip(first, second, strict=True))
    for number, text in enumerate((PROMPT, "other")):
        assert [pair[number] for pair in pairs] == list(generate(session(), text, max_tokens=6))


def test_an_end_token_of_the_backends_own_run_ends_the_text():
    ids = FakeTokenizer().encode("hello</s>more")
    s = session(script={2 + number: token for number, token in enumerate(ids)}, plan=FollowingPlan)
    result = generate(s, PROMPT, max_tokens=20).result()
    assert (result.text, result.finish_reason) == ("hello", "stop")
    assert s.sync([*s.ids, 77]) == len(s.ids) - 1, "the cache is known to hold what was shown"
