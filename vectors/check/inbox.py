"""vectors/inbox: fingerprints of messages, and ids of several parts."""

import fingerprint
from canonical_json import Malformed


def check_message(case, tally):
    request = {"method": "", "operation": "", "path": "", "body": case["body"]}
    if case["form"] == "json":
        request["content_type"] = "application/json"
    try:
        canonical, digest = fingerprint.fingerprint(request)
    except Malformed:
        tally.compare(case["why"], case.get("error"), "Malformed")
        return
    tally.compare(case["why"], case.get("fingerprint"), digest)
    if "canonical_body" in case:
        tally.compare(case["why"], case["canonical_body"], canonical.decode("utf-8", "replace"))


def check_id(case, tally):
    found = "".join(f"\x1f{len(part.encode())}:{part}" for part in case["parts"])
    tally.compare(case["why"], case["id"], found)
