"""A lost answer, as `requests` meets it: urllib3 sends the request again by itself."""

import sys

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

lossy, gateway = sys.argv[1:]
retry = Retry(total=5, allowed_methods=None, backoff_factor=0.1, status_forcelist=[409, 502, 503, 504])
session = requests.Session()
session.trust_env = False
session.mount("http://", HTTPAdapter(max_retries=retry))
order = dict(
    data=bytes(range(256)) * 100,
    headers={"Idempotency-Key": "requests-3f1c9a52d7", "Authorization": "Bearer token-of-a-customer"},
    timeout=60,
)

first = session.post(f"{lossy}/charges", **order)
assert first.status_code == 201, (first.status_code, first.text)
assert len(first.raw.retries.history) == 1, first.raw.retries.history
assert first.headers["Idempotency-Replayed"] == "true", first.headers
assert first.content[32:] == order["data"]

again = session.post(f"{gateway}/charges", **order)
assert again.content == first.content
assert again.headers["Location"] == first.headers["Location"] == "/charges/7"
assert again.headers["Operation-Id"] == first.headers["Operation-Id"]

other = session.post(f"{gateway}/charges", **(order | {"data": b"another payload"}))
assert other.status_code == 422, other.status_code
assert other.json()["code"] == "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"
print("done")
