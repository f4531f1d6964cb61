-- The store's own row, which shows that the records are complete: if it is missing, the table was emptied, and nothing is
-- written or reported as missing until an operator has acted. It is written here, and never again by a node. To older nodes,
-- which may run beside newer ones, it is an entry by which nodes try whether the store accepts writes.
INSERT INTO semel.records (operation_id, token, state, command_id, digest, entry)
VALUES (
    'f1139ada-967a-84cd-924e-7dd1fb40cad4', '00000000-0000-0000-0000-000000000000', 7,
    '\x73656d656c3a20646f6573207468652073746f7265207772697465206e6f77ff', '\x76bc71e237edf6bc', '\x01012813c52f'
) ON CONFLICT (operation_id) DO NOTHING;

-- The same function, which writes nothing if the records were lost, and never removes the store's own row.
CREATE OR REPLACE FUNCTION semel.write(
    kinds smallint[],             -- 1 insert, 2 replace, 3 remove, 4 remove a marker
    operation_ids uuid[],
    command_ids bytea[],
    expected_versions bigint[],
    expected_tokens uuid[],
    expected_states smallint[],
    versions bigint[],
    tokens uuid[],
    states smallint[],
    due_ats bigint[],
    updated_ats bigint[],
    callers bigint[],
    keys bigint[],
    operations text[],
    digests bytea[],
    entries bytea[],
    lock_wait text,
    entry_max integer
) RETURNS TABLE (
    place bigint,
    at_ms bigint,
    written uuid,
    found_command_id bytea,
    found_bytes bigint,
    found_entry bytea
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    inserted_ids uuid[];
    inserted_tokens uuid[];
    inserted_next integer := 1;
    replaced_places bigint[];
    replaced_tokens uuid[];
    done uuid[];                  -- by place: the tokens of what was replaced together
    tries integer;
    needs_proof boolean := false; -- whether anything was written, or not found
BEGIN
    -- Raised where a role or database has less; never lowered. Settings end with the transaction.
    IF pg_catalog.current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM pg_catalog.set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM pg_catalog.set_config('lock_timeout', lock_wait, true);
    -- The rows are locked in the given order here, too: an insert from a list follows it, and so does a nested loop over one.
    IF pg_catalog.cardinality(kinds) > 3 AND 1 = ANY (kinds) THEN
        WITH inserted AS (
            INSERT INTO semel.records AS r (
                version, due_at, updated_at, caller, key, operation_id, token, state, command_id, digest, operation, entry
            )
            SELECT c.version, c.due_at, c.updated_at, c.caller, c.key, c.operation_id, c.token, c.state, c.command_id,
                c.digest, c.operation, c.entry
            FROM ROWS FROM (
                pg_catalog.unnest(kinds), pg_catalog.unnest(operation_ids), pg_catalog.unnest(command_ids),
                pg_catalog.unnest(versions), pg_catalog.unnest(tokens), pg_catalog.unnest(states),
                pg_catalog.unnest(due_ats), pg_catalog.unnest(updated_ats), pg_catalog.unnest(callers),
                pg_catalog.unnest(keys), pg_catalog.unnest(operations), pg_catalog.unnest(digests),
                pg_catalog.unnest(entries)
            ) AS c (
                kind, operation_id, command_id, version, token, state, due_at, updated_at, caller, key, operation, digest,
                entry
            )
            WHERE c.kind = 1
            ON CONFLICT (operation_id) DO NOTHING RETURNING r.operation_id, r.token
        )
        SELECT pg_catalog.array_agg(i.operation_id), pg_catalog.array_agg(i.token)
        INTO inserted_ids, inserted_tokens FROM inserted AS i;
    END IF;
    IF pg_catalog.cardinality(kinds) > 3 AND 2 = ANY (kinds) THEN
        -- Look each row up by its key, whatever the statistics say: a new table has none.
        PERFORM pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_hashjoin', 'off', true),
            pg_catalog.set_config('enable_mergejoin', 'off', true);
        WITH replaced AS (
            UPDATE semel.records AS r SET
                version = c.version, due_at = c.due_at, updated_at = c.updated_at, caller = c.caller, key = c.key,
                token = c.token, state = c.state, digest = c.digest, operation = c.operation, entry = c.entry
            FROM ROWS FROM (
                pg_catalog.unnest(kinds), pg_catalog.unnest(operation_ids), pg_catalog.unnest(command_ids),
                pg_catalog.unnest(expected_versions), pg_catalog.unnest(expected_tokens),
                pg_catalog.unnest(expected_states), pg_catalog.unnest(versions), pg_catalog.unnest(tokens),
                pg_catalog.unnest(states), pg_catalog.unnest(due_ats), pg_catalog.unnest(updated_ats),
                pg_catalog.unnest(callers), pg_catalog.unnest(keys), pg_catalog.unnest(operations),
                pg_catalog.unnest(digests), pg_catalog.unnest(entries)
            ) WITH ORDINALITY AS c (
                kind, operation_id, command_id, expected_version, expected_token, expected_state, version, token, state,
                due_at, updated_at, caller, key, operation, digest, entry, place
            )
            WHERE c.kind = 2 AND r.operation_id = c.operation_id AND r.command_id = c.command_id
                AND r.version = c.expected_version AND r.token = c.expected_token AND r.state = c.expected_state
                AND r.digest = pg_catalog.substring(pg_catalog.sha256(r.entry), 1, 8)
            RETURNING c.place, r.token
        )
        SELECT pg_catalog.array_agg(u.place), pg_catalog.array_agg(u.token)
        INTO replaced_places, replaced_tokens FROM replaced AS u;
        FOR i IN 1 .. COALESCE(pg_catalog.cardinality(replaced_places), 0) LOOP
            done[replaced_places[i]] := replaced_tokens[i];
        END LOOP;
    END IF;
    FOR i IN 1 .. pg_catalog.cardinality(kinds) LOOP
        place := i;
        written := done[i];
        IF kinds[i] = 1 AND operation_ids[i] = inserted_ids[inserted_next] THEN
            written := inserted_tokens[inserted_next];
            inserted_next := inserted_next + 1;
        END IF;
        found_command_id := NULL;
        found_bytes := NULL;
        found_entry := NULL;
        at_ms := NULL;
        tries := 0;
        -- What was not written above is tried by itself: it may be the only write, or refused.
        WHILE written IS NULL LOOP
            IF kinds[i] = 1 THEN
                INSERT INTO semel.records AS r (
                    version, due_at, updated_at, caller, key, operation_id, token, state, command_id, digest, operation,
                    entry
                ) VALUES (
                    versions[i], due_ats[i], updated_ats[i], callers[i], keys[i], operation_ids[i], tokens[i], states[i],
                    command_ids[i], digests[i], operations[i], entries[i]
                ) ON CONFLICT (operation_id) DO NOTHING RETURNING r.token INTO written;
            ELSIF kinds[i] = 2 THEN
                UPDATE semel.records AS r SET
                    version = versions[i], due_at = due_ats[i], updated_at = updated_ats[i], caller = callers[i],
                    key = keys[i], token = tokens[i], state = states[i], digest = digests[i],
                    operation = operations[i], entry = entries[i]
                WHERE r.operation_id = operation_ids[i] AND r.command_id = command_ids[i]
                    AND r.version = expected_versions[i] AND r.token = expected_tokens[i]
                    AND r.state = expected_states[i]
                    AND r.digest = pg_catalog.substring(pg_catalog.sha256(r.entry), 1, 8)
                RETURNING r.token INTO written;
            ELSIF kinds[i] = 3 THEN
                DELETE FROM semel.records AS r
                WHERE r.operation_id = operation_ids[i] AND r.command_id = command_ids[i]
                    AND r.version = expected_versions[i] AND r.token = expected_tokens[i]
                    AND r.state = expected_states[i]
                    AND r.digest = pg_catalog.substring(pg_catalog.sha256(r.entry), 1, 8)
                RETURNING r.token INTO written;
            ELSIF kinds[i] = 4 THEN
                DELETE FROM semel.records AS r
                WHERE r.operation_id = operation_ids[i] AND r.command_id = command_ids[i] AND r.state = 7
                    AND r.operation_id <> 'f1139ada-967a-84cd-924e-7dd1fb40cad4'
                    AND r.digest = pg_catalog.substring(pg_catalog.sha256(r.entry), 1, 8)
                RETURNING r.token INTO written;
            END IF;
            EXIT WHEN written IS NOT NULL;
            SELECT semel.now_ms(), r.command_id, pg_catalog.octet_length(r.entry),
                CASE WHEN pg_catalog.octet_length(r.entry) <= entry_max THEN r.entry END
            INTO at_ms, found_command_id, found_bytes, found_entry
            FROM (SELECT 1) AS one LEFT JOIN semel.records AS r ON r.operation_id = operation_ids[i];
            tries := tries + 1;
            -- What refused an insert may have been removed since: then there is nothing that refuses it.
            EXIT WHEN kinds[i] <> 1 OR found_bytes IS NOT NULL OR tries = 5;
        END LOOP;
        IF written IS NOT NULL THEN
            at_ms := semel.now_ms();
            found_command_id := NULL;
            found_bytes := NULL;
            found_entry := NULL;
        END IF;
        needs_proof := needs_proof OR found_command_id IS NULL;
        RETURN NEXT;
    END LOOP;
    IF needs_proof THEN
        -- Last, because another transaction may have removed rows that this one waited for. At READ COMMITTED, this statement
        -- sees what was committed meanwhile; otherwise only the lock notices it, and fails with 40001.
        IF pg_catalog.current_setting('transaction_isolation') = 'read committed' THEN
            PERFORM 1 FROM semel.records AS r WHERE r.operation_id = 'f1139ada-967a-84cd-924e-7dd1fb40cad4';
        ELSE
            PERFORM 1 FROM semel.records AS r WHERE r.operation_id = 'f1139ada-967a-84cd-924e-7dd1fb40cad4' FOR KEY SHARE;
        END IF;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the records were lost: the row that shows that they are complete is missing' USING ERRCODE = 'SML01';
        END IF;
    END IF;
    -- Otherwise an insert would be reported as refused by itself.
    IF inserted_next <= pg_catalog.cardinality(inserted_ids) THEN
        RAISE EXCEPTION 'the rows of a batch were inserted in another order';
    END IF;
END $$;

-- The same function, which fails if nothing is found because the records were lost.
CREATE OR REPLACE FUNCTION semel.read(wanted uuid) RETURNS TABLE (
    is_standby boolean,
    at_ms bigint,
    found_command_id bytea,
    found_state smallint,
    found_entry bytea
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    SELECT pg_catalog.pg_is_in_recovery(), semel.now_ms(), r.command_id, r.state, r.entry
    INTO is_standby, at_ms, found_command_id, found_state, found_entry
    FROM (SELECT 1) AS one LEFT JOIN semel.records AS r ON r.operation_id = wanted;
    IF found_command_id IS NULL AND wanted IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM semel.records AS r WHERE r.operation_id = 'f1139ada-967a-84cd-924e-7dd1fb40cad4')
    THEN
        RAISE EXCEPTION 'the records were lost: the row that shows that they are complete is missing' USING ERRCODE = 'SML01';
    END IF;
    RETURN NEXT;
END $$;
