from hypothesis import given
from hypothesis import strategies as st

from headway.bench.counting import count_tokens
from headway.bench.target import Chunk, Closing


def chunks(*texts):
    return [Chunk(float(at), text) for at, text in enumerate(texts)]


def test_usage_wins_over_everything():
    """The server's own count is the count, whatever the text looks like."""
    count = count_tokens(chunks("ab", "c"), Closing(at_s=2.0, num_output=5), tokenize=len)
    assert (count.num_output, count.source, count.num_reencoded) == (5, "usage", 3)


def test_without_usage_listed_ids_then_the_tokenizer_then_chunks_count():
    """Each fallback has its name."""
    listed = [Chunk(0.0, "ab", 2), Chunk(1.0, "c", 1)]
    assert count_tokens(listed, Closing(at_s=2.0)).source == "ids"
    assert count_tokens(listed, None).num_output == 3
    counted = count_tokens(chunks("ab", "c"), Closing(at_s=2.0), tokenize=len)
    assert (counted.num_output, counted.source) == (3, "retokenized")
    counted = count_tokens(chunks("ab", "c"), Closing(at_s=2.0))
    assert (counted.num_output, counted.source) == (2, "chunks")


def test_listed_tokens_have_their_chunks_times():
    """Tokens that came together share their moment."""
    listed = [Chunk(0.0, "ab", 1), Chunk(1.0, "c", 3)]
    assert count_tokens(listed, Closing(at_s=2.0, num_output=4)).token_s == [0.0, 1.0, 1.0, 1.0]


def test_no_token_gets_a_time_where_there_are_fewer_tokens_than_chunks():
    """Some chunk holds no whole token, and nobody knows which."""
    count = count_tokens(chunks("a", "b", "c"), Closing(at_s=2.0, num_output=2))
    assert (count.num_output, count.token_s) == (2, [])


@given(st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=20), st.integers(0, 50))
def test_every_token_has_one_time_and_every_chunk_a_token(texts, extra):
    """Whatever the texts, the shares add up and are at least one."""
    num_output = len(texts) + extra
    token_s = count_tokens(chunks(*texts), Closing(at_s=99.0, num_output=num_output)).token_s
    assert len(token_s) == num_output
    assert token_s == sorted(token_s)
    assert set(token_s) == {float(at) for at in range(len(texts))}
