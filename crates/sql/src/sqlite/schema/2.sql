-- The tables of the patterns in the application's own transaction. Nothing of the store itself is in them.

-- One row for each message that a consumer group has processed.
CREATE TABLE semel_inbox_marks (
    consumer_group TEXT NOT NULL,
    topic TEXT NOT NULL,
    message_id TEXT NOT NULL,
    fingerprint BLOB NOT NULL,            -- 32 bytes
    processed_at INTEGER NOT NULL,        -- milliseconds since 1970
    PRIMARY KEY (consumer_group, topic, message_id)
) WITHOUT ROWID;
CREATE INDEX semel_inbox_marks_processed_at ON semel_inbox_marks (consumer_group, processed_at);

-- The newest fence of each operation, and its result as soon as it is done.
CREATE TABLE semel_operation_fences (
    operation_id TEXT PRIMARY KEY NOT NULL,
    fence INTEGER NOT NULL,
    is_done INTEGER NOT NULL DEFAULT 0,
    result BLOB,
    updated_at INTEGER NOT NULL
);
CREATE INDEX semel_operation_fences_updated_at ON semel_operation_fences (updated_at);

-- The operation that has used a business reference.
CREATE TABLE semel_business_references (
    tenant TEXT NOT NULL,
    operation TEXT NOT NULL,
    reference TEXT NOT NULL,
    operation_id TEXT NOT NULL,
    bound_at INTEGER NOT NULL,
    expires_at INTEGER,                   -- NULL: never
    PRIMARY KEY (tenant, operation, reference)
) WITHOUT ROWID;
CREATE INDEX semel_business_references_expires_at ON semel_business_references (expires_at) WHERE expires_at IS NOT NULL;

-- Counted sums, in bucket 0 or in one bucket for each period. An overflow would turn a sum into a rounded number.
CREATE TABLE semel_counter_sums (
    counter TEXT NOT NULL,
    bucket INTEGER NOT NULL,              -- the start of the period, milliseconds since 1970
    value INTEGER NOT NULL CHECK (typeof(value) = 'integer'),
    PRIMARY KEY (counter, bucket)
) WITHOUT ROWID;

-- The operations that were counted. Those that are folded are part of a sum already.
CREATE TABLE semel_counter_operations (
    counter TEXT NOT NULL,
    operation_id TEXT NOT NULL,
    bucket INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    is_folded INTEGER NOT NULL,
    counted_at INTEGER NOT NULL,
    PRIMARY KEY (counter, operation_id)
) WITHOUT ROWID;
CREATE INDEX semel_counter_operations_unfolded ON semel_counter_operations (counter) WHERE NOT is_folded;
CREATE INDEX semel_counter_operations_counted_at ON semel_counter_operations (counter, counted_at) WHERE is_folded;
