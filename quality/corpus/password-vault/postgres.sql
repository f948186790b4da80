-- A vault of passwords whose object mapper writes whole records as upserts: accounts, devices,
-- entries, folders, collections, organizations, attachments. Keys are UUIDs as text.

-- == schema

CREATE TABLE account (
    uuid char(36) PRIMARY KEY,
    created_at timestamp NOT NULL,
    updated_at timestamp NOT NULL,
    email varchar(120) NOT NULL UNIQUE,
    name varchar(60) NOT NULL,
    pass_hash bytea NOT NULL,
    iterations integer NOT NULL DEFAULT 600000,
    stamp char(36) NOT NULL,
    hint text,
    enabled boolean NOT NULL DEFAULT true
);

CREATE TABLE device (
    uuid char(36) NOT NULL,
    account_uuid char(36) NOT NULL,
    name varchar(60) NOT NULL,
    refresh_token varchar(80) NOT NULL,
    updated_at timestamp NOT NULL,
    PRIMARY KEY (uuid, account_uuid),
    FOREIGN KEY (account_uuid) REFERENCES account (uuid)
);

CREATE TABLE organization (
    uuid char(36) PRIMARY KEY,
    name varchar(60) NOT NULL,
    billing_email varchar(120) NOT NULL
);

CREATE TABLE membership (
    uuid char(36) PRIMARY KEY,
    account_uuid char(36) NOT NULL,
    organization_uuid char(36) NOT NULL,
    access_all boolean NOT NULL,
    status integer NOT NULL,
    kind integer NOT NULL,
    UNIQUE (account_uuid, organization_uuid),
    FOREIGN KEY (account_uuid) REFERENCES account (uuid),
    FOREIGN KEY (organization_uuid) REFERENCES organization (uuid)
);

CREATE TABLE entry (
    uuid char(36) PRIMARY KEY,
    created_at timestamp NOT NULL,
    updated_at timestamp NOT NULL,
    account_uuid char(36),
    organization_uuid char(36),
    kind integer NOT NULL,
    name text NOT NULL,
    content text NOT NULL,
    deleted_at timestamp,
    FOREIGN KEY (account_uuid) REFERENCES account (uuid),
    FOREIGN KEY (organization_uuid) REFERENCES organization (uuid)
);

CREATE TABLE attachment (
    id varchar(40) PRIMARY KEY,
    entry_uuid char(36) NOT NULL,
    file_name text NOT NULL,
    file_size bigint NOT NULL,
    FOREIGN KEY (entry_uuid) REFERENCES entry (uuid)
);

CREATE TABLE folder (
    uuid char(36) PRIMARY KEY,
    updated_at timestamp NOT NULL,
    account_uuid char(36) NOT NULL,
    name text NOT NULL,
    FOREIGN KEY (account_uuid) REFERENCES account (uuid)
);

CREATE TABLE folder_entry (
    entry_uuid char(36) NOT NULL,
    folder_uuid char(36) NOT NULL,
    PRIMARY KEY (entry_uuid, folder_uuid),
    FOREIGN KEY (entry_uuid) REFERENCES entry (uuid),
    FOREIGN KEY (folder_uuid) REFERENCES folder (uuid)
);

CREATE TABLE favorite (
    account_uuid char(36) NOT NULL,
    entry_uuid char(36) NOT NULL,
    PRIMARY KEY (account_uuid, entry_uuid),
    FOREIGN KEY (account_uuid) REFERENCES account (uuid) ON DELETE CASCADE,
    FOREIGN KEY (entry_uuid) REFERENCES entry (uuid) ON DELETE CASCADE
);

CREATE TABLE collection (
    uuid char(36) PRIMARY KEY,
    organization_uuid char(36) NOT NULL,
    name text NOT NULL,
    FOREIGN KEY (organization_uuid) REFERENCES organization (uuid)
);

CREATE TABLE collection_entry (
    entry_uuid char(36) NOT NULL,
    collection_uuid char(36) NOT NULL,
    PRIMARY KEY (entry_uuid, collection_uuid),
    FOREIGN KEY (entry_uuid) REFERENCES entry (uuid),
    FOREIGN KEY (collection_uuid) REFERENCES collection (uuid)
);

CREATE TABLE collection_group (
    collection_uuid char(36) NOT NULL,
    group_uuid char(36) NOT NULL,
    read_only boolean NOT NULL,
    PRIMARY KEY (collection_uuid, group_uuid)
);

CREATE TABLE login_factor (
    uuid char(36) PRIMARY KEY,
    account_uuid char(36) NOT NULL,
    kind integer NOT NULL,
    secret text NOT NULL,
    last_used bigint NOT NULL DEFAULT 0,
    UNIQUE (account_uuid, kind),
    FOREIGN KEY (account_uuid) REFERENCES account (uuid)
);

CREATE TABLE login_request (
    uuid char(36) PRIMARY KEY,
    account_uuid char(36) NOT NULL,
    approved boolean,
    created_at timestamp NOT NULL,
    FOREIGN KEY (account_uuid) REFERENCES account (uuid)
);

CREATE TABLE event (
    uuid char(36) PRIMARY KEY,
    kind integer NOT NULL,
    account_uuid char(36),
    happened_at timestamp NOT NULL
);

CREATE TABLE invitation (
    email varchar(120) PRIMARY KEY
);

-- == rows

INSERT INTO account VALUES
    ('a0000000-0000-7000-8000-000000000001', '2024-01-01 08:00:00', '2024-01-02 08:00:00',
        'ann@example.org', 'Ann', '\x01ff', 600000, 's1', NULL, true),
    ('a0000000-0000-7000-8000-000000000002', '2024-01-01 09:00:00', '2024-01-03 09:00:00',
        'bob@example.org', 'Bob', '\xab', 100000, 's2', 'the usual', true);
INSERT INTO device VALUES ('d1', 'a0000000-0000-7000-8000-000000000001', 'phone', 'tok-1',
        '2024-01-02 08:00:00'),
    ('d2', 'a0000000-0000-7000-8000-000000000001', 'laptop', 'tok-2', '2024-01-02 09:00:00'),
    ('d3', 'a0000000-0000-7000-8000-000000000002', 'phone', 'tok-3', '2024-01-03 09:00:00');
INSERT INTO organization VALUES ('o1', 'Family', 'bills@example.org');
INSERT INTO membership VALUES
    ('m1', 'a0000000-0000-7000-8000-000000000001', 'o1', true, 2, 0),
    ('m2', 'a0000000-0000-7000-8000-000000000002', 'o1', false, 0, 2);
INSERT INTO entry VALUES
    ('e1', '2024-01-02 08:00:00', '2024-01-02 08:00:00', 'a0000000-0000-7000-8000-000000000001',
        NULL, 1, '2.n1', '{"login": "x"}', NULL),
    ('e2', '2024-01-02 08:10:00', '2024-01-02 08:10:00', 'a0000000-0000-7000-8000-000000000001',
        NULL, 2, '2.n2', '{}', '2024-01-05 00:00:00'),
    ('e3', '2024-01-02 08:20:00', '2024-01-02 08:20:00', NULL, 'o1', 1, '2.n3', '{}', NULL),
    ('e4', '2024-01-02 08:30:00', '2024-01-02 08:30:00', NULL, 'o1', 1, '2.n4', '{}', NULL);
INSERT INTO attachment VALUES ('at1', 'e1', '2.file', 2048), ('at2', 'e2', '2.scan', 9000);
INSERT INTO folder VALUES
    ('f1', '2024-01-02 08:00:00', 'a0000000-0000-7000-8000-000000000001', '2.work'),
    ('f2', '2024-01-02 08:00:00', 'a0000000-0000-7000-8000-000000000001', '2.home');
INSERT INTO folder_entry VALUES ('e1', 'f1');
INSERT INTO favorite VALUES ('a0000000-0000-7000-8000-000000000001', 'e1'),
    ('a0000000-0000-7000-8000-000000000001', 'e3');
INSERT INTO collection VALUES ('c1', 'o1', '2.shared'), ('c2', 'o1', '2.bank');
INSERT INTO collection_entry VALUES ('e3', 'c1');
INSERT INTO collection_group VALUES ('c1', 'g1', false), ('c2', 'g1', true);
INSERT INTO login_factor VALUES
    ('t1', 'a0000000-0000-7000-8000-000000000001', 0, 'JBSWY3', 57000000);
INSERT INTO login_request VALUES
    ('l1', 'a0000000-0000-7000-8000-000000000001', NULL, '2024-01-04 10:00:00'),
    ('l2', 'a0000000-0000-7000-8000-000000000002', true, '2024-01-01 10:00:00');
INSERT INTO event VALUES
    ('v1', 1000, 'a0000000-0000-7000-8000-000000000001', '2023-06-01 00:00:00'),
    ('v2', 1100, 'a0000000-0000-7000-8000-000000000002', '2024-01-01 00:00:00');
INSERT INTO invitation VALUES ('cy@example.org'), ('dee@example.org');

INSERT INTO account VALUES
    ('a0000000-0000-7000-8000-000000000009', '2024-01-01 10:00:00', '2024-01-03 10:00:00',
        'zoe@example.org', 'Zoe', '\xcd', 600000, 's4', NULL, true);

-- == statements

-- saves an account that is there
INSERT INTO account (uuid, created_at, updated_at, email, name, pass_hash, iterations,
    stamp, hint, enabled)
VALUES ('a0000000-0000-7000-8000-000000000001', '2024-01-01 08:00:00', '2024-02-01 08:00:00',
    'ann@example.org', 'Ann B', '\x02fe', 600000, 's9', 'none', true)
ON CONFLICT (uuid) DO UPDATE SET updated_at = excluded.updated_at, email = excluded.email,
    name = excluded.name, pass_hash = excluded.pass_hash,
    stamp = excluded.stamp, hint = excluded.hint;

-- saves an account that is not there
-- bound: 'a0000000-0000-7000-8000-000000000003', 'eve@example.org', 'Eve', 's3'
INSERT INTO account (uuid, created_at, updated_at, email, name, pass_hash,
    stamp)
VALUES ($1, '2024-02-01', '2024-02-01', $2, $3, '', $4)
ON CONFLICT (uuid) DO UPDATE SET email = excluded.email, name = excluded.name,
    stamp = excluded.stamp;

-- saves an account with all columns assigned, its key too
INSERT INTO account (uuid, created_at, updated_at, email, name, pass_hash, stamp)
VALUES ('a0000000-0000-7000-8000-000000000002', '2024-01-01', '2024-02-02',
    'bob@example.org', 'Bob C', '\xac', 's8')
ON CONFLICT (uuid) DO UPDATE SET uuid = excluded.uuid, created_at = excluded.created_at,
    updated_at = excluded.updated_at, email = excluded.email, name = excluded.name,
    pass_hash = excluded.pass_hash, stamp = excluded.stamp;

-- changes the stamp of an account, which ends its sessions
UPDATE account SET stamp = 's7', updated_at = now()
WHERE uuid = 'a0000000-0000-7000-8000-000000000001';

-- bars an account
UPDATE account SET enabled = false WHERE account.uuid = 'a0000000-0000-7000-8000-000000000002';

-- raises the iterations of old accounts
UPDATE account SET iterations = 600000 WHERE iterations < 600000;

-- touches the accounts of an organization
UPDATE account SET updated_at = now() WHERE uuid IN (
    SELECT account_uuid FROM membership WHERE organization_uuid = 'o1');

-- saves a device
INSERT INTO device (uuid, account_uuid, name, refresh_token, updated_at)
VALUES ('d1', 'a0000000-0000-7000-8000-000000000001', 'new phone', 'tok-9', '2024-02-01 00:00:00')
ON CONFLICT (uuid, account_uuid) DO UPDATE SET name = excluded.name,
    refresh_token = excluded.refresh_token, updated_at = excluded.updated_at;

-- removes the devices of an account
DELETE FROM device WHERE device.account_uuid = 'a0000000-0000-7000-8000-000000000001';

-- saves an organization
INSERT INTO organization (uuid, name, billing_email)
VALUES ('o1', 'Family and friends', 'bills@example.org')
ON CONFLICT (uuid) DO UPDATE SET uuid = 'o1', name = 'Family and friends',
    billing_email = 'bills@example.org';

-- confirms a member
UPDATE membership SET status = 2 WHERE uuid = 'm2' AND organization_uuid = 'o1';

-- removes a member
DELETE FROM membership WHERE membership.uuid = 'm2';

-- saves an entry that is there
INSERT INTO entry (uuid, created_at, updated_at, account_uuid, kind, name, content)
VALUES ('e1', '2024-01-02 08:00:00', '2024-02-01 08:00:00',
    'a0000000-0000-7000-8000-000000000001', 1, '2.n1b', '{"login": "y"}')
ON CONFLICT (uuid) DO UPDATE SET updated_at = excluded.updated_at, name = excluded.name,
    content = excluded.content;

-- writes a new entry
INSERT INTO entry (uuid, created_at, updated_at, account_uuid, kind, name, content)
VALUES ('e9', '2024-02-01 08:00:00', '2024-02-01 08:00:00',
    'a0000000-0000-7000-8000-000000000001', 1, '2.n9', '{}');

-- imports entries
INSERT INTO entry (uuid, created_at, updated_at, account_uuid, kind, name, content, deleted_at)
    VALUES
    ('i1', '2024-02-01', '2024-02-01', 'a0000000-0000-7000-8000-000000000002', 1, 'a', '{}', NULL),
    ('i2', '2024-02-01', '2024-02-01', 'a0000000-0000-7000-8000-000000000002', 2, 'b', '{}', NULL),
    ('i3', '2024-02-01', '2024-02-01', 'a0000000-0000-7000-8000-000000000002', 3, 'c', '{}', NULL);

-- puts an entry into the bin
UPDATE entry SET deleted_at = now(), updated_at = now() WHERE uuid = 'e1';

-- takes entries out of the bin
UPDATE entry SET deleted_at = NULL
WHERE deleted_at IS NOT NULL AND account_uuid = 'a0000000-0000-7000-8000-000000000001';

-- gives entries of an account to an organization
UPDATE entry SET organization_uuid = 'o1', account_uuid = NULL WHERE uuid IN ('e1', 'e2');

-- removes the attachments of an entry
DELETE FROM attachment WHERE attachment.entry_uuid = 'e1';

-- removes an entry with its folders and collections, others first
DELETE FROM collection_entry WHERE collection_entry.entry_uuid = 'e3';

-- removes an entry that others refer to by a key that acts along
DELETE FROM entry WHERE entry.uuid = 'e4';

-- marks an entry as a favorite
INSERT INTO favorite (account_uuid, entry_uuid)
VALUES ('a0000000-0000-7000-8000-000000000002', 'e3')
ON CONFLICT DO NOTHING;

-- removes a mark
DELETE FROM favorite
WHERE account_uuid = 'a0000000-0000-7000-8000-000000000001' AND entry_uuid = 'e1';

-- saves a folder
INSERT INTO folder (uuid, updated_at, account_uuid, name)
VALUES ('f2', '2024-02-01 00:00:00', 'a0000000-0000-7000-8000-000000000001', '2.house')
ON CONFLICT (uuid) DO UPDATE SET name = excluded.name, updated_at = excluded.updated_at;

-- moves an entry between folders, out of the old one
DELETE FROM folder_entry WHERE entry_uuid = 'e1' AND folder_uuid = 'f1';

-- moves an entry between folders, into the other one
INSERT INTO folder_entry (entry_uuid, folder_uuid) VALUES ('e1', 'f2')
ON CONFLICT (entry_uuid, folder_uuid) DO NOTHING;

-- removes a folder without entries
DELETE FROM folder WHERE folder.uuid = 'f2';

-- puts an entry into a collection
INSERT INTO collection_entry (entry_uuid, collection_uuid) VALUES ('e4', 'c2')
ON CONFLICT (entry_uuid, collection_uuid)
DO UPDATE SET entry_uuid = 'e4', collection_uuid = 'c2';

-- instead: puts an entry into a collection unless it is there
INSERT INTO collection_entry (entry_uuid, collection_uuid) VALUES ('e4', 'c2')
ON CONFLICT (entry_uuid, collection_uuid) DO NOTHING;

-- lets a group read a collection, in a table whose key is a unique index
INSERT INTO collection_group (collection_uuid, group_uuid, read_only)
VALUES ('c1', 'g1', true)
ON CONFLICT (collection_uuid, group_uuid) DO UPDATE SET collection_uuid = 'c1',
    group_uuid = 'g1', read_only = true;

-- takes a collection from its groups
DELETE FROM collection_group WHERE collection_uuid = 'c1';

-- saves a second factor by its account and kind
INSERT INTO login_factor (uuid, account_uuid, kind, secret, last_used)
VALUES ('t9', 'a0000000-0000-7000-8000-000000000001', 0, 'KRSXG5', 57000001)
ON CONFLICT (account_uuid, kind) DO UPDATE SET uuid = excluded.uuid,
    secret = excluded.secret, last_used = excluded.last_used;

-- instead: keeps the key of the second factor that is there
INSERT INTO login_factor (uuid, account_uuid, kind, secret, last_used)
VALUES ('t9', 'a0000000-0000-7000-8000-000000000001', 0, 'KRSXG5', 57000001)
ON CONFLICT (account_uuid, kind) DO UPDATE SET secret = excluded.secret,
    last_used = excluded.last_used;

-- takes a code only once
UPDATE login_factor SET last_used = 57000002 WHERE uuid = 't1' AND last_used < 57000002;

-- removes all second factors of an account
DELETE FROM login_factor
WHERE account_uuid = 'a0000000-0000-7000-8000-000000000001' AND kind < 1000;

-- approves a request for a login
UPDATE login_request SET approved = true WHERE uuid = 'l1' AND approved IS NULL;

-- removes requests for a login that are old
DELETE FROM login_request WHERE created_at < '2024-01-04 00:00:00';

-- writes events in a batch
INSERT INTO event (uuid, kind, account_uuid, happened_at)
VALUES ('v8', 1107, 'a0000000-0000-7000-8000-000000000001', '2024-02-01 00:00:00.123456'),
    ('v9', 1108, NULL, '2024-02-01 00:00:01');

-- removes old events
DELETE FROM event WHERE happened_at < '2023-12-01 00:00:00';

-- invites an address
INSERT INTO invitation (email) VALUES ('fay@example.org') ON CONFLICT (email) DO NOTHING;

-- takes an invitation back
DELETE FROM invitation WHERE email = 'cy@example.org';

-- changes the address of an invitation, which is its key
UPDATE invitation SET email = 'dee@example.com' WHERE email = 'dee@example.org';

-- removes an account that nothing refers to
DELETE FROM account WHERE account.uuid = 'a0000000-0000-7000-8000-000000000009';
