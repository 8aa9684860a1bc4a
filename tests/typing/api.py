"""The public API as a user's program spells it. Never run: mypy --strict reads it, so a broken signature shows."""

from headway import LLM, AsyncLLM, SamplingParams, __version__


def offline() -> list[str]:
    """Prompts in, texts out, with the default model."""
    llm = LLM()
    params = SamplingParams(temperature=0.8, top_p=0.95, seed=7, max_tokens=32, stop=("\n",))
    answers = llm.generate(["The capital of France is", "Two and two make"], params)
    return [answer.text for answer in answers]


def chat() -> str:
    """A conversation in OpenAI's shape."""
    answer = LLM().chat([{"role": "user", "content": "What is the capital of France?"}])[0]
    first = answer.choices[0]
    num_tokens: int = answer.usage.num_prompt + answer.usage.num_output
    return f"{first.text} ({first.finish_reason}, {num_tokens} tokens, headway {__version__})"


async def streaming(llm: AsyncLLM) -> str:
    """Pieces as they come; stop after enough."""
    llm.start()
    stream = llm.submit(llm.encode("Once upon a time"), SamplingParams(max_tokens=None), priority=1)
    text = ""
    async for delta in stream:
        text += delta.text
        if len(text) > 200:
            stream.abort()
    if stream.usage is not None:
        text += f" [{stream.usage.num_output} tokens]"
    await llm.close()
    return text
