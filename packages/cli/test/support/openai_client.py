"""Talks to a server with the official openai package and prints what it saw as one JSON object.

Usage: openai_client.py BASE_URL MODEL
"""

import asyncio
import json
import sys

import openai

base_url, model = sys.argv[1:3]
messages = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]
settings = {"model": model, "temperature": 0}


def streamed_chat(client):
    stream = client.chat.completions.create(
        messages=messages, max_tokens=48, stream=True, stream_options={"include_usage": True}, **settings
    )
    pieces, reasons, usage = [], [], None
    for chunk in stream:
        for choice in chunk.choices:
            if choice.delta.content:
                pieces.append(choice.delta.content)
            if choice.finish_reason:
                reasons.append(choice.finish_reason)
        usage = chunk.usage or usage
    return {"pieces": pieces, "reasons": reasons, "completion_tokens": usage.completion_tokens}


def streamed_completion(client):
    stream = client.completions.create(
        prompt="1, 2, 3, 4, 5, 6, 7,", max_tokens=12, stream=True, stream_options={"include_usage": True}, **settings
    )
    pieces, usage = [], None
    for chunk in stream:
        pieces.extend(choice.text for choice in chunk.choices)
        usage = chunk.usage or usage
    return {"text": "".join(pieces), "completion_tokens": usage.completion_tokens}


def refused(client):
    try:
        client.chat.completions.create(model="gpt-unknown", messages=messages)
    except openai.NotFoundError as error:
        return {"status": error.status_code, "code": error.code}
    return None


async def many_streams():
    async with openai.AsyncOpenAI(base_url=base_url, api_key="unused", max_retries=0) as client:

        async def one(index):
            stream = await client.completions.create(
                prompt=f"{index}, {index + 1},", max_tokens=8, stream=True, **settings
            )
            return "".join([choice.text async for chunk in stream for choice in chunk.choices])

        return await asyncio.gather(*(one(index) for index in range(6)))


with openai.OpenAI(base_url=base_url, api_key="unused", max_retries=0) as client:
    chat = client.chat.completions.create(messages=messages, max_tokens=48, **settings)
    completion = client.completions.create(prompt="1, 2, 3, 4, 5, 6, 7,", max_tokens=12, **settings)
    seen = {
        "version": openai.__version__,
        "models": [entry.id for entry in client.models.list()],
        "chat": {"text": chat.choices[0].message.content, "completion_tokens": chat.usage.completion_tokens},
        "streamed_chat": streamed_chat(client),
        "completion": completion.choices[0].text,
        "streamed_completion": streamed_completion(client),
        "refused": refused(client),
    }
seen["many"] = asyncio.run(many_streams())
print(json.dumps(seen))
