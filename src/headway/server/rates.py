"""`x-ratelimit-*`: what is left of a caller's rates, in the words of OpenAI's API."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import Message, Send

from headway.tenancy import House, Rate, Tenant

NAMES = tuple(
    f"X-RateLimit-{what}-{kind}" for what in ("Limit", "Remaining", "Reset") for kind in ("Requests", "Tokens")
)


def telling_rates(send: Send, house: House, tenant: Tenant) -> Send:
    """The same `send`, whose answer begins with how its caller stands then; unchanged where nothing limits a rate."""
    if tenant.limits.requests_per_minute is None and tenant.limits.tokens_per_minute is None:
        return send

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_headers(house.gate.rates(tenant))]
        await send(message)

    return told


def _headers(rates: Iterable[Rate]) -> list[tuple[bytes, bytes]]:
    return [
        (f"x-ratelimit-{what}-{rate.kind}".encode(), value.encode())
        for rate in rates
        for what, value in (
            ("limit", str(rate.most)),
            ("remaining", str(rate.num_left)),
            ("reset", _duration(rate.reset_s)),
        )
    ]


def _duration(seconds: float) -> str:
    """As `1m30.5s`, `12s` or `0s`."""
    minutes, rest_s = divmod(round(seconds, 3), 60.0)
    return f"{minutes:.0f}m{round(rest_s, 3):g}s" if minutes else f"{round(rest_s, 3):g}s"
