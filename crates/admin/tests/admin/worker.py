"""A worker that knows nothing of Semel but its claims API.

Makes one effect in a folder that stands for the provider, and tells what it does on standard output. With `stall` it waits
for ever after the effect, so that it can be killed there. A provider that deduplicates keeps one file for each operation id;
one that does not writes a line for every request it gets.
"""

import json
import os
import sys
import urllib.error
import urllib.request

BASE, PROVIDER, EFFECT_CLASS, STALL = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "stall"


def say(*words):
    print(*words, flush=True)


def post(path, document):
    request = urllib.request.Request(
        BASE + path, json.dumps(document).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


def charge(operation_id):
    if EFFECT_CLASS == "downstream":
        try:
            os.close(os.open(os.path.join(PROVIDER, operation_id), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            say("deduplicated", operation_id)
    else:
        with open(os.path.join(PROVIDER, "ledger"), "a") as ledger:
            ledger.write(operation_id + "\n")


status, claim = post(
    "/v1/claims",
    {
        "operation": "charge",
        "key": "order-1234-charge",
        "payload": {"amount": 5},
        "class": EFFECT_CLASS,
        "leaseMs": 5000,
    },
)
if status == 200:
    say("replayed", claim["state"], claim["response"]["body"])
    sys.exit(0)
if status != 201:
    say("refused", status, claim["code"])
    sys.exit(0)
path, token = "/v1/claims/" + claim["operationId"], claim["token"]
say("claimed", claim["operationId"], claim["attempt"])
status, _ = post(path + "/renew", {"token": token})
if status != 200:
    say("lost")
    sys.exit(1)
charge(claim["operationId"])
say("charged")
if STALL:
    sys.stdin.read()
status, ended = post(path + "/outcome", {"token": token, "outcome": "succeeded", "response": {"status": 201, "body": "paid"}})
say("ended", status, ended.get("state"))
