"""Timelines over a plan: reuse, rewinding, forks, limits."""

import pytest
from fakes import session

from reflex import session as sessions
from reflex.errors import ContextOverflowError, InvalidInputError, StateError
from reflex.session import raw


def last_logits(ids):
    fresh = session()
    fresh.sync(ids)
    return fresh.plan.logits(0).tolist()


def test_sync_reuses_the_longest_common_prefix_and_computes_the_same():
    s = session()
    assert s.sync([10, 11, 12, 13]) == 0
    assert s.sync([10, 11, 12, 13, 14]) == 4
    assert s.plan.calls[-1] == (1, 1)
    assert s.sync([10, 11, 20, 21]) == 2
    assert s.plan.calls[-1] == (2, 1)
    assert s.plan.logits(0).tolist() == last_logits([10, 11, 20, 21])
    assert s.ids == [10, 11, 20, 21]


def test_sync_of_the_same_ids_computes_the_last_token_again():
    s = session()
    s.sync([10, 11, 12])
    assert s.sync([10, 11, 12]) == 2
    assert s.plan.calls[-1] == (1, 1)
    assert s.plan.logits(0).tolist() == last_logits([10, 11, 12])


def test_sync_to_a_shorter_text():
    s = session()
    s.sync([10, 11, 12, 13])
    assert s.sync([10, 11]) == 1
    assert s.plan.logits(0).tolist() == last_logits([10, 11])
    assert s.sync([10, 11, 12]) == 2, "what lay behind was overwritten or forgotten"


@pytest.mark.parametrize("batch", [1, 3, 7, 8])
def test_long_prompts_are_computed_in_bounded_batches(batch, monkeypatch):
    monkeypatch.setattr(sessions, "BATCH", batch)
    s = session()
    ids = list(range(10, 18))
    s.sync(ids)
    assert max(rows for rows, _ in s.plan.calls) == min(batch, 8)
    assert [outputs for _, outputs in s.plan.calls] == [0] * (len(s.plan.calls) - 1) + [1]
    assert s.plan.logits(0).tolist() == last_logits(ids)


def test_append_rewind_and_append_again():
    s = session()
    s.sync([10, 11])
    s.append(12)
    s.append(13)
    s.rewind(3)
    s.append(14)
    assert s.ids == [10, 11, 12, 14]
    assert s.plan.calls[-1] == (1, 1)
    assert s.plan.logits(0).tolist() == last_logits([10, 11, 12, 14])
    with pytest.raises(StateError):
        s.rewind(5)


def test_forks_share_the_cache_and_stay_apart():
    s = session()
    s.sync([10, 11, 12])
    other = s.fork()
    other.append(20)
    s.append(30)
    assert (s.ids, other.ids) == ([10, 11, 12, 30], [10, 11, 12, 20])
    assert s.plan.calls[-1] == (1, 1)
    other.append(21)
    assert s.plan.calls[-1] == (2, 1), "the token that the other timeline overwrote is computed again"
    assert other.plan.logits(0).tolist() == last_logits([10, 11, 12, 20, 21])


def test_an_interrupted_computation_leaves_a_usable_session():
    s = session()
    s.sync([10, 11, 12])
    s.plan.interrupt_at = 2
    with pytest.raises(KeyboardInterrupt):
        s.sync([10, 20, 21])
    assert s.sync([10, 11, 12]) == 1
    assert s.plan.logits(0).tolist() == last_logits([10, 11, 12])


def test_context_overflow_comes_before_any_work_and_has_the_numbers():
    s = session(context=8)
    s.longest = 100
    with pytest.raises(ContextOverflowError) as caught:
        s.reserve(6, 3)
    for number in ("6 prompt", "3 wanted", "9 tokens", "at most 8", "100"):
        assert number in str(caught.value)
    with pytest.raises(ContextOverflowError):
        s.sync(list(range(9)))
    assert s.plan.calls == []
    s.sync(list(range(8)))


def test_encode_adds_a_begin_token_but_never_an_end_token():
    assert session(add_bos=True, add_eos=True).encode("ab") == [0, session().tokenizer.encode("ab")[0]]
    assert session(add_bos=True).encode("") == [0]
    with pytest.raises(InvalidInputError, match="empty"):
        session().encode("")


def test_text_is_bytes_as_they_came_in():
    assert raw("é") == b"\xc3\xa9"
    assert raw(b"\xff") == b"\xff"
    assert raw("a\udcff") == b"a\xff", "an argument that was no UTF-8"
    with pytest.raises(InvalidInputError, match="surrogate"):
        raw("\ud800")
    with pytest.raises(InvalidInputError, match="str or bytes"):
        raw(7)
