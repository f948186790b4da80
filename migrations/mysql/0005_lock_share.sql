-- Distributed locks that are held in parts, by readers or as permits of a semaphore.

-- One row per part. The lock's own row then has the owner 'shared', and ends with the last of them;
-- it is locked by whoever changes anything here.
CREATE TABLE IF NOT EXISTS distributed_lock_share (
    name       VARBINARY(200) NOT NULL,
    token      VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    label      VARCHAR(100) CHARACTER SET utf8mb4 NOT NULL,
    parts      BIGINT       NOT NULL,
    expires_at DATETIME(6)  NOT NULL,
    PRIMARY KEY (name, token)
) ENGINE = InnoDB;
