"""A consumer that processes each message once, on SQLite: inbox.py FILE

Reads messages as JSON lines ({"id": "m-1", "amount": 5}) and prints "acknowledged m-1 ." after each commit. Stop it whenever you like,
kill -9 included, and send everything again: no message is counted twice, and none is lost.
"""

import hashlib
import json
import sqlite3
import sys

NOW = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
MARK = f"""
    INSERT INTO semel_inbox_marks (consumer_group, topic, message_id, fingerprint, processed_at)
    VALUES (?, ?, ?, ?, {NOW}) ON CONFLICT DO NOTHING
"""
FIND = "SELECT fingerprint FROM semel_inbox_marks WHERE consumer_group = ? AND topic = ? AND message_id = ?"


def fingerprint(message):
    # Not of the raw bytes: a producer that serialises again may write the members in another order.
    canonical = json.dumps(message, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).digest()


def process(connection, group, topic, message):
    """Returns "processed", "duplicate" or "mismatch". After an error nothing is marked, and nothing has happened."""
    place, own = (group, topic, message["id"]), fingerprint(message)
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
    for line in sys.stdin:
        message = json.loads(line)
        result = process(connection, "python", "payments", message)
        # Only now may the broker discard it.
        print("mismatch" if result == "mismatch" else "acknowledged", message["id"], ".", flush=True)


main()
