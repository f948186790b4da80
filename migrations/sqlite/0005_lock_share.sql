-- Distributed locks that are held in parts, by readers or as permits of a semaphore.

-- One row per part. The lock's own row then has the owner 'shared', and ends with the last of them;
-- it is locked by whoever changes anything here.
CREATE TABLE IF NOT EXISTS distributed_lock_share (
    name       TEXT    NOT NULL,
    token      TEXT    NOT NULL,
    label      TEXT    NOT NULL,
    parts      INTEGER NOT NULL,
    expires_at REAL    NOT NULL,
    PRIMARY KEY (name, token)
) STRICT;
