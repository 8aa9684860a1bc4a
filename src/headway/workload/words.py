"""Short, common English words: nearly every tokenizer has each as one token, with and without a space before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_TEXT = """
the of and to in is that for it as was with be by on not he his but at are this have from or had an they which
one you were all her she there would their we him been has when who will no more if out so up said what its
about than into them can only other time new some could these two may first then do any like my now over such
our man me even most made after also did many off before must well back through years much where your way down
should because long each just state those people too world good very make still see own work men day get here
between both life being under three never know same last another while us might great old year come since
against go came right used take house use during without again place few home small found part every once
general high upon school hand set end war name night side water city left point head given say large open case
light door room line help white four course number form young second money keep turn area hard past car far
power real paper group body ground land plan free call best road book order cost table fire care town early feel
love view action river morning death common full force top hold clear food short space field church north south
west east horse summer winter garden stone tree wind snow rain sun star sea fish bird dog cat bread milk sugar
salt iron gold silver wood glass cloth green red blue black brown grey round square deep wide cold warm quiet
slow fast strong weak rich poor safe near low
"""
CANDIDATES = tuple(_TEXT.split())


def single_token_words(encode: Callable[[str], Sequence[int]], candidates: Sequence[str] = CANDIDATES) -> list[str]:
    """Those words of which any sequence, joined by spaces, has exactly one token per word."""
    words = [word for word in candidates if len(encode(word)) == 1 and len(encode(f"the {word}")) == 2]
    # A tokenizer that merges across spaces would show it here.
    return words if len(encode(" ".join(words))) == len(words) else []
