-- A workflow engine: shards that are claimed by a range number, executions with their maps, queues
-- of tasks, history in branches, timers, run_listing.

-- == schema

CREATE TABLE shard (
    shard_no integer PRIMARY KEY,
    claim_no bigint NOT NULL,
    data bytea NOT NULL,
    encoding varchar(16) NOT NULL
);

CREATE TABLE space (
    partition_id integer NOT NULL,
    id char(36) NOT NULL,
    name varchar(255) NOT NULL UNIQUE,
    version bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (partition_id, id)
);

CREATE TABLE space_counter (
    partition_id integer PRIMARY KEY DEFAULT 54321,
    version bigint NOT NULL
);

CREATE TABLE execution (
    shard_no integer NOT NULL,
    space_id char(36) NOT NULL,
    workflow_id varchar(128) NOT NULL,
    run_id char(36) NOT NULL,
    next_event bigint NOT NULL,
    last_write_version bigint NOT NULL,
    data bytea NOT NULL,
    db_version bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (shard_no, space_id, workflow_id, run_id)
);

CREATE TABLE current_run (
    shard_no integer NOT NULL,
    space_id char(36) NOT NULL,
    workflow_id varchar(128) NOT NULL,
    run_id char(36) NOT NULL,
    state integer NOT NULL,
    status integer NOT NULL,
    start_version bigint NOT NULL,
    PRIMARY KEY (shard_no, space_id, workflow_id)
);

CREATE TABLE activity_state (
    shard_no integer NOT NULL,
    space_id char(36) NOT NULL,
    workflow_id varchar(128) NOT NULL,
    run_id char(36) NOT NULL,
    schedule_id bigint NOT NULL,
    data bytea NOT NULL,
    encoding varchar(16),
    PRIMARY KEY (shard_no, space_id, workflow_id, run_id, schedule_id)
);

CREATE TABLE seen_signal (
    shard_no integer NOT NULL,
    run_id char(36) NOT NULL,
    signal_id varchar(64) NOT NULL,
    PRIMARY KEY (shard_no, run_id, signal_id)
);

CREATE TABLE buffered_event (
    id bigserial PRIMARY KEY,
    shard_no integer NOT NULL,
    run_id char(36) NOT NULL,
    data bytea NOT NULL
);

CREATE TABLE transfer_task (
    shard_no integer NOT NULL,
    task_id bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (shard_no, task_id)
);

CREATE TABLE timer_task (
    shard_no integer NOT NULL,
    fires_at timestamp NOT NULL,
    task_id bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (shard_no, fires_at, task_id)
);

CREATE TABLE task_queue (
    queue_hash bigint NOT NULL,
    queue_id bytea NOT NULL,
    claim_no bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (queue_hash, queue_id)
);

CREATE TABLE task (
    queue_hash bigint NOT NULL,
    queue_id bytea NOT NULL,
    task_id bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (queue_hash, queue_id, task_id)
);

CREATE TABLE history_node (
    shard_no integer NOT NULL,
    tree_id char(36) NOT NULL,
    branch_id char(36) NOT NULL,
    node_id bigint NOT NULL,
    txn_id bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (shard_no, tree_id, branch_id, node_id, txn_id)
);

CREATE TABLE outgoing_message (
    queue_type integer NOT NULL,
    message_id bigint NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (queue_type, message_id)
);

CREATE TABLE run_listing (
    space_id char(36) NOT NULL,
    run_id char(36) NOT NULL,
    workflow_id varchar(128) NOT NULL,
    started_at timestamp NOT NULL,
    closed_at timestamp,
    status integer NOT NULL,
    memo jsonb,
    PRIMARY KEY (space_id, run_id)
);

CREATE TABLE live_host (
    host_id varchar(64) PRIMARY KEY,
    role integer NOT NULL,
    address varchar(64) NOT NULL,
    heartbeat_at timestamp NOT NULL,
    expires_at timestamp NOT NULL
);

-- == rows

INSERT INTO shard VALUES (1, 10, '\x0107', 'proto3'), (2, 4, '\x02ff00', 'proto3');
INSERT INTO space VALUES (54321, 'ns1', 'billing', 3, '\x0107'),
    (54321, 'ns2', 'mail', 1, '\x02ff00');
INSERT INTO space_counter VALUES (54321, 7);
INSERT INTO execution VALUES (1, 'ns1', 'order-1', 'r1', 12, 1, '\x0107', 5),
    (1, 'ns1', 'order-2', 'r2', 4, 1, '\x02ff00', 2),
        (2, 'ns2', 'mail-1', 'r3', 9, 1, '\x02ff00', 8);
INSERT INTO current_run VALUES (1, 'ns1', 'order-1', 'r1', 1, 1, 1),
    (1, 'ns1', 'order-2', 'r2', 2, 2, 1), (2, 'ns2', 'mail-1', 'r3', 1, 1, 1);
INSERT INTO activity_state VALUES (1, 'ns1', 'order-1', 'r1', 5, '\x0107', 'proto3'),
    (1, 'ns1', 'order-1', 'r1', 8, '\x02ff00', NULL);
INSERT INTO seen_signal VALUES (1, 'r1', 's-1'), (1, 'r1', 's-2'), (1, 'r2', 's-1');
INSERT INTO buffered_event VALUES (1, 1, 'r1', '\x0107'), (2, 1, 'r1', '\x02ff00'),
    (3, 2, 'r3', '\x0107');
INSERT INTO transfer_task VALUES (1, 100, '\x0107'), (1, 101, '\x02ff00'), (1, 105, '\x0107'),
    (2, 90, '\x02ff00');
INSERT INTO timer_task VALUES (1, '2024-03-01 10:00:00', 7, '\x0107'),
    (1, '2024-03-01 10:00:00', 8, '\x02ff00'), (1, '2024-03-02 00:00:00', 9, '\x0107');
INSERT INTO task_queue VALUES (77, '\x0107', 3, '\x02ff00'), (78, '\x02ff00', 1, '\x0107');
INSERT INTO task VALUES (77, '\x0107', 1, '\x02ff00'), (77, '\x0107', 2, '\x02ff00'),
    (78, '\x02ff00', 5, '\x0107');
INSERT INTO history_node VALUES (1, 't1', 'b1', 1, -10, '\x0107'),
    (1, 't1', 'b1', 4, -11, '\x02ff00'),
    (1, 't1', 'b2', 4, -12, '\x0107');
INSERT INTO outgoing_message VALUES (1, 40, '\x0107'), (1, 41, '\x02ff00'), (2, 7, '\x0107');
INSERT INTO run_listing VALUES ('ns1', 'r1', 'order-1', '2024-03-01 09:00:00', NULL, 1, '{"a": 1}'),
    ('ns1', 'r2', 'order-2', '2024-03-01 08:00:00', '2024-03-01 08:30:00', 2, NULL);
INSERT INTO live_host VALUES
    ('h1', 1, '10.0.0.1:7233', '2024-03-01 10:00:00', '2024-03-03 10:00:00'),
    ('h2', 2, '10.0.0.2:7233', '2024-02-01 10:00:00', '2024-02-03 10:00:00');
SELECT setval('buffered_event_id_seq', 3);

-- == statements

-- claims a shard: reads its range under a lock
SELECT claim_no FROM shard WHERE shard_no = 1 FOR UPDATE;

-- keeps a shard: reads its range under a shared lock
SELECT claim_no FROM shard WHERE shard_no = 1 FOR SHARE;

-- claims a shard: writes the next range
UPDATE shard SET claim_no = 11, data = '\x02ff00', encoding = 'proto3' WHERE shard_no = 1;

-- creates a shard
INSERT INTO shard (shard_no, claim_no, data, encoding) VALUES (3, 1, '\x0107', 'proto3');

-- starts a workflow: writes the execution
-- bound: 1, 'ns1', 'order-9', 'r9', 3, 1
INSERT INTO execution (shard_no, space_id, workflow_id, run_id, next_event,
    last_write_version, data, db_version)
VALUES ($1, $2, $3, $4, $5, $6, '\x0107', 1);

-- starts a workflow: writes its current run
INSERT INTO current_run (shard_no, space_id, workflow_id, run_id, state, status,
    start_version)
VALUES (1, 'ns1', 'order-9', 'r9', 1, 1, 1);

-- starts a workflow: locks the current run of its name
SELECT run_id, state, status FROM current_run
WHERE shard_no = 1 AND space_id = 'ns1' AND workflow_id = 'order-1' FOR UPDATE;

-- starts a workflow: locks the current run together with its execution
SELECT ce.run_id, ce.state, e.last_write_version FROM current_run ce
INNER JOIN execution e ON e.shard_no = ce.shard_no AND e.space_id = ce.space_id
    AND e.workflow_id = ce.workflow_id AND e.run_id = ce.run_id
WHERE ce.shard_no = 1 AND ce.space_id = 'ns1' AND ce.workflow_id = 'order-1' FOR UPDATE;

-- starts a workflow: names another current run
UPDATE current_run SET run_id = 'r9', state = 1, status = 1, start_version = 2
WHERE shard_no = 1 AND space_id = 'ns1' AND workflow_id = 'order-2';

-- changes an execution: locks it and reads its version
SELECT db_version, next_event FROM execution
WHERE shard_no = 1 AND space_id = 'ns1' AND workflow_id = 'order-1' AND run_id = 'r1'
FOR UPDATE;

-- changes an execution: writes it if its version is the one that was read
UPDATE execution SET db_version = 6, next_event = 14, last_write_version = 1, data = '\x02ff00'
WHERE shard_no = 1 AND space_id = 'ns1' AND workflow_id = 'order-1' AND run_id = 'r1'
    AND db_version = 5;

-- changes an execution: saves an activity of its map with all columns assigned
INSERT INTO activity_state (shard_no, space_id, workflow_id, run_id, schedule_id, data, encoding)
VALUES (1, 'ns1', 'order-1', 'r1', 5, '\x02ff00', 'proto3')
ON CONFLICT (shard_no, space_id, workflow_id, run_id, schedule_id) DO UPDATE
SET (shard_no, space_id, workflow_id, run_id, schedule_id, data, encoding) =
    (excluded.shard_no, excluded.space_id, excluded.workflow_id, excluded.run_id,
    excluded.schedule_id, excluded.data, excluded.encoding);

-- changes an execution: removes activities of its map
DELETE FROM activity_state WHERE shard_no = 1 AND space_id = 'ns1'
    AND workflow_id = 'order-1' AND run_id = 'r1' AND schedule_id IN (5, 8);

-- changes an execution: keeps the signals that it has seen
INSERT INTO seen_signal (shard_no, run_id, signal_id) VALUES (1, 'r1', 's-2'), (1, 'r1', 's-3')
ON CONFLICT (shard_no, run_id, signal_id) DO NOTHING;

-- changes an execution: removes its signals
DELETE FROM seen_signal WHERE shard_no = 1 AND run_id = 'r1';

-- changes an execution: buffers events
INSERT INTO buffered_event (shard_no, run_id, data) VALUES (1, 'r1', '\x0107'),
    (1, 'r1', '\x02ff00');

-- changes an execution: removes buffered events
DELETE FROM buffered_event WHERE shard_no = 1 AND run_id = 'r1';

-- removes an execution
DELETE FROM execution WHERE shard_no = 1 AND space_id = 'ns1' AND workflow_id = 'order-2'
    AND run_id = 'r2';

-- removes the current run if it is the one expected
DELETE FROM current_run WHERE shard_no = 1 AND space_id = 'ns1'
    AND workflow_id = 'order-2' AND run_id = 'r2';

-- writes transfer tasks
INSERT INTO transfer_task (shard_no, task_id, data) VALUES (1, 110, '\x0107'), (1, 111, '\x02ff00');

-- removes one transfer task
DELETE FROM transfer_task WHERE shard_no = 1 AND task_id = 100;

-- removes a range of transfer tasks
DELETE FROM transfer_task WHERE shard_no = 1 AND task_id >= 100 AND task_id < 105;

-- writes a timer
INSERT INTO timer_task (shard_no, fires_at, task_id, data)
VALUES (1, '2024-03-01 10:00:00.000001', 12, '\x0107');

-- removes timers that have fired
DELETE FROM timer_task WHERE shard_no = 1 AND fires_at >= '2024-03-01 00:00:00'
    AND fires_at < '2024-03-02 00:00:00';

-- moves a timer, whose time is part of its key
UPDATE timer_task SET fires_at = '2024-03-05 00:00:00'
WHERE shard_no = 1 AND fires_at = '2024-03-02 00:00:00' AND task_id = 9;

-- takes a queue of tasks: locks its range
SELECT claim_no FROM task_queue WHERE queue_hash = 77 AND queue_id = '\x0107' FOR UPDATE;

-- takes a queue of tasks: writes the next range
UPDATE task_queue SET claim_no = 4, data = '\x0107'
WHERE queue_hash = 77 AND queue_id = '\x0107' AND claim_no = 3;

-- creates a queue of tasks unless it is there
INSERT INTO task_queue (queue_hash, queue_id, claim_no, data) VALUES (79, '\x0107', 1, '\x02ff00')
ON CONFLICT DO NOTHING;

-- adds tasks to a queue
INSERT INTO task (queue_hash, queue_id, task_id, data)
VALUES (77, '\x0107', 3, '\x0107'), (77, '\x0107', 4, '\x02ff00');

-- removes the oldest tasks of a queue, a few at a time
DELETE FROM task WHERE queue_hash = 77 AND queue_id = '\x0107' AND task_id IN (
    SELECT task_id FROM task WHERE queue_hash = 77 AND queue_id = '\x0107' AND task_id < 10
    ORDER BY task_id LIMIT 1);

-- writes a node of the history, or the same again
INSERT INTO history_node (shard_no, tree_id, branch_id, node_id, txn_id, data)
VALUES (1, 't1', 'b1', 4, -11, '\x0107')
ON CONFLICT (shard_no, tree_id, branch_id, node_id, txn_id)
DO UPDATE SET data = excluded.data;

-- removes a branch of the history from a node on
DELETE FROM history_node WHERE shard_no = 1 AND tree_id = 't1' AND branch_id = 'b1'
    AND node_id >= 4;

-- enqueues a message: locks the last message of the queue
SELECT message_id FROM outgoing_message
WHERE queue_type = 1 ORDER BY message_id DESC LIMIT 1 FOR UPDATE;

-- enqueues a message
INSERT INTO outgoing_message (queue_type, message_id, payload) VALUES (1, 42, '\x02ff00');

-- enqueues a message under the next number
INSERT INTO outgoing_message (queue_type, message_id, payload)
SELECT 1, MAX(message_id) + 1, '\x02ff00' FROM outgoing_message WHERE queue_type = 1;

-- removes messages up to a number
DELETE FROM outgoing_message WHERE queue_type = 1 AND message_id <= 41;

-- shows a workflow as started
INSERT INTO run_listing (space_id, run_id, workflow_id, started_at, status, memo)
VALUES ('ns2', 'r3', 'mail-1', '2024-03-01 11:00:00', 1, '{"b": [1, 2]}')
ON CONFLICT (space_id, run_id) DO NOTHING;

-- shows a workflow as closed
INSERT INTO run_listing (space_id, run_id, workflow_id, started_at, closed_at, status)
VALUES ('ns1', 'r1', 'order-1', '2024-03-01 09:00:00', '2024-03-01 12:00:00', 2)
ON CONFLICT (space_id, run_id) DO UPDATE SET workflow_id = excluded.workflow_id,
    started_at = excluded.started_at, closed_at = excluded.closed_at,
    status = excluded.status;

-- removes what it shows of a workflow
DELETE FROM run_listing WHERE space_id = 'ns1' AND run_id = 'r2';

-- tells that a host lives
INSERT INTO live_host (host_id, role, address, heartbeat_at, expires_at)
VALUES ('h1', 1, '10.0.0.1:7233', now(), '2024-04-01 00:00:00')
ON CONFLICT (host_id) DO UPDATE SET address = excluded.address,
    heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at;

-- removes hosts that are gone
DELETE FROM live_host WHERE expires_at < '2024-03-01 00:00:00';

-- creates a space
INSERT INTO space (partition_id, id, name, version, data)
VALUES (54321, 'ns3', 'shipping', 0, '\x0107');

-- changes a space and renames it
UPDATE space SET name = 'invoices', version = 4, data = '\x02ff00'
WHERE partition_id = 54321 AND id = 'ns1';

-- counts changes of namespaces, if no other process did
UPDATE space_counter SET version = 8 WHERE partition_id = 54321 AND version = 7;

-- locks the count of changes of namespaces
SELECT version FROM space_counter WHERE partition_id = 54321 FOR UPDATE;

-- removes a space by its name
DELETE FROM space WHERE partition_id = 54321 AND name = 'mail';
