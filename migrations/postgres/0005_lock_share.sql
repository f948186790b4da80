-- Distributed locks that are held in parts, by readers or as permits of a semaphore.

-- One row per part. The lock's own row then has the owner 'shared', and ends with the last of them;
-- it is locked by whoever changes anything here.
CREATE TABLE IF NOT EXISTS distributed_lock_share (
    name       VARCHAR(200) NOT NULL COLLATE "C",
    token      VARCHAR(64)  NOT NULL,
    label      VARCHAR(100) NOT NULL,
    parts      BIGINT       NOT NULL,
    expires_at TIMESTAMPTZ  NOT NULL,
    PRIMARY KEY (name, token)
);
