"""A consumer that processes each message once, on SQLite: inbox.py FILE

Reads messages as JSON lines ({"id": "m-1", "amount": 5}) and prints "acknowledged m-1 ." after each commit. Stop it whenever you like,
kill -9 included, and send everything again: no message is counted twice, and none is lost. It may share its group with consumers in
Rust, which store the same fingerprint for `Message::json`: vectors/inbox describes it.
"""

import hashlib
import json
import re
import sqlite3
import sys

NOW = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
MARK = f"""
    INSERT INTO semel_inbox_marks (consumer_group, topic, message_id, fingerprint, processed_at)
    VALUES (?, ?, ?, ?, {NOW}) ON CONFLICT DO NOTHING
"""
FIND = "SELECT fingerprint FROM semel_inbox_marks WHERE consumer_group = ? AND topic = ? AND message_id = ?"

# What comes before the body: label, empty method, operation and path, no query, the content type, no headers and codings, JSON.
HEAD = b"semel-fingerprint\0\1" + bytes(24) + b"\0" + b"\1" + (16).to_bytes(8, "big") + b"application/json" + bytes(16) + b"\2"
NUMBER = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")


class Number:
    """A number by its exact value: 10.50 is 105e-1. (Exponents of more than 4,300 digits are more than int() reads.)"""

    def __init__(self, text):
        sign, whole, fraction, exponent = NUMBER.fullmatch(text).groups()
        run = whole + (fraction or "")
        digits = run.rstrip("0")
        power = int(exponent or 0) - len(fraction or "") + len(run) - len(digits)
        digits = digits.lstrip("0")
        self.text = sign + digits + (f"e{power}" if power else "") if digits else "0"


def unique(members):
    if len(dict(members)) < len(members):
        raise ValueError("a member twice")
    return dict(members)


def refused(constant):
    raise ValueError(constant)


def quoted(text):
    escape = lambda found: f"\\{found[0]}" if found[0] in '"\\' else f"\\u{ord(found[0]):04x}"
    return '"' + re.sub(r'["\\\x00-\x1f]', escape, text) + '"'


def canonical(value, depth=0):
    if isinstance(value, (dict, list)) and depth == 128:
        raise ValueError("more than 128 levels")
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(name)}:{canonical(value[name], depth + 1)}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(canonical(item, depth + 1) for item in value) + "]"
    if isinstance(value, Number):
        return value.text
    return quoted(value) if isinstance(value, str) else {None: "null", True: "true", False: "false"}[value]


def fingerprint(body):
    """Of a JSON body that is not empty. By value: a producer that serialises again may write the members in another order."""
    hooks = {"parse_int": Number, "parse_float": Number, "parse_constant": refused, "object_pairs_hook": unique}
    # encode() refuses lone surrogates.
    text = canonical(json.loads(body.decode(), **hooks)).encode()
    return hashlib.sha256(HEAD + text).digest()


def process(connection, group, topic, message, body):
    """Returns "processed", "duplicate" or "mismatch". After an error nothing is marked, and nothing has happened."""
    place, own = (group, topic, message["id"]), fingerprint(body)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute(MARK, (*place, own)).rowcount == 1:
            effect(connection, message)
            result = "processed"
        else:
            found = connection.execute(FIND, place).fetchone()[0]
            result = "duplicate" if found == own else "mismatch"
        connection.execute("COMMIT")
        return result
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def effect(connection, message):
    connection.execute("INSERT INTO effects (name) VALUES (?)", (message["id"],))
    connection.execute("UPDATE totals SET value = value + ?", (message["amount"],))


def main():
    # None: this program begins and commits its transactions itself.
    connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    for line in sys.stdin.buffer:
        message = json.loads(line)
        result = process(connection, "python", "payments", message, line)
        # Only now may the broker discard it.
        print("mismatch" if result == "mismatch" else "acknowledged", message["id"], ".", flush=True)


if __name__ == "__main__":
    main()
