"""Complete and chat without a server.

python examples/offline.py [MODEL]      # a .gguf file, a folder or a catalogue name; without it, the default model
"""

import sys

from headway import LLM, SamplingParams


def main(model: str | None = None) -> None:
    """All prompts of one call are batched together; each may have its own sampling."""
    llm = LLM(model)
    prompts = ["The capital of France is", "One, two, three,"]
    greedy, drawn = SamplingParams(temperature=0, max_tokens=16), SamplingParams(seed=7, max_tokens=16, stop=("\n",))
    for prompt, answer in zip(prompts, llm.generate(prompts, [greedy, drawn]), strict=True):
        print(f"{prompt!r} -> {answer.text!r} ({answer.choices[0].finish_reason})")

    messages = [{"role": "user", "content": "What is the capital of France?"}]
    [answer] = llm.chat(messages, greedy)
    print(answer.text, f"({answer.usage.num_prompt} + {answer.usage.num_output} tokens)")
    llm.close()


if __name__ == "__main__":
    main(*sys.argv[1:2])
