// A service behind the gateway, on PostgreSQL: node fence.mjs URL SCHEMA OPERATION_ID FENCE
//
// Handles one attempt, as a service would with the headers Operation-Id and Idempotency-Fence, and prints its answer.

import { createRequire } from "node:module";
import process from "node:process";

// From NODE_PATH too, which an import does not look at.
const { Client, escapeIdentifier } = createRequire(import.meta.url)("pg");

const RETENTION_MS = 32 * 24 * 60 * 60 * 1000;

/** Answers with the result of the operation, or null: then answer with the header Idempotency-Outcome: unknown. */
async function handle(client, schema, operationId, fence, work) {
  const s = escapeIdentifier(schema);
  await client.query("BEGIN");
  try {
    await client.query("SET LOCAL lock_timeout = '2s'");
    const entered = await client.query(
      `INSERT INTO ${s}.operation_fences AS held (operation_id, fence, is_done, updated_at)
       SELECT $1::text, $2::bigint, FALSE, ${s}.now_ms() WHERE $2::bigint >= ${s}.now_ms() - $3::bigint
       ON CONFLICT (operation_id) DO UPDATE SET fence = excluded.fence, updated_at = excluded.updated_at
       WHERE NOT held.is_done AND held.fence <= excluded.fence`,
      [operationId, fence, RETENTION_MS],
    );
    let result = null;
    if (entered.rowCount === 1) {
      result = await work(client);
      const done = await client.query(
        `UPDATE ${s}.operation_fences SET is_done = TRUE, result = $3, updated_at = ${s}.now_ms()
         WHERE operation_id = $1 AND fence = $2 AND NOT is_done`,
        [operationId, fence, result],
      );
      if (done.rowCount !== 1) throw new Error("a newer attempt has taken the operation over");
    } else {
      const found = await client.query(`SELECT is_done, result FROM ${s}.operation_fences WHERE operation_id = $1`, [
        operationId,
      ]);
      if (found.rows[0]?.is_done) result = found.rows[0].result;
    }
    await client.query("COMMIT");
    return result;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

const [url, schema, operationId, fence] = process.argv.slice(2);
const client = new Client({ connectionString: url });
await client.connect();
const result = await handle(client, schema, operationId, fence, async (transaction) => {
  await transaction.query(`INSERT INTO ${escapeIdentifier(schema)}.effects (name) VALUES ($1)`, [operationId]);
  return Buffer.from(`charged by ${fence}`);
});
console.log(result === null ? "Idempotency-Outcome: unknown" : result.toString());
await client.end();
