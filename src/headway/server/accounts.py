"""Whom a server serves and what they use: the tenants, and where their usage is kept."""

from __future__ import annotations

from pathlib import Path

from headway.server.config import ServerConfig
from headway.tenancy import House, UsageBook, UsageStore, UsageWriter, open_store


class Accounts:
    """The house of tenants, the book of what they use, and the thread that writes it down, if it is kept."""

    def __init__(self, house: House, book: UsageBook, store: UsageStore | None = None) -> None:
        self.house, self.book = house, book
        self._writer = None if store is None else UsageWriter(book, store)

    @classmethod
    def open(cls, config: ServerConfig, model_name: str) -> Accounts:
        """As the config says. Raises `BadSetting` for a file or a store that cannot be used."""
        url = usage_url(config)
        house = House.open(config.tenants)
        return cls(house, UsageBook(model_name), None if url is None else open_store(url))

    def start(self) -> None:
        """Begin to write usage down."""
        if self._writer is not None:
            self._writer.start()

    def close(self) -> None:
        """Write the last of it. Blocks for one write."""
        if self._writer is not None:
            self._writer.close()


def check_accounts(config: ServerConfig) -> None:
    """Raise `BadSetting` where the tenants file or the usage store cannot be used: known before a model is loaded."""
    Accounts.open(config, "")


def usage_url(config: ServerConfig) -> str | None:
    """Where usage is kept: as set, else in a file beside the tenants; None without tenants: nowhere."""
    if config.usage_store or config.tenants is None:
        return config.usage_store or None
    return f"sqlite:///{usage_path(config.tenants)}"


def usage_path(tenants: Path) -> Path:
    """The file beside a tenants file where usage is kept unless another place is set."""
    return tenants.with_suffix(".usage.sqlite")
