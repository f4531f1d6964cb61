"""A service behind the gateway, on PostgreSQL: fence.py URL SCHEMA OPERATION_ID FENCE

Handles one attempt, as a service would with the headers Operation-Id and Idempotency-Fence, and prints its answer.
"""

import sys

import psycopg
from psycopg import sql

RETENTION_MS = 32 * 24 * 60 * 60 * 1000

ENTER = """
    INSERT INTO {schema}.operation_fences AS held (operation_id, fence, is_done, updated_at)
    SELECT %(id)s, %(fence)s, FALSE, {schema}.now_ms() WHERE %(fence)s >= {schema}.now_ms() - %(retention)s
    ON CONFLICT (operation_id) DO UPDATE SET fence = excluded.fence, updated_at = excluded.updated_at
    WHERE NOT held.is_done AND held.fence <= excluded.fence
"""
LOOK = "SELECT is_done, result FROM {schema}.operation_fences WHERE operation_id = %(id)s"
DONE = """
    UPDATE {schema}.operation_fences SET is_done = TRUE, result = %(result)s, updated_at = {schema}.now_ms()
    WHERE operation_id = %(id)s AND fence = %(fence)s AND NOT is_done
"""


def handle(connection, schema, operation_id, fence, work):
    """Returns the result of the operation, or None: then answer with the header Idempotency-Outcome: unknown."""

    def run(text, **values):
        statement = sql.SQL(text).format(schema=sql.Identifier(schema))
        return connection.execute(statement, {"id": operation_id, "fence": fence, **values})

    # One transaction: committed at the end of the block, rolled back if anything fails.
    with connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '2s'")
        if run(ENTER, retention=RETENTION_MS).rowcount == 1:
            result = work(connection)
            if run(DONE, result=result).rowcount != 1:
                raise RuntimeError("a newer attempt has taken the operation over")
            return result
        row = run(LOOK).fetchone()
        return bytes(row[1]) if row and row[0] else None


def main():
    url, schema, operation_id, fence = sys.argv[1:]

    def charge(connection):
        effect = sql.SQL("INSERT INTO {}.effects (name) VALUES (%s)").format(sql.Identifier(schema))
        connection.execute(effect, (operation_id,))
        return f"charged by {fence}".encode()

    with psycopg.connect(url, autocommit=True) as connection:
        result = handle(connection, schema, operation_id, int(fence), charge)
    print("Idempotency-Outcome: unknown" if result is None else result.decode())


main()
