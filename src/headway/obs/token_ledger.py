"""Where the machine's tokens went: each computed one is booked once, under one word and for one tenant.

A token of a sequence that lives is *open*: only its end tells whether it was worth computing. For one sequence, `pos`
is where its next token will be computed and `high` the most that was ever computed or found for it:

    granted n at pos ──▶ min(n, high − pos) of them recomputed, the rest open; then pos += n, high = max(high, pos)
    found h at admission ──▶ max(0, h − high) prefix-saved: computed for others, not for it
    the end ──▶ what is open becomes useful, or is thrown away
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from headway.core import (
    Admitted,
    Arrived,
    Event,
    Finished,
    FinishReason,
    Preempted,
    PreemptMethod,
    Rejected,
    Request,
    Resumed,
    SequenceFinished,
    StepRecord,
)

MAX_TENANTS = 100
OTHER = "_other"  # no tenant can be called so: names begin with a letter or a digit


class Entry(StrEnum):
    """What a token was. All but the first were computed."""

    PREFIX_SAVED = "prefix_saved"  # found in the prefix cache
    USEFUL = "useful"  # of an answer that came to its end
    RECOMPUTED = "recomputed"  # was there before a preemption
    ABORTED = "aborted"  # of an answer that nobody wanted any more
    EXPIRED = "expired"  # of an answer whose time was over
    FAILED = "failed"  # of a step that broke, or of an answer that a broken step ended
    REFUSED = "refused"  # of a request that was begun and then refused
    PADDING = "padding"  # rows that fill a shape, or of sequences that had ended
    REJECTED_DRAFT = "rejected_draft"  # guessed ahead in vain; no executor guesses yet


_ENDS = {
    FinishReason.STOP: Entry.USEFUL,
    FinishReason.LENGTH: Entry.USEFUL,
    FinishReason.ABORT: Entry.ABORTED,
    FinishReason.DEADLINE: Entry.EXPIRED,
    FinishReason.ERROR: Entry.FAILED,
}


@dataclass(slots=True)
class _Account:
    """One sequence. `last` is its latest grant, should that have to be undone: (pos, high, tokens) before it."""

    pos: int = 0
    high: int = 0
    num_open: int = 0
    is_on_device: bool = True
    end: Entry | None = None
    last: tuple[int, int, int] = (0, 0, 0)


@dataclass(slots=True)
class _File:
    """One request and its sequences."""

    request: Request
    accounts: dict[str, _Account] = field(default_factory=dict)

    def account(self, seq_id: str) -> _Account:
        """The account of a sequence; one that was forked begins where the prompt ends."""
        account = self.accounts.get(seq_id)
        if account is None:
            start = 0 if seq_id == self.request.id else self.request.num_prompt
            account = self.accounts[seq_id] = _Account(start, start)
        return account


@dataclass(frozen=True, slots=True)
class Books:
    """The ledger at one moment: tokens by tenant and entry, open ones by tenant, all that were computed."""

    booked: dict[str, Counter[Entry]]
    num_open: dict[str, int]
    num_computed: int

    @property
    def error(self) -> int:
        """Computed, less booked and open: 0."""
        booked = sum(entries.total() - entries[Entry.PREFIX_SAVED] for entries in self.booked.values())
        return self.num_computed - booked - sum(self.num_open.values())


class TokenLedger:
    """The books of one engine, kept from its events. The sums always agree; `check` says so.

    The first `MAX_TENANTS` tenants keep a name of their own, all others are `_other`. Safe from any thread.
    """

    def __init__(self, block_size: int = 1) -> None:
        self._block_size = block_size
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}
        self._booked: dict[str, Counter[Entry]] = {}
        self._over: list[str] = []
        self._num_computed = 0

    def on_events(self, events: Iterable[Event]) -> None:
        """Book what happened; called in the engine's thread, with all events of a step at once."""
        with self._lock:
            for event in events:
                self._take(event)
            for name in self._over:  # not before: the step's record stands behind the ends that it brought
                self._close(name)
            self._over.clear()

    def books(self) -> Books:
        """A copy of everything, consistent with itself."""
        with self._lock:
            num_open = dict.fromkeys(self._booked, 0)
            for file in self._files.values():
                num_open[self._label(file.request.tenant)] += sum(one.num_open for one in file.accounts.values())
            booked = {tenant: Counter(entries) for tenant, entries in self._booked.items()}
            return Books(booked, num_open, self._num_computed)

    def blocks_held(self) -> dict[str, int]:
        """Blocks in the block tables of each tenant's sequences; one that several share counts for each of them."""
        with self._lock:
            held = dict.fromkeys(self._booked, 0)
            for file in self._files.values():
                held[self._label(file.request.tenant)] += sum(
                    -(-account.pos // self._block_size)
                    for account in file.accounts.values()
                    if account.is_on_device and account.end is None
                )
        return held

    def check(self) -> None:
        """What was computed is what is booked and what is open, and nothing is below zero."""
        books = self.books()
        assert books.error == 0, f"{books.num_computed} tokens computed, {books.error} more than booked and open"
        assert all(num >= 0 for entries in books.booked.values() for num in entries.values()), "a negative entry"
        assert all(num >= 0 for num in books.num_open.values()), "fewer than no tokens are open"

    def _take(self, event: Event) -> None:
        match event:
            case Arrived(request, _):
                self._files[request.id] = _File(request)
                self._label(request.tenant)
            case Admitted() | Preempted() | Resumed() | SequenceFinished():
                if (file := self._files.get(event.request_id)) is not None:
                    self._move(file, event)
            case StepRecord():
                self._add_step(event)
            case Finished(request=request):
                self._over.append(request.id)
            case Rejected(request=request):
                if (file := self._files.get(request.id)) is not None:
                    for account in file.accounts.values():
                        account.end = account.end or Entry.REFUSED
                    self._over.append(request.id)
            case _:
                pass

    def _move(self, file: _File, event: Admitted | Preempted | Resumed | SequenceFinished) -> None:
        account = file.account(event.seq_id)
        match event:
            case Admitted(num_cached=num_found):
                self._book(file.request, Entry.PREFIX_SAVED, max(0, num_found - account.high))
                account.pos, account.high = num_found, max(account.high, num_found)
                account.is_on_device = True
            case Preempted(method=method):
                account.is_on_device = method is PreemptMethod.PARTIAL
            case Resumed():
                account.is_on_device = True
            case SequenceFinished(reason=reason):
                account.end = _ENDS[reason]

    def _add_step(self, record: StepRecord) -> None:
        for seq_id, num in record.grants.items():
            if (file := self._file_of(seq_id)) is not None:
                self._grant(file, seq_id, num)
        for seq_id in record.lost:
            if (file := self._file_of(seq_id)) is not None:
                self._undo(file, seq_id)
        for rows in (record.padding, record.wasted_rows):
            for seq_id, num in rows.items():
                if (file := self._file_of(seq_id)) is not None:
                    self._num_computed += num
                    self._book(file.request, Entry.PADDING, num)

    def _grant(self, file: _File, seq_id: str, num: int) -> None:
        account = file.account(seq_id)
        account.last = account.pos, account.high, num
        num_again = min(num, max(0, account.high - account.pos))
        self._num_computed += num
        self._book(file.request, Entry.RECOMPUTED, num_again)
        account.num_open += num - num_again
        account.pos += num
        account.high = max(account.high, account.pos)

    def _undo(self, file: _File, seq_id: str) -> None:
        """The step of a grant broke: its rows were computed for nothing, and are to be computed again."""
        account = file.account(seq_id)
        pos, high, num = account.last
        num_again = min(num, max(0, high - pos))
        self._book(file.request, Entry.RECOMPUTED, -num_again)
        self._book(file.request, Entry.FAILED, num)
        account.num_open -= num - num_again
        account.pos, account.high, account.last = pos, high, (pos, high, 0)

    def _close(self, name: str) -> None:
        file = self._files.pop(name, None)
        if file is not None:
            for account in file.accounts.values():
                self._book(file.request, account.end or Entry.ABORTED, account.num_open)

    def _file_of(self, seq_id: str) -> _File | None:
        """A sequence's request: its own id, or that before the last slash where it is one of several choices."""
        return self._files.get(seq_id) or self._files.get(seq_id.rpartition("/")[0])

    def _book(self, request: Request, entry: Entry, num: int) -> None:
        if num:
            self._booked[self._label(request.tenant)][entry] += num

    def _label(self, tenant: str) -> str:
        label = tenant if tenant in self._booked or len(self._booked) < MAX_TENANTS else OTHER
        self._booked.setdefault(label, Counter())
        return label
