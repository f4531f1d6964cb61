"""Content types, content codings, forms and multipart bodies."""

import re
import zlib

from canonical_json import Malformed

SPACE = b" \t\n\x0c\r"
TOKEN = rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
PARAMETER = re.compile(rb"(" + TOKEN + rb")=(?:(" + TOKEN + rb')|"((?:\\["\\]|[^"])*)")')
UNRESERVED = re.compile(rb"[A-Za-z0-9._~-]")


class Unsupported(Exception):
    """A coding that Python's standard library has no decoder for."""


class MediaType:
    """`parameters` is None where they cannot be read."""

    def __init__(self, essence, parameters):
        self.essence, self.parameters = essence, parameters

    def is_json(self):
        if self.essence.startswith(b"application/grpc"):
            return False
        return self.essence == b"application/json" or self.essence.endswith(b"+json")

    def normal(self, without=()):
        if self.parameters is None:
            return None
        out = self.essence
        for name, value in sorted(self.parameters.items()):
            if name in without or (name == b"charset" and self.is_json()):
                continue
            if name == b"charset":
                value = value.lower()
            if not re.fullmatch(TOKEN, value):
                value = b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
            out += b";" + name + b"=" + value
        return out


def parameters(text):
    """Names and values, or None where the text is anything else, or names one twice."""
    found = {}
    while True:
        rest = text.lstrip(SPACE)
        if not rest:
            return found
        text = rest.lstrip(b";" + SPACE)
        if text == rest:
            return None
        if not text:
            return found
        match = PARAMETER.match(text)
        if not match or match[1].lower() in found:
            return None
        value = match[2] if match[3] is None else re.sub(rb'\\(["\\])', rb"\1", match[3])
        found[match[1].lower()] = value
        text = text[match.end():]


def media_type(value):
    value = value.strip(SPACE)
    match = re.match(TOKEN + b"/" + TOKEN, value)
    if not match:
        return None
    rest = value[match.end():]
    if rest.lstrip(SPACE)[:1] not in (b"", b";"):
        return None
    return MediaType(match[0].lower(), parameters(rest))


def gunzip(body):
    out, members = b"", 0
    while body:
        members += 1
        decoder = zlib.decompressobj(wbits=31)
        try:
            out += decoder.decompress(body)
        except zlib.error:
            raise Malformed("gzip") from None
        if not decoder.eof or members > 4096:
            raise Malformed("gzip")
        body = decoder.unused_data
    return out


def inflate(body, wbits):
    decoder = zlib.decompressobj(wbits=wbits)
    try:
        out = decoder.decompress(body)
    except zlib.error:
        raise Malformed("deflate") from None
    if not decoder.eof or decoder.unused_data:
        raise Malformed("deflate")
    return out


def undeflate(body):
    if len(body) > 1 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0:
        try:
            return inflate(body, 15)
        except Malformed:
            pass
    return inflate(body, -15)


def decode(lines, body):
    """The body with its coding undone, and the codings that are left on it."""
    if not body:
        return body, []
    names = [name.strip(SPACE).lower() for line in lines for name in line.split(b",")]
    names = [name for name in names if name not in (b"", b"identity")]
    if len(names) > 4:
        raise Malformed("codings")
    if any(name not in (b"gzip", b"x-gzip", b"deflate", b"br", b"zstd") for name in names):
        return body, names
    if len(names) > 1:
        raise Malformed("codings")
    if not names:
        return body, []
    if names[0] in (b"br", b"zstd"):
        raise Unsupported(names[0].decode())
    return (undeflate if names[0] == b"deflate" else gunzip)(body), []


def unescape(text):
    text = text.replace(b"+", b" ")
    return re.sub(rb"%([0-9a-fA-F]{2})", lambda match: bytes([int(match[1], 16)]), text)


def escape(data):
    return b"".join(bytes([byte]) if UNRESERVED.match(bytes([byte])) else b"%%%02X" % byte for byte in data)


def form(body):
    pairs = []
    for piece in body.split(b"&"):
        if piece:
            name, _, value = piece.partition(b"=")
            pairs.append((unescape(name), unescape(value)))
    pairs.sort(key=lambda pair: pair[0])
    return b"&".join(escape(name) + b"=" + escape(value) for name, value in pairs)


def head(body, start):
    """The headers of the part at `start` that count, and where its data begins."""
    end, at, found = min(len(body), start + 16384), start, {}
    while True:
        line_end = body.find(b"\r\n", at, end)
        if line_end < 0:
            raise Malformed("head")
        line, at = body[at:line_end], line_end + 2
        if not line:
            return found, at
        if re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", line) or line.startswith(b"--"):
            raise Malformed("head line")
        match = re.match(rb"(" + TOKEN + rb"):", line)
        if not match:
            raise Malformed("head line")
        name = match[1].lower()
        if name in (b"content-disposition", b"content-type", b"content-transfer-encoding"):
            if name in found:
                raise Malformed("twice")
            found[name] = line[match.end():].strip(SPACE)


def part(headers, data):
    disposition = headers.get(b"content-disposition", b"")
    match = re.match(TOKEN, disposition)
    if not match or match[0].lower() != b"form-data":
        raise Malformed("disposition")
    given = parameters(disposition[match.end():])
    if given is None or b"name" not in given or given.keys() - {b"name", b"filename", b"filename*"}:
        raise Malformed("disposition")
    if headers.get(b"content-transfer-encoding", b"binary").lower() not in (b"7bit", b"8bit", b"binary"):
        raise Malformed("transfer encoding")
    kind = headers.get(b"content-type")
    if kind is not None:
        media = media_type(kind)
        normal = media.normal() if media else None
        kind = kind if normal is None else normal
    lines = [(b"name", given[b"name"]), (b"filename", given.get(b"filename"))]
    if b"filename*" in given:
        lines.append((b"filename*", given[b"filename*"]))
    out = b"part\n"
    for label, value in [*lines, (b"type", kind), (b"data", data)]:
        out += label + (b" -\n" if value is None else b" %d:%s\n" % (len(value), value))
    return out


def multipart(body, boundary):
    if not boundary or len(boundary) > 256 or re.search(rb"[\x00-\x1f\x7f]", boundary) or boundary.endswith(b" "):
        raise Malformed("boundary")
    line = re.compile(b"--" + re.escape(boundary) + rb"(--)?[ \t]*(\r\n|\Z)", re.DOTALL)
    begins = re.compile(b"--" + re.escape(boundary))

    def mark(at):
        """The boundary line at `at`: whether it is the last, and where it ends."""
        if not begins.match(body, at):
            return None
        found = line.match(body, at)
        if not found or (not found[1] and not found[2]):
            raise Malformed("boundary line")
        return bool(found[1]), found.end()

    found = mark(2 if body.startswith(b"\r\n") else 0)
    if not found:
        raise Malformed("start")
    is_last, at = found
    out = b""
    while not is_last:
        headers, data = head(body, at)
        found, end = mark(data), data
        if not found:
            for break_ in re.finditer(rb"\r\n|\r|\n", body[data:]):
                end = data + break_.start()
                found = mark(data + break_.end())
                if found and break_[0] != b"\r\n":
                    raise Malformed("half a line break")
                if found:
                    break
            else:
                raise Malformed("no end")
        out += part(headers, body[data:end])
        is_last, at = found
    if body[at:].strip(SPACE):
        raise Malformed("epilogue")
    return out
