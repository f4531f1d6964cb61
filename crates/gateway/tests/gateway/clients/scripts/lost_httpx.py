"""A lost answer, as `httpx` meets it over HTTP/2 and TLS, and many tasks with one key at once."""

import asyncio
import ssl
import sys

import httpx

lossy, gateway, certificate = sys.argv[1:]
settings = dict(
    http2=True,
    verify=ssl.create_default_context(cafile=certificate),
    trust_env=False,
    timeout=60,
    headers={"Authorization": "Basic Y3VzdG9tZXI6c2VjcmV0"},
)
order = dict(json={"amount": 2500, "note": "Regenschirm ☂"}, headers={"Idempotency-Key": '"httpx-3f1c9a52d7ab"'})

with httpx.Client(**settings) as client:
    try:
        client.post(f"{lossy}/charges", **order)
        sys.exit("the answer was not lost")
    except httpx.TransportError as error:
        print("lost:", type(error).__name__)
    first = client.post(f"{lossy}/charges", **order)
    assert (first.status_code, first.http_version) == (201, "HTTP/2"), first
    assert first.headers["Idempotency-Replayed"] == "true", first.headers
    again = client.post(f"{gateway}/charges", **order)
    assert again.content == first.content


async def together():
    key = {"Idempotency-Key": "httpx-together-3f1c9a"}
    async with httpx.AsyncClient(**settings) as client:
        ask = lambda: client.post(f"{gateway}/charges", json={"amount": 1}, headers=key)
        answers = await asyncio.gather(*(ask() for _ in range(40)))
    assert {answer.status_code for answer in answers} == {201}, answers
    assert {answer.http_version for answer in answers} == {"HTTP/2"}
    assert len({answer.content for answer in answers}) == 1
    assert sum("Idempotency-Replayed" not in answer.headers for answer in answers) == 1


asyncio.run(together())
print("done")
