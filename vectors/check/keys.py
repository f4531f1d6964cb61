"""vectors/keys: reading, finding and making keys."""

import hashlib
import re
import string
import uuid

import canonical_json

SEPARATORS = "-_.:"
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
EMAIL = re.compile(r"[A-Za-z0-9_+-](?:@|%40)(?P<domain>.*)", re.DOTALL)


class Refused(Exception):
    """A key that is not one; the argument is the name of the error."""


def visible(byte):
    if byte in (0x20, 0x09):
        raise Refused("space")
    if byte >= 0x80:
        raise Refused("non-ascii")
    if not 0x21 <= byte <= 0x7E:
        raise Refused("control")
    return chr(byte)


def quoted(line):
    text, at = "", 1
    while True:
        if at == len(line):
            raise Refused("unterminated")
        byte = line[at]
        at += 1
        if byte == 0x22:
            break
        if byte == 0x5C:
            if at == len(line):
                raise Refused("unterminated")
            if line[at] not in (0x22, 0x5C):
                raise Refused("bad-escape")
            text += chr(line[at])
            at += 1
        else:
            text += visible(byte)
    rest = line[at:].strip(b" \t")
    if rest:
        raise Refused({0x3B: "parameters", 0x2C: "several-keys"}.get(rest[0], "trailing-text"))
    return text


def bare(line):
    text = ""
    for byte in line:
        text += visible(byte)
        if byte in b',;"\\':
            raise Refused("needs-quotes")
    return text


def has_domain(text):
    """Labels, each with a dot after it, and a top-level domain after one of those dots."""
    while True:
        label = re.match(r"[A-Za-z0-9-]+\.", text)
        if not label:
            return False
        text = text[label.end():]
        top = re.match(r"[A-Za-z0-9]*", text).group()
        if len(top) >= 2 and (set(top) <= set(string.ascii_lowercase) or set(top) <= set(string.ascii_uppercase)):
            return True


def weakness(text, words):
    for at in range(len(text)):
        found = EMAIL.match(text, at)
        if found and has_domain(found["domain"]):
            return "weak-email"
    if len(set(text) - set(SEPARATORS)) <= 1:
        return "weak-repeated"
    pieces = "|".join(sorted(words, key=len, reverse=True))
    if re.fullmatch(f"(?:[-_.:]|{pieces})+", text, re.IGNORECASE | re.ASCII):
        return "weak-words"
    return None


def judge(text, low, high, weak, words):
    """The warning, if there is one."""
    if not text:
        raise Refused("empty")
    if len(text) < low:
        raise Refused("too-short")
    if len(text) > high:
        raise Refused("too-long")
    found = None if weak == "allow" else weakness(text, words)
    if found and weak == "refuse":
        raise Refused(found)
    return found


def read(lines, low, high, weak, words):
    if not lines:
        raise Refused("missing")
    if len(lines) > 1:
        raise Refused("several-lines")
    line = lines[0].strip(b" \t")
    text = quoted(line) if line.startswith(b'"') else bare(line)
    return text, judge(text, low, high, weak, words)


def written(text):
    if not set(text) & set(',;"\\'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def header_lines(case):
    if "lines" in case:
        return [line.encode() for line in case["lines"]]
    return [bytes.fromhex(line) for line in case["lines_hex"]]


def check_parse(case, words, tally):
    rules = case.get("rules", {"min": 16, "max": 255, "weak": "refuse"})
    expected = (case.get("key"), case.get("header"), case.get("warning"), case.get("error"))
    try:
        text, warning = read(header_lines(case), rules["min"], rules["max"], rules["weak"], words)
        found = (text, written(text), warning, None)
    except Refused as error:
        found = (None, None, None, str(error))
    tally.compare(case["name"], expected, found)


def from_source(text):
    if not text:
        raise Refused("empty")
    if len(text) > 255:
        raise Refused("too-long")
    if any(ord(character) < 0x20 or 0x7F <= ord(character) <= 0x9F for character in text):
        raise Refused("control")
    return text


def from_json(body, pointer):
    try:
        value = canonical_json.find(canonical_json.parse(body), pointer)
    except canonical_json.Malformed:
        raise Refused("malformed-body") from None
    if value is canonical_json.ABSENT:
        raise Refused("missing")
    if isinstance(value, canonical_json.Number):
        return from_source(value.text)
    if isinstance(value, str):
        return from_source(value)
    raise Refused("not-text")


def check_source(case, tally):
    expected = (case.get("key"), case.get("error"))
    try:
        if "text" in case:
            key = from_source(case["text"])
        elif "pointer" in case:
            key = from_json(case["json"].encode(), case["pointer"])
        else:
            key, _ = read(header_lines(case), 1, 255, "allow", [])
        found = (key, None)
    except Refused as error:
        found = (None, str(error))
    tally.compare(case["name"], expected, found)


def field(data):
    return len(data).to_bytes(8, "big") + data


def structured(parts, words):
    if not parts:
        raise Refused("no-parts")
    pieces = []
    for part in parts:
        if not part:
            raise Refused("empty-part")
        if any(ord(character) < 0x20 or 0x7F <= ord(character) <= 0x9F for character in part):
            raise Refused("control")
        encoded = part.encode()
        pieces.append("".join(f"%{byte:02X}" if byte >= 0x80 or byte in b':%,;"\\ ' else chr(byte) for byte in encoded))
    text = ":".join(pieces)
    judge(text, 16, 255, "refuse", words)
    return text


def ulid(milliseconds, random):
    number = milliseconds << 80 | int.from_bytes(random, "big")
    return "".join(CROCKFORD[number >> 5 * place & 31] for place in reversed(range(26)))


def mint(case, words):
    random = bytes.fromhex(case.get("random", ""))
    milliseconds = min(case.get("time_ms", 0), 2**48 - 1)
    parts = case.get("parts", [])
    if case["method"] == "uuid-v4":
        return str(uuid.UUID(bytes=random, version=4))
    if case["method"] == "uuid-v7":
        data = bytearray(milliseconds.to_bytes(6, "big") + random)
        data[6] = data[6] & 0x0F | 0x70
        data[8] = data[8] & 0x3F | 0x80
        return str(uuid.UUID(bytes=bytes(data)))
    if case["method"] == "ulid":
        return ulid(milliseconds, random)
    if case["method"] == "structured":
        return structured(parts, words)
    assert case["method"] == "sha256", case
    if not parts:
        raise Refused("no-parts")
    return hashlib.sha256(field(b"semel key v1") + b"".join(field(part.encode()) for part in parts)).hexdigest()


def check_mint(case, words, tally):
    try:
        found = (mint(case, words), None)
    except Refused as error:
        found = (None, str(error))
    tally.compare(case, (case.get("key"), case.get("error")), found)
