-- A queue of jobs in the database: enqueued, claimed past the locks of other workers, retried, kept
-- alive, rescued, archived, counted; cron entries and unique jobs.

-- == schema

CREATE TABLE job (
    id bigint AUTO_INCREMENT PRIMARY KEY,
    queue varchar(60) NOT NULL DEFAULT 'default',
    kind varchar(60) NOT NULL,
    args json NOT NULL,
    state varchar(20) NOT NULL DEFAULT 'available',
    priority integer NOT NULL DEFAULT 1,
    attempt integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 25,
    run_at datetime(6) NOT NULL,
    locked_by varchar(60),
    locked_at datetime(6),
    finished_at datetime(6),
    last_error text,
    unique_key varchar(100) UNIQUE
);

CREATE INDEX job_fetch ON job (queue, state, priority, run_at, id);

CREATE TABLE job_archive (
    id bigint PRIMARY KEY,
    kind varchar(60) NOT NULL,
    state varchar(20) NOT NULL,
    finished_at datetime(6)
);

CREATE TABLE job_failure (
    id bigint AUTO_INCREMENT PRIMARY KEY,
    job_id bigint NOT NULL REFERENCES job (id) ON DELETE CASCADE,
    message text NOT NULL
);

CREATE TABLE job_dependency (
    job_id bigint NOT NULL,
    needs_id bigint NOT NULL,
    PRIMARY KEY (job_id, needs_id)
);

CREATE TABLE worker (
    id varchar(60) PRIMARY KEY,
    queues varchar(200) NOT NULL,
    seen_at datetime(6) NOT NULL,
    busy integer NOT NULL DEFAULT 0
);

CREATE TABLE queue_pause (
    queue varchar(60) PRIMARY KEY,
    paused_at datetime(6) NOT NULL
);

CREATE TABLE queue_count (
    queue varchar(60) NOT NULL,
    day date NOT NULL,
    done bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, day)
);

CREATE TABLE cron_entry (
    name varchar(60) PRIMARY KEY,
    next_at datetime(6) NOT NULL,
    last_job bigint
);

CREATE TABLE leader (
    name varchar(60) PRIMARY KEY,
    holder varchar(60) NOT NULL,
    expires_at datetime(6) NOT NULL
);

CREATE TABLE semaphore (
    key_name varchar(100) PRIMARY KEY,
    value integer NOT NULL,
    expires_at datetime(6) NOT NULL
);

-- == rows

INSERT INTO job (id, queue, kind, args, state, priority, attempt, max_attempts, run_at, locked_by,
    locked_at, finished_at, unique_key) VALUES
    (1, 'default', 'mail', '{"to": "a"}', 'available', 1, 0, 25, '2024-01-01 00:00:00', NULL, NULL,
        NULL, NULL),
    (2, 'default', 'mail', '{"to": "b"}', 'available', 5, 2, 3, '2024-01-01 00:00:00', NULL, NULL,
        NULL, 'mail:b'),
    (3, 'slow', 'report', '{}', 'running', 1, 1, 25, '2024-01-01 00:00:00', 'w1',
        '2024-01-01 00:00:05', NULL, NULL),
    (4, 'default', 'mail', '{}', 'done', 1, 1, 25, '2023-12-01 00:00:00', NULL, NULL,
        '2023-12-01 00:01:00', NULL),
    (5, 'default', 'sync', '[]', 'running', 1, 3, 3, '2023-12-30 00:00:00', 'w9',
        '2023-12-30 00:00:00', NULL, NULL),
    (6, 'slow', 'report', '{}', 'waiting', 1, 0, 25, '2024-01-01 00:00:00', NULL, NULL, NULL, NULL),
    (7, 'bulk', 'import', '{}', 'scheduled', 1, 0, 25, '2024-01-02 00:00:00', NULL, NULL, NULL,
        NULL);
INSERT INTO job_archive VALUES (0, 'mail', 'done', '2022-01-01 00:00:00');
INSERT INTO job_failure VALUES (1, 2, 'timeout'), (2, 5, 'refused');
INSERT INTO job_dependency VALUES (6, 3), (6, 4);
INSERT INTO worker VALUES ('w1', 'default,slow', '2024-01-01 00:00:04', 1),
    ('w9', 'default', '2023-12-30 00:00:00', 1);
INSERT INTO queue_pause VALUES ('bulk', '2024-01-01 00:00:00');
INSERT INTO queue_count VALUES ('default', '2024-01-01', 10, 1);
INSERT INTO cron_entry VALUES ('nightly', '2024-01-01 03:00:00', NULL);
INSERT INTO leader VALUES ('scheduler', 'w9', '2024-01-01 00:00:00');
INSERT INTO semaphore VALUES ('api', 1, '2024-01-01 00:10:00');

-- == statements

-- enqueue: a job
INSERT INTO job (queue, kind, args, run_at) VALUES ('default', 'mail', '{"to": "c"}', NOW(6));

-- enqueue: several jobs
INSERT INTO job (queue, kind, args, run_at, priority)
VALUES ('bulk', 'import', '{"n": 1}', '2024-01-02 00:00:00', 2),
    ('bulk', 'import', '{"n": 2}', '2024-01-02 00:00:00', 2),
    ('bulk', 'import', '{"n": 3}', '2024-01-02 00:00:00', 3);

-- enqueue: a unique job unless it is there
INSERT IGNORE INTO job (kind, args, run_at, unique_key)
VALUES ('mail', '{}', '2024-01-02', 'mail:b'), ('mail', '{}', '2024-01-02', 'mail:c');

-- enqueue: a unique job, or moves the one that is there
INSERT INTO job (kind, args, run_at, unique_key) VALUES ('mail', '{"x": 1}', '2024-01-03', 'mail:b')
ON DUPLICATE KEY UPDATE args = VALUES(args), run_at = VALUES(run_at);

-- enqueue: a job for each row of another table
INSERT INTO job (queue, kind, args, run_at)
SELECT 'bulk', 'ping', '{}', '2024-01-02 00:00:00' FROM worker WHERE busy > 0;

-- instead: reads the rows and enqueues their jobs
SELECT id FROM worker WHERE busy > 0;
INSERT INTO job (queue, kind, args, run_at)
VALUES ('bulk', 'ping', '{}', '2024-01-02 00:00:00'), ('bulk', 'ping', '{}', '2024-01-02 00:00:00');

-- claim: locks the next job that no other worker has
SELECT id, kind, args FROM job WHERE queue = 'default' AND state = 'available'
ORDER BY priority, run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- claim: marks a locked job as running
UPDATE job SET state = 'running', attempt = attempt + 1, locked_by = 'w1', locked_at = NOW(6)
WHERE id = 1;

-- claim: marks the next job by a sub-select
UPDATE job SET state = 'running', attempt = attempt + 1, locked_by = 'w1', locked_at = NOW(6)
WHERE queue = 'default' AND state = 'available' ORDER BY priority, id LIMIT 1;

-- claim: marks several jobs of a locked sub-select
UPDATE job JOIN (SELECT id FROM job WHERE state = 'available' ORDER BY priority, id LIMIT 2
    FOR UPDATE SKIP LOCKED) AS next ON job.id = next.id
SET job.state = 'running', job.locked_by = 'w1', job.attempt = job.attempt + 1;

-- claim: by the version of a job, without a lock
UPDATE job SET state = 'running', locked_by = 'w2', attempt = 1
WHERE id = 1 AND state = 'available' AND attempt = 0;

-- finish: a job
UPDATE job SET state = 'done', finished_at = NOW(6), locked_by = NULL, locked_at = NULL
WHERE id = 3 AND locked_by = 'w1';

-- finish: several jobs, each with its own state
UPDATE job SET state = CASE id WHEN 3 THEN 'done' WHEN 5 THEN 'dead' END,
    finished_at = NOW(6) WHERE id IN (3, 5);

-- finish: counts it
INSERT INTO queue_count (queue, day, done) VALUES ('default', '2024-01-01', 1)
ON DUPLICATE KEY UPDATE done = done + VALUES(done);

-- finish: lets jobs run whose needs are all done
UPDATE job SET state = 'available' WHERE state = 'waiting' AND NOT EXISTS (
    SELECT 1 FROM job_dependency d WHERE d.job_id = job.id AND d.needs_id = 99);

-- finish: removes dependencies on it
DELETE FROM job_dependency WHERE needs_id = 3;

-- fail: puts a job off for longer each time
UPDATE job SET state = 'retry', last_error = 'refused', locked_by = NULL,
    run_at = DATE_ADD(run_at, INTERVAL attempt * attempt SECOND) WHERE id = 5;

-- fail: gives up after the last attempt
UPDATE job SET state = CASE WHEN attempt >= max_attempts THEN 'dead' ELSE 'retry' END,
    finished_at = CASE WHEN attempt >= max_attempts THEN run_at ELSE NULL END
WHERE id IN (2, 5);

-- fail: keeps the message
INSERT INTO job_failure (job_id, message) VALUES (5, 'refused: "no"');

-- retry: lets scheduled jobs run whose time has come
UPDATE job SET state = 'available' WHERE state IN ('scheduled', 'retry') AND run_at <= NOW(6);

-- rescue: takes jobs back from workers that are gone
UPDATE job SET state = 'available', locked_by = NULL, locked_at = NULL
WHERE state = 'running' AND locked_by IN (
    SELECT id FROM worker WHERE seen_at < '2023-12-31 00:00:00');

-- rescue: takes jobs back from workers by a join
UPDATE job INNER JOIN worker ON worker.id = job.locked_by
SET job.state = 'available', job.locked_by = NULL
WHERE worker.seen_at < '2023-12-31 00:00:00';

-- worker: says that it lives
INSERT INTO worker (id, queues, seen_at, busy) VALUES ('w1', 'default,slow', NOW(6), 2)
ON DUPLICATE KEY UPDATE seen_at = VALUES(seen_at), busy = VALUES(busy);

-- worker: signs off
DELETE FROM worker WHERE id = 'w9';

-- queue: pauses one
INSERT INTO queue_pause (queue, paused_at) VALUES ('slow', NOW(6))
ON DUPLICATE KEY UPDATE queue = queue;

-- queue: lets one run again
DELETE FROM queue_pause WHERE queue = 'bulk';

-- archive: copies jobs that are done
INSERT INTO job_archive (id, kind, state, finished_at)
SELECT id, kind, state, finished_at FROM job WHERE state = 'done';

-- instead: reads the jobs and archives their values
SELECT id, kind, state, finished_at FROM job WHERE state = 'done';
INSERT INTO job_archive (id, kind, state, finished_at)
VALUES (4, 'mail', 'done', '2023-12-01 00:01:00');

-- archive: removes jobs that are done
DELETE FROM job WHERE state = 'done' AND finished_at < '2024-01-01 00:00:00';

-- archive: removes what is very old
DELETE FROM job_archive WHERE finished_at < '2023-01-01 00:00:00';

-- cron: locks the entry that is due
SELECT name, next_at FROM cron_entry WHERE next_at <= '2024-01-01 03:00:00' FOR UPDATE;

-- cron: moves an entry on, if no other scheduler did
UPDATE cron_entry SET next_at = '2024-01-02 03:00:00', last_job = 7
WHERE name = 'nightly' AND next_at = '2024-01-01 03:00:00';

-- leader: takes over when the holder's time is over
INSERT INTO leader (name, holder, expires_at) VALUES ('scheduler', 'w1', '2024-01-01 00:05:00')
ON DUPLICATE KEY UPDATE
    holder = IF(expires_at <= '2024-01-01 00:01:00', VALUES(holder), holder),
    expires_at = IF(holder = VALUES(holder), VALUES(expires_at), expires_at);

-- semaphore: waits for no other, takes one of what is left
UPDATE semaphore SET value = value - 1, expires_at = '2024-01-01 00:20:00'
WHERE key_name = 'api' AND value > 0;

-- semaphore: gives one back
UPDATE semaphore SET value = value + 1 WHERE key_name = 'api' AND value < 5;
