-- What this file is, for whoever opens it: the number of its schema.
CREATE TABLE semel_meta (
    name TEXT PRIMARY KEY,
    value
) WITHOUT ROWID;

-- One row for each command. What is binding stands in `entry`; the other columns find it.
CREATE TABLE semel_records (
    row INTEGER PRIMARY KEY,     -- the order of arrival
    operation_id BLOB NOT NULL,  -- 16 bytes, derived from the command id
    command_id BLOB NOT NULL,    -- 32 bytes
    state INTEGER NOT NULL,      -- 0 to 6 as in the codec; 7 is a moved marker
    due_at INTEGER,              -- milliseconds since 1970
    updated_at INTEGER,
    caller INTEGER,              -- the first 8 bytes of the hash
    key INTEGER,                 -- the first 8 bytes of the hash
    operation TEXT,
    entry BLOB NOT NULL
);
CREATE UNIQUE INDEX semel_records_operation_id ON semel_records (operation_id);
CREATE INDEX semel_records_due_at ON semel_records (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX semel_records_caller ON semel_records (caller) WHERE caller IS NOT NULL;
CREATE INDEX semel_records_unknown ON semel_records (state) WHERE state = 5;
CREATE INDEX semel_records_markers ON semel_records (state) WHERE state = 7;

-- How many rows there are in each state. Inserts and updates are added up once for each batch of writes; deletions
-- count themselves, also those that a person makes by hand.
CREATE TABLE semel_counts (
    state INTEGER PRIMARY KEY,
    rows INTEGER NOT NULL
);
INSERT INTO semel_counts (state, rows) VALUES (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0);
CREATE TRIGGER semel_records_deleted AFTER DELETE ON semel_records BEGIN
    UPDATE semel_counts SET rows = rows - 1 WHERE state = OLD.state;
END;

-- Small values that every process on the file shares.
CREATE TABLE semel_settings (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;
