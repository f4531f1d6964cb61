//! The store's statements for a transaction of the application.
//!
//! The statements and values work with any driver. A write fails if its condition does not hold, because the
//! application commits its own changes with it.

use super::address::{SCHEMA, SchemaNameError, schema_name};
use super::job::{NO_TOKEN, digest, token};
use super::timeline::TIMELINE_NAME;
use super::{ENTRY_BYTES_MAX, changes, schema};
use crate::columns::{Row, encoded};
use bytes::Bytes;
use semel_core::codec;
use semel_core::id::{CommandId, OperationId};
use semel_core::machine::Unchanged;
use semel_core::record::Record;
use semel_core::store::{Error, Reading};
use semel_core::time::Time;
use uuid::Uuid;

/// How long the last write waits for a locked row: practically not at all.
const LOCK_WAIT: &str = "2000";

/// The statements of a local command, for one schema. Parameters are numbered as the fields say.
#[derive(Debug, Clone)]
pub struct TransactionStatements {
    /// `$1` lock (bigint), `$2` and `$3` operation ids (uuid, the second may be null), `$4` how long the
    /// transaction may be idle (milliseconds, integer). Tries the lock, then reads. One row: whether the lock
    /// was obtained, whether the server is a standby, its time in ms, command id and entry under `$2`, the
    /// same under `$3`, the mark of the transaction (bigint), the server's timeline (text, null on a standby),
    /// its process (integer), the limit that `$4` replaced (text, null if the earlier one was stricter), whether
    /// commits wait for a standby. If they do, an acknowledged commit may be missing there: let the store confirm
    /// it.
    pub look: String,
    /// The values of [`RecordColumns`], `$1` to `$12` in the order of its fields, and `$13` the transaction's
    /// mark. Changes one row, or fails; none if the transaction no longer has that mark.
    pub insert: String,
    /// The same, then `$14` to `$16` version, token and state of the record that must still be there. Changes
    /// one row, or none.
    pub replace: String,
    /// `$1` operation id, `$2` command id, `$3` to `$5` version, token and state, `$6` the transaction's
    /// mark. Removes one row, or none.
    pub remove: String,
    /// `$1` the name of a setting. Its value, or no row.
    pub setting: String,
}

impl TransactionStatements {
    /// For the tables in a schema; a store without `schema=` in its URL uses
    /// [`DEFAULT_SCHEMA`](Self::DEFAULT_SCHEMA).
    pub fn in_schema(schema: &str) -> Result<Self, SchemaNameError> {
        let schema = schema_name(schema)?;
        let of = |sql: &str| schema::in_schema(sql, &schema);
        // Ends with the transaction. Raised if a role or database has less, and never lowered.
        let settings = format!(
            "WITH settings AS MATERIALIZED (SELECT {MARK} AS mark, \
             pg_catalog.set_config('lock_timeout', '{LOCK_WAIT}', true) AS lock_wait, \
             CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') \
             THEN pg_catalog.set_config('synchronous_commit', 'on', true) END AS durability)"
        );
        // Otherwise a frozen process would hold its locks for as long as its host keeps the connection open.
        // A stricter limit stays.
        let idle = format!(
            "idle AS MATERIALIZED (SELECT pg_catalog.current_setting('{IDLE}') AS earlier), \
             limited AS MATERIALIZED (SELECT CASE WHEN idle.earlier::interval = '0' \
             OR idle.earlier::interval > $4::integer * interval '1 millisecond' THEN idle.earlier END AS replaced FROM idle), \
             held AS MATERIALIZED (SELECT pg_catalog.pg_try_advisory_xact_lock($1) AS is_mine, limited.replaced, \
             CASE WHEN limited.replaced IS NOT NULL THEN pg_catalog.set_config('{IDLE}', $4::text, true) END AS idle_max \
             FROM limited)"
        );
        let unchanged = "AND r.digest = pg_catalog.substring(pg_catalog.sha256(r.entry), 1, 8)";
        Ok(Self {
            look: of(&format!(
                "WITH {idle} SELECT held.is_mine, a.is_standby, a.at_ms, a.found_command_id, a.found_entry, b.found_command_id, \
                 b.found_entry, {MARK}, CASE WHEN NOT a.is_standby THEN {TIMELINE_NAME} END, pg_catalog.pg_backend_pid(), held.replaced, \
                 pg_catalog.current_setting('synchronous_standby_names') <> '' FROM held \
                 CROSS JOIN LATERAL semel.read(CASE WHEN held.is_mine IS NOT NULL THEN $2::uuid END) AS a \
                 CROSS JOIN LATERAL semel.read(CASE WHEN held.is_mine IS NOT NULL THEN $3::uuid END) AS b"
            )),
            insert: of(&format!(
                "{settings} INSERT INTO semel.records (operation_id, command_id, version, token, state, due_at, updated_at, \
                 caller, key, digest, operation, entry) \
                 SELECT $1::uuid, $2::bytea, $3::bigint, $4::uuid, $5::smallint, $6::bigint, $7::bigint, $8::bigint, $9::bigint, \
                 $10::bytea, $11::text, $12::bytea FROM settings \
                 WHERE mark = $13 AND lock_wait IS NOT NULL"
            )),
            replace: of(&format!(
                "{settings} UPDATE semel.records AS r SET version = $3, token = $4, state = $5, due_at = $6, \
                 updated_at = $7, caller = $8, key = $9, digest = $10, operation = $11, entry = $12 FROM settings \
                 WHERE mark = $13 AND lock_wait IS NOT NULL AND r.operation_id = $1 AND r.command_id = $2 \
                 AND r.version = $14 AND r.token = $15 AND r.state = $16 {unchanged}"
            )),
            remove: of(&format!(
                "DELETE FROM semel.records AS r WHERE r.operation_id = $1 AND r.command_id = $2 AND r.version = $3 \
                 AND r.token = $4 AND r.state = $5 AND {MARK} = $6 {unchanged}"
            )),
            setting: of("SELECT value FROM semel.settings WHERE name = $1"),
        })
    }

    /// The default schema.
    pub const DEFAULT_SCHEMA: &'static str = SCHEMA;

    /// `$1` a process of the server (integer), `$2` the mark of its transaction (bigint). Ends that session
    /// and its running statement, unless another transaction is open there by now.
    pub const END_SESSION: &'static str = "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity \
        WHERE pid = $1 AND (EXTRACT(epoch FROM xact_start) * 1000000)::bigint = $2";

    /// `$1` a limit that the look replaced (text). Sets it again: the transaction goes back to its owner.
    pub const RESTORE_IDLE: &'static str =
        "SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', $1, true)";

    /// Identifies the server: one row with its system identifier (text), the same for all copies of one
    /// cluster.
    pub const SERVER: &'static str = "SELECT system_identifier::text FROM pg_catalog.pg_control_system()";
}

/// How long a transaction may wait for its client.
const IDLE: &str = "idle_in_transaction_session_timeout";

/// Distinguishes one transaction of a session from the next.
const MARK: &str = "(EXTRACT(epoch FROM pg_catalog.transaction_timestamp()) * 1000000)::bigint";

/// The number of a command's lock. An application's own advisory lock may have the same number by chance, and
/// is then merely waited for.
pub fn lock_number(id: &CommandId) -> i64 {
    let mut first = [0; 8];
    first.copy_from_slice(&id.as_bytes()[..8]);
    i64::from_be_bytes(first)
}

/// The operation ID of a command, as the server's type.
pub fn operation_uuid(id: &CommandId) -> Uuid {
    Uuid::from_bytes(*OperationId::of(id).as_bytes())
}

/// One row.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "named after the columns")]
pub struct RecordColumns {
    pub operation_id: Uuid,
    pub command_id: Vec<u8>,
    pub version: Option<i64>,
    pub token: Uuid,
    pub state: i16,
    pub due_at: Option<i64>,
    pub updated_at: Option<i64>,
    pub caller: Option<i64>,
    pub key: Option<i64>,
    pub digest: Vec<u8>,
    pub operation: Option<String>,
    pub entry: Vec<u8>,
}

impl RecordColumns {
    /// A record's row. Refused if the record is too large, or belongs under another ID.
    pub fn of(id: CommandId, record: &Record) -> Result<Self, Error> {
        Ok(Self::from_row(id, encoded(id, record, ENTRY_BYTES_MAX)?))
    }

    /// The row of a command under the next secret's ID.
    pub fn marker(id: CommandId) -> Self {
        Self::from_row(id, Row::marker())
    }

    fn from_row(id: CommandId, row: Row) -> Self {
        Self {
            operation_id: operation_uuid(&id),
            command_id: id.as_bytes().to_vec(),
            version: row.unchanged.as_ref().map(|unchanged| changes::number(unchanged.version)),
            token: row.unchanged.as_ref().map_or(NO_TOKEN, token),
            state: i16::try_from(row.state).unwrap_or(i16::MAX),
            due_at: row.due_at,
            updated_at: row.updated_at,
            caller: row.caller,
            key: row.key,
            digest: digest(&row.entry).to_vec(),
            operation: row.operation.as_deref().map(|operation| changes::text(operation).into_owned()),
            entry: row.entry,
        }
    }
}

/// The expected record, as parameters: version, token and state.
pub fn expected(unchanged: &Unchanged) -> (i64, Uuid, i16) {
    (changes::number(unchanged.version), token(unchanged), i16::from(unchanged.state.number()))
}

/// What was read under an ID, from the columns of [`TransactionStatements::look`].
pub fn reading(
    id: &CommandId,
    at_ms: i64,
    command_id: Option<&[u8]>,
    entry: Option<&[u8]>,
) -> Result<Reading, Error> {
    let now = Time::from_millis(u64::try_from(at_ms).unwrap_or(0));
    match (command_id, entry) {
        (None, _) | (_, None) => Ok(Reading::nothing(now)),
        (Some(found), Some(entry)) if found == id.as_bytes() => {
            Ok(Reading { now, entry: Some(codec::decode(&Bytes::copy_from_slice(entry))) })
        }
        (Some(_), Some(_)) => Err(changes::other_command()),
    }
}

/// What a server's error says about its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerError {
    /// It was rolled back because of a conflict with another one (`40001`, `40P01`): a retry may succeed.
    InTheWay,
    /// It was rolled back: the row to insert already exists.
    Exists,
    /// It was rolled back, or will be.
    RolledBack,
    /// Not known, if it was about to commit.
    Ambiguous,
}

impl ServerError {
    /// `is_error`: its severity is `ERROR`, and neither `FATAL` nor a warning. Only that proves that the
    /// transaction was rolled back: a `FATAL` may follow a commit, and class 08 comes from poolers.
    pub fn of(is_error: bool, code: &str) -> Self {
        match code {
            _ if !is_error || code.starts_with("08") || code == "40003" => Self::Ambiguous,
            "40001" | "40P01" | "55P03" => Self::InTheWay,
            "23505" => Self::Exists,
            _ => Self::RolledBack,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_of_the_server_proves_a_rollback() {
        assert_eq!(ServerError::of(true, "40001"), ServerError::InTheWay);
        assert_eq!(ServerError::of(true, "23505"), ServerError::Exists);
        assert_eq!(ServerError::of(true, "23503"), ServerError::RolledBack);
        for (is_error, code) in [(false, "57P01"), (false, "40001"), (true, "08006"), (true, "40003")] {
            assert_eq!(ServerError::of(is_error, code), ServerError::Ambiguous, "{code}");
        }
    }

    #[test]
    fn statements_name_the_tables_of_their_own_schema() {
        let of = TransactionStatements::in_schema("orders").expect("a schema's name");
        for sql in [&of.look, &of.insert, &of.replace, &of.remove, &of.setting] {
            assert!(sql.contains("orders.") && !sql.contains("semel."), "{sql}");
        }
        assert!(!of.insert.contains("ON CONFLICT"), "a conflict has to fail");
        assert!(TransactionStatements::in_schema("x; DROP TABLE y").is_err());
    }
}
