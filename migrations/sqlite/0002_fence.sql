-- The table that a SQLite database needs for branches that are not AT: try, confirm and cancel of
-- TCC, actions and compensations of sagas, participants of two-phase commit.

-- One row per branch, written in the local transactions that the branch consists of. `status`: 1
-- tried, 2 confirmed, 3 cancelled, 4 barred (cancelled before it was tried). `action` is for
-- people, `context` what a try leaves for its confirm or cancel. The second index serves the purge
-- and never changes after the INSERT.
CREATE TABLE IF NOT EXISTS branch_fence (
    xid         TEXT    NOT NULL,
    branch_id   INTEGER NOT NULL,
    action      TEXT    NOT NULL,
    status      INTEGER NOT NULL,
    context     BLOB,
    created_at  TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    modified_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    PRIMARY KEY (xid, branch_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS branch_fence_created ON branch_fence (created_at);
