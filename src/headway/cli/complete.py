"""`headway complete`: continue a text with a server."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headway.cli.client import Client
from headway.cli.flags import ApiKey, MaxTokens, SampleSeed, ServedModel, Stops, Temperature, TopP, Url
from headway.cli.output import print_pieces
from headway.cli.piped import is_typed, piped_text
from headway.cli.sampling import given
from headway.errors import BadSetting


def complete(
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="The text to continue. Without it: stdin.")
    ] = None,
    *,
    url: Url = "http://127.0.0.1:8000",
    api_key: ApiKey = None,
    model: ServedModel = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    seed: SampleSeed = None,
    stop: Stops = None,
) -> None:
    """Continue a text; what the model writes streams in, the prompt is not repeated."""
    if prompt is None:
        if is_typed():
            print("Write the text to continue, then Ctrl-D.", file=sys.stderr)
        prompt = piped_text()
    if not prompt:
        raise BadSetting("there is no text to continue; give PROMPT, or pipe one in")
    with Client(url, api_key) as client:
        body = given(
            model=model or client.first_model(),
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
            stop=stop,
        )
        print_pieces(client.complete(prompt, body))
