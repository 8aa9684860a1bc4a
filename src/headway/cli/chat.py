"""`headway chat`: talk to a server from the terminal."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Annotated, Any

import typer

from headway.cli.client import Client
from headway.cli.flags import ApiKey, MaxTokens, SampleSeed, ServedModel, Temperature, TopP, Url
from headway.cli.output import print_pieces
from headway.cli.piped import is_typed, piped_text
from headway.cli.sampling import given
from headway.errors import BadSetting

HELP = "/reset forgets the conversation, /exit leaves, Ctrl-C stops an answer."


def chat(
    message: Annotated[
        str | None, typer.Argument(metavar="MESSAGE", help="Ask this once and leave. Without it: a conversation.")
    ] = None,
    *,
    url: Url = "http://127.0.0.1:8000",
    api_key: ApiKey = None,
    model: ServedModel = None,
    system: Annotated[str | None, typer.Option(help="A system message to begin with.", show_default=False)] = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    seed: SampleSeed = None,
) -> None:
    """Talk to a server; the answer streams in. A piped stdin is one message."""
    if message is None and not is_typed():
        message = piped_text()
    if message is not None and not message.strip():
        raise BadSetting("there is nothing to ask; give MESSAGE, or pipe one in")
    with Client(url, api_key) as client:
        body = given(
            model=model or client.first_model(),
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
        )
        talk = Conversation(client, system, body)
        if message is not None:
            print_pieces(talk.ask(message))
            return
        print(HELP, file=sys.stderr)
        converse(talk)


class Conversation:
    """What was said so far. A question without any answer is forgotten again."""

    def __init__(self, client: Client, system: str | None, body: dict[str, Any]) -> None:
        self._client = client
        self._body = body
        self._opening = [{"role": "system", "content": system}] if system else []
        self.messages = list(self._opening)

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.messages = list(self._opening)

    def ask(self, question: str) -> Generator[str, None, None]:
        """The answer, piece by piece; what came of it is remembered even if the caller stops early."""
        asked = [*self.messages, {"role": "user", "content": question}]
        answer = ""
        try:
            for piece in self._client.chat(asked, self._body):
                answer += piece
                yield piece
        finally:
            if answer:
                self.messages = [*asked, {"role": "assistant", "content": answer}]


def converse(talk: Conversation) -> None:
    """Questions from the terminal until /exit or the end of input."""
    from contextlib import closing, suppress

    with suppress(ImportError):  # absent on some systems; then the arrow keys do nothing
        import readline  # noqa: F401  line editing for input()
    while True:
        try:
            question = input("> ").strip()
        except EOFError:
            print()
            return
        match question:
            case "":
                continue
            case "/exit" | "/quit":
                return
            case "/reset":
                talk.reset()
                continue
        with closing(talk.ask(question)) as pieces:
            try:
                print_pieces(pieces)
            except KeyboardInterrupt:
                print()
