"""What can go wrong, as one tree.

    HeadwayError
    ├── InvalidRequest          the request is at fault          (HTTP 400)
    │   ├── PromptTooLong       prompt + output do not fit the context
    │   ├── UnknownModel        no such model here               (HTTP 404)
    │   └── Forbidden           not for this caller              (HTTP 403)
    ├── TooMany                 the caller's own limit is used up (HTTP 429)
    ├── Overloaded              refused at the door; try later   (HTTP 503)
    ├── BadModelFile            a weights or tokenizer file cannot be used
    ├── BadSetting              a flag, parameter or config value is out of range
    ├── PolicyFault             a policy made a plan that breaks its own limits, or raised
    └── ExecutorFault           a step failed on the device

Messages say the value, the limit and the way out. Our own mistakes are asserts, not these.
"""

from __future__ import annotations


class HeadwayError(Exception):
    """Base of everything Headway raises on purpose."""


class InvalidRequest(HeadwayError):
    """A request that no retry will make valid. `param` names the offending field, if one does."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class PromptTooLong(InvalidRequest):
    """Prompt, or prompt plus requested output, exceeds what one sequence may hold."""

    def __init__(self, num_prompt: int, num_output: int, limit: int, *, param: str | None = None) -> None:
        super().__init__(
            f"this server's context holds {limit} tokens, but the request needs {num_prompt + num_output} "
            f"({num_prompt} in the prompt, {num_output} for the output); shorten the prompt or lower max_tokens",
            param=param,
        )
        self.num_prompt, self.num_output, self.limit = num_prompt, num_output, limit


class UnknownModel(InvalidRequest):
    """The request names a model that this server does not serve."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"model {name!r} is not served here; available: {', '.join(known)}", param="model")
        self.name, self.known = name, known


class Forbidden(InvalidRequest):
    """The caller is known, but may not do this."""


class TooMany(HeadwayError):
    """A limit of the caller itself is used up: `limit` names it. In `retry_after_s` seconds it will not be."""

    def __init__(self, message: str, *, retry_after_s: float, limit: str) -> None:
        super().__init__(f"{message}; try again in {retry_after_s:.3g} s")
        self.retry_after_s, self.limit = retry_after_s, limit


class Overloaded(HeadwayError):
    """Refused for now. In `retry_after_s` seconds it is worth trying again; `cause` says in a word why."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0, cause: str = "overloaded") -> None:
        super().__init__(message)
        self.retry_after_s, self.cause = retry_after_s, cause


class BadModelFile(HeadwayError):
    """A model file is missing, truncated, of an unknown kind, or fails its checksum."""


class BadSetting(HeadwayError):
    """A setting cannot be honoured: unknown name, value out of range, or a contradiction."""


class PolicyFault(HeadwayError):
    """A policy's plan breaks the limits it declares, or it raised. A check stops the step before anything happens."""

    def __init__(self, policy: str, what: str, *, did: str = "made an invalid plan") -> None:
        super().__init__(f"policy {policy!r} {did}: {what}")
        self.policy, self.what = policy, what


class ExecutorFault(HeadwayError):
    """The executor could not run a step. `seq_ids` names the sequences at fault, empty when unknown."""

    def __init__(self, message: str, *, seq_ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.seq_ids = seq_ids
