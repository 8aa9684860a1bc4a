"""Talk to a running server with OpenAI's own client (pip install openai).

headway serve                                       # in another terminal
python examples/openai_client.py [URL]              # without it: http://127.0.0.1:8000/v1
"""

import sys

from openai import OpenAI


def main(url: str = "http://127.0.0.1:8000/v1") -> None:
    """Stream one answer and count its tokens."""
    client = OpenAI(base_url=url, api_key="none needed")
    model = client.models.list().data[0].id
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=24,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
        elif chunk.usage:
            print(f"\n({chunk.usage.prompt_tokens} + {chunk.usage.completion_tokens} tokens)")


if __name__ == "__main__":
    main(*sys.argv[1:2])
