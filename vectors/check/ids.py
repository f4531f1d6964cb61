"""vectors/ids: identifiers from a secret, a scope and a key."""

import hashlib
import hmac
import uuid


def field(data):
    return len(data).to_bytes(8, "big") + data


def lower(text):
    return bytes(byte | 0x20 if 0x41 <= byte <= 0x5A else byte for byte in text)


def bytes_of(members, name):
    """A member as text, or as NAME_hex where its bytes are not UTF-8."""
    if f"{name}_hex" in members:
        return bytes.fromhex(members[f"{name}_hex"])
    return members[name].encode()


def tenant(value):
    return b"\0" if value is None else b"\1" + field(value.encode())


def caller(who):
    if who is None:
        return b"\0"
    source = who["source"]
    if source == "jwt":
        return b"\2" + field(bytes_of(who, "issuer")) + field(bytes_of(who, "subject"))
    if source == "authorization":
        return b"\6" + field(lower(bytes_of(who, "scheme"))) + field(bytes_of(who, "credentials"))
    name = field(bytes_of(who, "name"))
    if "found_in" not in who:
        return {"header": b"\1", "api-key": b"\3", "cookie": b"\4", "mtls": b"\5"}[source] + name
    tag, fold = {
        "header": (b"\7", lower),
        "api-key": (b"\x08", lower),
        "cookie": (b"\x09", bytes),
        "mtls": (b"\x0a", bytes),
    }[source]
    return tag + field(fold(who["found_in"].encode())) + name


def operation(what):
    if "name" in what:
        return b"\1" + field(what["name"].encode())
    return b"\2" + field(what["method"].encode()) + field(what["path"].encode())


def key(form):
    if "text" in form:
        return b"\1" + field(form["text"].encode())
    if "fingerprint" in form:
        return b"\2" + field(bytes.fromhex(form["fingerprint"]))
    parts = form["parts"]
    return b"\3" + len(parts).to_bytes(8, "big") + b"".join(key(part) for part in parts)


def uuid8(data):
    data = bytearray(data[:16])
    data[6] = data[6] & 0x0F | 0x80
    data[8] = data[8] & 0x3F | 0x80
    return uuid.UUID(bytes=bytes(data))


def check(case, tally):
    secret = bytes.fromhex(case["secret"])

    def keyed(label, *parts):
        return hmac.new(secret, field(label) + b"".join(parts), hashlib.sha256).digest()

    who = tenant(case["tenant"]) + caller(case["caller"])
    named = key(case["key"])
    command = keyed(b"semel command id v1", who, operation(case["operation"]), named)
    plain = hashlib.sha256(field(b"semel operation id v1") + field(command)).digest()
    operation_id = uuid8(plain)
    found = {
        "secret_id": keyed(b"semel secret id v1")[:16].hex(),
        "command_id": command.hex(),
        "key_hash": keyed(b"semel key hash v1", named).hex(),
        "caller_hash": keyed(b"semel caller hash v1", who).hex(),
        "operation_id": str(operation_id),
    }
    for member, value in found.items():
        tally.compare(f"{case['name']}: {member}", case[member], value)
    for event in case["events"]:
        tally.compare(case["name"], event["id"], f"{operation_id}:{event['name']}")
    for resource in case["resources"]:
        parts = (operation_id.bytes, resource["kind"].encode(), resource["name"].encode())
        digest = hashlib.sha256(field(b"semel resource id v1") + b"".join(map(field, parts))).digest()
        tally.compare(case["name"], resource["id"], str(uuid8(digest)))
