"""Checks every vector with a second implementation, written from the READMEs alone.

Run it with `python3 vectors/check`. It needs nothing but Python's standard library.
"""

import json
import pathlib
import sys

import fingerprint
import ids
import inbox
import keys

HERE = pathlib.Path(__file__).resolve().parent.parent


class Tally:
    """Counts what agreed, and keeps what did not."""

    def __init__(self):
        self.agreed = 0
        self.unsupported = {}
        self.wrong = []

    def compare(self, what, expected, found):
        if expected == found:
            self.agreed += 1
        else:
            self.wrong.append(f"{what}: the vector has {expected!r}, this program has {found!r}")

    def cannot(self, coding):
        self.unsupported[coding] = self.unsupported.get(coding, 0) + 1


def load(path):
    cases = json.loads((HERE / path).read_bytes())
    assert cases, f"{path} holds no vectors"
    return cases


def main():
    tally = Tally()
    words = load("keys/weak-words.json")
    for case in load("keys/parse.json"):
        keys.check_parse(case, words, tally)
    for case in load("keys/source.json"):
        keys.check_source(case, tally)
    for case in load("keys/mint.json"):
        keys.check_mint(case, words, tally)
    for case in load("ids/ids.json"):
        ids.check(case, tally)
    for case in load("fingerprint/canonical-json.json"):
        fingerprint.check_json(case, tally)
    for case in load("fingerprint/requests.json"):
        fingerprint.check_request(case, tally)
    for case in load("fingerprint/equality.json"):
        fingerprint.check_equality(case, tally)
    for case in load("inbox/messages.json"):
        inbox.check_message(case, tally)
    for case in load("inbox/ids.json"):
        inbox.check_id(case, tally)
    for line in tally.wrong:
        print(line)
    for coding, count in sorted(tally.unsupported.items()):
        print(f"not checked: {count} with {coding}, which this Python has no decoder for")
    print(f"{tally.agreed} values agree, {len(tally.wrong)} differ")
    return 1 if tally.wrong else 0


sys.exit(main())
