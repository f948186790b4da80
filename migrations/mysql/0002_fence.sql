-- The table that a MySQL or MariaDB database needs for branches that are not AT: try, confirm and
-- cancel of TCC, actions and compensations of sagas, participants of two-phase commit.

-- One row per branch, written in the local transactions that the branch consists of. `status`: 1
-- tried, 2 confirmed, 3 cancelled, 4 barred (cancelled before it was tried). `action` is for
-- people, `context` what a try leaves for its confirm or cancel. Times are UTC. The second index
-- serves the purge and never changes after the INSERT.
CREATE TABLE IF NOT EXISTS branch_fence (
    xid         VARCHAR(256) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    branch_id   BIGINT       NOT NULL,
    action      VARCHAR(128) NOT NULL,
    status      SMALLINT     NOT NULL,
    context     MEDIUMBLOB,
    created_at  DATETIME(6)  NOT NULL,
    modified_at DATETIME(6)  NOT NULL,
    PRIMARY KEY (xid, branch_id),
    KEY branch_fence_created (created_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
