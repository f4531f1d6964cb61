"""vectors/fingerprint: canonical bodies and the digest over a whole request."""

import hashlib

import bodies
import canonical_json
from canonical_json import Malformed

EMPTY, EXACT, JSON, FORM, MULTIPART, PLACES = (bytes([kind]) for kind in range(6))


def count(number):
    return number.to_bytes(8, "big")


def field(data):
    return count(len(data)) + data


def raw(value):
    return value["text"].encode() if "text" in value else bytes.fromhex(value["hex"])


def understood(request, body, media, codings):
    """The kind of the body, and the body in its canonical form."""
    if not body:
        return EMPTY, b""
    if codings or media is None:
        return EXACT, body
    if media.is_json():
        value = canonical_json.parse(body)
        include, exclude = request.get("include", []), request.get("exclude", [])
        return PLACES if include else JSON, canonical_json.places(value, include, exclude).encode()
    if media.essence == b"application/x-www-form-urlencoded":
        return FORM, bodies.form(body)
    if media.essence == b"multipart/form-data":
        return MULTIPART, bodies.multipart(body, (media.parameters or {}).get(b"boundary"))
    return EXACT, body


def content_type(types, media, kind):
    if not types:
        return b"\0"
    normal = media.normal([b"boundary"] if kind == MULTIPART else []) if media else None
    return b"\2" + field(types[0]) if normal is None else b"\1" + field(normal)


def headers(request):
    chosen = sorted({name.lower() for name in request.get("select_headers", [])})
    out = count(len(chosen))
    for name in chosen:
        values = [value.encode() for sent, value in request.get("headers", []) if sent.lower() == name]
        out += field(name.encode()) + count(len(values)) + b"".join(map(field, values))
    return out


def fingerprint(request):
    """The canonical body and the digest."""
    types = request.get("content_type", [])
    types = [line.encode() for line in ([types] if isinstance(types, str) else types)]
    if len(types) > 1 or any(len(line) > 8192 for line in types):
        raise Malformed("content type")
    media = bodies.media_type(types[0]) if types else None
    lines = [line.encode() for line in request.get("content_encoding", [])]
    body, codings = bodies.decode(lines, raw(request["body"]) if "body" in request else b"")
    kind, canonical = understood(request, body, media, codings)
    query = request.get("query")
    data = b"semel-fingerprint\0\1"
    data += field(request.get("method", "POST").encode())
    data += field(request.get("operation", "/payments").encode())
    data += field(request.get("path", "/payments").encode())
    data += b"\0" if query is None else b"\1" + field(query.encode())
    data += content_type(types, media, kind) + headers(request)
    data += count(len(codings)) + b"".join(map(field, codings))
    return canonical, hashlib.sha256(data + kind + canonical).hexdigest()


def check_json(case, tally):
    try:
        found = canonical_json.canonical(canonical_json.parse(raw(case["input"])))
    except Malformed:
        found = None
    tally.compare(case["why"], case.get("canonical"), found)


def check_request(case, tally):
    try:
        canonical, digest = fingerprint(case["request"])
    except bodies.Unsupported as coding:
        tally.cannot(str(coding))
        return
    except Malformed:
        tally.compare(case["why"], case.get("error"), "Malformed")
        return
    tally.compare(case["why"], case.get("fingerprint"), digest)
    if "canonical_body" in case:
        tally.compare(case["why"], case["canonical_body"], canonical.decode("utf-8", "replace"))


def check_equality(case, tally):
    seen = set()
    for group in case["groups"]:
        digests = set()
        for request in group:
            try:
                digests.add(fingerprint(request)[1])
            except bodies.Unsupported as coding:
                tally.cannot(str(coding))
        tally.compare(f"{case['why']}: equal within a list", 1, max(len(digests), 1))
        tally.compare(f"{case['why']}: unequal between lists", set(), digests & seen)
        seen |= digests
