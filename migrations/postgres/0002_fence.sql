-- The table that a PostgreSQL database needs for branches that are not AT: try, confirm and cancel
-- of TCC, actions and compensations of sagas, participants of two-phase commit.

-- One row per branch, written in the local transactions that the branch consists of. `status`: 1
-- tried, 2 confirmed, 3 cancelled, 4 barred (cancelled before it was tried). `action` is for
-- people, `context` what a try leaves for its confirm or cancel. The second index serves the purge
-- and never changes after the INSERT, so that updates stay on the row's own page.
CREATE TABLE IF NOT EXISTS branch_fence (
    xid         VARCHAR(256) NOT NULL,
    branch_id   BIGINT       NOT NULL,
    action      VARCHAR(128) NOT NULL,
    status      SMALLINT     NOT NULL,
    context     BYTEA,
    created_at  TIMESTAMPTZ  NOT NULL DEFAULT CURRENT_TIMESTAMP,
    modified_at TIMESTAMPTZ  NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (xid, branch_id)
);

CREATE INDEX IF NOT EXISTS branch_fence_created ON branch_fence (created_at);
