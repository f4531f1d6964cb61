-- The tables of the patterns in the application's own transaction. Nothing of the store itself is in them.

-- One row for each message that a consumer group has processed.
CREATE TABLE semel.inbox_marks (
    consumer_group text NOT NULL,
    topic text NOT NULL,
    message_id text NOT NULL,
    fingerprint bytea NOT NULL,           -- 32 bytes
    processed_at bigint NOT NULL,         -- milliseconds since 1970
    CONSTRAINT inbox_marks_pkey PRIMARY KEY (consumer_group, topic, message_id)
);
CREATE INDEX inbox_marks_processed_at ON semel.inbox_marks (consumer_group, processed_at);

-- The newest fence of each operation, and its result as soon as it is done.
CREATE TABLE semel.operation_fences (
    operation_id text PRIMARY KEY,
    fence bigint NOT NULL,
    is_done boolean NOT NULL DEFAULT FALSE,
    result bytea,
    updated_at bigint NOT NULL
);
CREATE INDEX operation_fences_updated_at ON semel.operation_fences (updated_at);

-- The operation that has used a business reference.
CREATE TABLE semel.business_references (
    tenant text NOT NULL,
    operation text NOT NULL,
    reference text NOT NULL,
    operation_id text NOT NULL,
    bound_at bigint NOT NULL,
    expires_at bigint,                    -- NULL: never
    CONSTRAINT business_references_pkey PRIMARY KEY (tenant, operation, reference)
);
CREATE INDEX business_references_expires_at ON semel.business_references (expires_at) WHERE expires_at IS NOT NULL;

-- Counted sums, in bucket 0 or in one bucket for each period.
CREATE TABLE semel.counter_sums (
    counter text NOT NULL,
    bucket bigint NOT NULL,               -- the start of the period, milliseconds since 1970
    value bigint NOT NULL,
    CONSTRAINT counter_sums_pkey PRIMARY KEY (counter, bucket)
);

-- The operations that were counted. Those that are folded are part of a sum already.
CREATE TABLE semel.counter_operations (
    counter text NOT NULL,
    operation_id text NOT NULL,
    bucket bigint NOT NULL,
    amount bigint NOT NULL,
    is_folded boolean NOT NULL,
    counted_at bigint NOT NULL,
    CONSTRAINT counter_operations_pkey PRIMARY KEY (counter, operation_id)
);
CREATE INDEX counter_operations_unfolded ON semel.counter_operations (counter) WHERE NOT is_folded;
CREATE INDEX counter_operations_counted_at ON semel.counter_operations (counter, counted_at) WHERE is_folded;
