"""Stream two answers at once from one engine, and stop one of them early.

python examples/stream.py [MODEL]      # a .gguf file, a folder or a catalogue name; without it, the default model
"""

import asyncio
import sys

from headway import AsyncLLM, SamplingParams


async def tell(llm: AsyncLLM, prompt: str, most_chars: int) -> str:
    """The beginning of a continuation: aborted, and its memory free, once there is enough of it."""
    text = ""
    stream = llm.submit(llm.encode(prompt), SamplingParams(max_tokens=32, seed=1))
    async for delta in stream:
        text += delta.text
        if len(text) >= most_chars:
            stream.abort()
        if delta.finish_reason is not None:
            print(f"{prompt!r} -> {text!r} ({delta.finish_reason})")
    return text


async def main(model: str | None = None) -> None:
    """Both requests share every step of the model."""
    async with AsyncLLM(model) as llm:
        await asyncio.gather(tell(llm, "Once upon a time", 1000), tell(llm, "The sea was", 20))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
