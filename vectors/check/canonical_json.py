"""JSON bodies: a strict reader, pointers, and the canonical text."""

import re

ABSENT = object()
DEPTH_MAX = 128
NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Malformed(Exception):
    """A body that is not what its type says."""


class Number:
    """A number by its canonical text."""

    def __init__(self, text):
        self.text = text


def decimal(digits):
    """An integer from any number of digits, past the limit that int() has."""
    value = 0
    for start in range(0, len(digits), 4000):
        piece = digits[start:start + 4000]
        value = value * 10 ** len(piece) + int(piece)
    return value


def number(match):
    sign, whole, fraction, exponent = match.groups()
    run = whole + (fraction or "")
    kept = run.rstrip("0")
    power = -len(fraction or "") + len(run) - len(kept)
    if exponent:
        size = decimal(exponent.lstrip("+-"))
        power += -size if exponent.startswith("-") else size
    kept = kept.lstrip("0")
    if not kept:
        return Number("0")
    return Number(sign + kept + (f"e{power}" if power else ""))


class Reader:
    def __init__(self, text):
        self.text, self.at = text, 0

    def peek(self):
        return self.text[self.at:self.at + 1]

    def space(self):
        while self.peek() and self.peek() in " \t\n\r":
            self.at += 1

    def take(self, expected):
        if not self.text.startswith(expected, self.at):
            raise Malformed(self.at)
        self.at += len(expected)

    def value(self, depth):
        self.space()
        start = self.peek()
        if start in ("{", "["):
            if depth == DEPTH_MAX:
                raise Malformed(self.at)
            found = self.object(depth + 1) if start == "{" else self.array(depth + 1)
        elif start == '"':
            found = self.string()
        elif match := NUMBER.match(self.text, self.at):
            self.at = match.end()
            found = number(match)
        else:
            for word, meaning in (("true", True), ("false", False), ("null", None)):
                if self.text.startswith(word, self.at):
                    self.at += len(word)
                    found = meaning
                    break
            else:
                raise Malformed(self.at)
        self.space()
        return found

    def array(self, depth):
        self.take("[")
        self.space()
        items = []
        if self.peek() != "]":
            items.append(self.value(depth))
            while self.peek() == ",":
                self.at += 1
                items.append(self.value(depth))
        self.take("]")
        return items

    def object(self, depth):
        self.take("{")
        self.space()
        members = {}
        while self.peek() != "}":
            if members:
                self.take(",")
                self.space()
            name = self.string()
            self.space()
            self.take(":")
            value = self.value(depth)
            if name in members:
                raise Malformed(self.at)
            members[name] = value
        self.take("}")
        return members

    def string(self):
        self.take('"')
        text = ""
        while True:
            character = self.peek()
            self.at += 1
            if character == '"':
                break
            if not character or character < " ":
                raise Malformed(self.at)
            if character == "\\":
                character = self.escape()
            text += character
        try:
            # Puts pairs of surrogates together and refuses those that have no other half.
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise Malformed(self.at) from None

    def escape(self):
        kind = self.peek()
        self.at += 1
        if kind in ESCAPES:
            return ESCAPES[kind]
        digits = self.text[self.at:self.at + 4]
        if kind != "u" or not re.fullmatch("[0-9a-fA-F]{4}", digits):
            raise Malformed(self.at)
        self.at += 4
        return chr(int(digits, 16))


def parse(body):
    try:
        reader = Reader(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise Malformed(0) from None
    value = reader.value(0)
    if reader.peek():
        raise Malformed(reader.at)
    return value


def steps(pointer):
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def is_index(step):
    return re.fullmatch("0|[1-9][0-9]*", step, re.ASCII) is not None


def find(value, pointer):
    for step in steps(pointer):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and is_index(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return ABSENT
    return value


def quote(text):
    out = '"'
    for character in text:
        if character in '"\\':
            out += "\\" + character
        elif character < " ":
            out += f"\\u{ord(character):04x}"
        else:
            out += character
    return out + '"'


def canonical(value, excluded=frozenset(), path=()):
    """The canonical text, without the places whose steps are in `excluded`."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, list):
        kept = [(str(index), item) for index, item in enumerate(value) if path + (str(index),) not in excluded]
        return "[" + ",".join(canonical(item, excluded, path + (step,)) for step, item in kept) + "]"
    if isinstance(value, dict):
        kept = [name for name in sorted(value, key=str.encode) if path + (name,) not in excluded]
        return "{" + ",".join(f"{quote(name)}:{canonical(value[name], excluded, path + (name,))}" for name in kept) + "}"
    return {None: "null", True: "true", False: "false"}[value]


def places(value, include, exclude):
    """The canonical text of the kind *JSON places*, or of the whole body where nothing is included."""
    excluded = {tuple(steps(pointer)) for pointer in exclude}
    if not include:
        return canonical(value, excluded)
    members = []
    for pointer in sorted(set(include), key=str.encode):
        path = tuple(steps(pointer))
        found = find(value, pointer)
        if any(path[:length] in excluded for length in range(1, len(path) + 1)):
            found = ABSENT
        text = "absent" if found is ABSENT else canonical(found, excluded, path)
        members.append(f"{quote(pointer)}:{text}")
    return "{" + ",".join(members) + "}"
