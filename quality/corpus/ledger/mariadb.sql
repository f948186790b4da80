-- trusts: entry_checked
-- An accounting ledger in double entry: accounts with balances, journals with lines, holds,
-- transfers,
-- periods that close, exchange rates, reconciliation, an outbox and keys of idempotent requests.

-- == schema

CREATE TABLE currency (
    code char(3) PRIMARY KEY,
    digits integer NOT NULL
);

CREATE TABLE account (
    id bigint AUTO_INCREMENT PRIMARY KEY,
    code varchar(20) NOT NULL UNIQUE,
    name varchar(80) NOT NULL,
    kind varchar(12) NOT NULL CHECK (kind IN ('asset', 'liability', 'equity', 'income', 'expense')),
    currency char(3) NOT NULL REFERENCES currency (code),
    parent_id bigint REFERENCES account (id),
    balance decimal(18, 4) NOT NULL DEFAULT 0,
    held decimal(18, 4) NOT NULL DEFAULT 0,
    version bigint NOT NULL DEFAULT 0,
    closed tinyint(1) NOT NULL DEFAULT 0,
    CHECK (held >= 0)
);

CREATE TABLE period (
    year integer NOT NULL,
    month integer NOT NULL,
    state varchar(10) NOT NULL DEFAULT 'open',
    closed_at datetime(6),
    PRIMARY KEY (year, month)
);

CREATE TABLE journal (
    id bigint AUTO_INCREMENT PRIMARY KEY,
    number varchar(20) UNIQUE,
    booked_on date NOT NULL,
    memo varchar(200) NOT NULL DEFAULT '',
    reversed_by bigint REFERENCES journal (id),
    created_at datetime(6) NOT NULL
);

CREATE TABLE entry (
    journal_id bigint NOT NULL REFERENCES journal (id),
    line integer NOT NULL,
    account_id bigint NOT NULL REFERENCES account (id),
    debit decimal(18, 4) NOT NULL DEFAULT 0,
    credit decimal(18, 4) NOT NULL DEFAULT 0,
    amount decimal(18, 4) AS (debit - credit) STORED,
    reconciled tinyint(1) NOT NULL DEFAULT 0,
    PRIMARY KEY (journal_id, line),
    CHECK (debit >= 0 AND credit >= 0)
);

CREATE TABLE hold (
    id char(36) PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES account (id),
    amount decimal(18, 4) NOT NULL,
    state varchar(10) NOT NULL,
    expires_at datetime(6) NOT NULL
);

CREATE TABLE rate (
    from_code char(3) NOT NULL,
    to_code char(3) NOT NULL,
    valid_on date NOT NULL,
    value decimal(18, 8) NOT NULL,
    PRIMARY KEY (from_code, to_code, valid_on)
);

CREATE TABLE daily_balance (
    account_id bigint NOT NULL,
    day date NOT NULL,
    opening decimal(18, 4) NOT NULL,
    closing decimal(18, 4) NOT NULL,
    PRIMARY KEY (account_id, day)
);

CREATE TABLE statement_line (
    id bigint AUTO_INCREMENT PRIMARY KEY,
    bank_ref varchar(60) NOT NULL UNIQUE,
    account_id bigint NOT NULL,
    amount decimal(18, 4) NOT NULL,
    matched_journal bigint,
    matched_line integer
);

CREATE TABLE request_key (
    client varchar(40) NOT NULL,
    request_id varchar(60) NOT NULL,
    answer json,
    created_at datetime(6) NOT NULL,
    PRIMARY KEY (client, request_id)
);

CREATE TABLE number_series (
    name varchar(20) PRIMARY KEY,
    next_value bigint NOT NULL
);

CREATE TABLE outbox_event (
    id bigint AUTO_INCREMENT PRIMARY KEY,
    topic varchar(60) NOT NULL,
    payload json NOT NULL,
    sent_at datetime(6)
);

CREATE TABLE audit_trail (
    changed_at datetime(6) NOT NULL,
    actor varchar(40) NOT NULL,
    what text NOT NULL
);

CREATE TRIGGER entry_checked BEFORE INSERT ON entry FOR EACH ROW
    IF NEW.debit > 0 AND NEW.credit > 0 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a line has one side';
    END IF;
CREATE TRIGGER hold_audited AFTER UPDATE ON hold FOR EACH ROW
    INSERT INTO audit_trail VALUES (NOW(), 'trigger', NEW.id);

-- == rows

INSERT INTO currency VALUES ('EUR', 2), ('JPY', 0), ('USD', 2);
INSERT INTO account (id, code, name, kind, currency, parent_id, balance, held, version) VALUES
    (1, '1000', 'Cash', 'asset', 'EUR', NULL, 500.0000, 20.0000, 4),
    (2, '2000', 'Deposits', 'liability', 'EUR', NULL, -300.0000, 0, 2),
    (3, '4000', 'Sales', 'income', 'EUR', NULL, -200.0000, 0, 1),
    (4, '1010', 'Cash in dollars', 'asset', 'USD', 1, 75.5000, 0, 0),
    (5, '9999', 'Unused', 'equity', 'EUR', NULL, 0, 0, 0);
INSERT INTO period VALUES (2024, 1, 'open', NULL), (2023, 12, 'closed', '2024-01-10 00:00:00');
INSERT INTO journal VALUES (1, 'J-1', '2024-01-02', 'Deposit', NULL, '2024-01-02 09:00:00'),
    (2, 'J-2', '2024-01-03', 'Sale', NULL, '2024-01-03 09:00:00'),
    (3, NULL, '2024-01-04', 'Draft', NULL, '2024-01-04 09:00:00'),
    (4, NULL, '2024-01-04', 'Empty', NULL, '2024-01-04 09:00:00');
INSERT INTO entry (journal_id, line, account_id, debit, credit) VALUES (1, 1, 1, 300.0000, 0),
    (1, 2, 2, 0, 300.0000), (2, 1, 1, 200.0000, 0), (2, 2, 3, 0, 200.0000), (3, 1, 1, 5.0000, 0);
INSERT INTO hold VALUES
    ('018f0000-0000-7000-8000-0000000000c1', 1, 20.0000, 'open', '2024-01-05 00:00:00'),
    ('018f0000-0000-7000-8000-0000000000c2', 2, 1.0000, 'done', '2024-01-01 00:00:00');
INSERT INTO rate VALUES ('USD', 'EUR', '2024-01-02', 0.91000000),
    ('USD', 'EUR', '2024-01-03', 0.91500000);
INSERT INTO daily_balance VALUES (1, '2024-01-02', 0, 300.0000);
INSERT INTO statement_line VALUES (1, 'B-1', 1, 300.0000, NULL, NULL),
    (2, 'B-2', 1, 7.0000, NULL, NULL);
INSERT INTO request_key VALUES ('web', 'r-1', '{"journal": 1}', '2024-01-02 09:00:00'),
    ('web', 'r-0', NULL, '2023-06-01 00:00:00');
INSERT INTO number_series VALUES ('journal', 3);
INSERT INTO outbox_event VALUES (1, 'booked', '{"id": 1}', '2024-01-02 09:00:01'),
    (2, 'booked', '{"id": 2}', NULL);

-- == statements

-- book: locks both accounts in the order of their numbers
SELECT id, balance, held FROM account WHERE id IN (1, 2) ORDER BY id FOR UPDATE;

-- book: reads the period under a lock
SELECT state FROM period WHERE year = 2024 AND month = 1 FOR UPDATE;

-- book: takes the next number
UPDATE number_series SET next_value = next_value + 1 WHERE name = 'journal';

-- book: writes the head
INSERT INTO journal (number, booked_on, memo, created_at)
VALUES ('J-3', '2024-01-05', 'Rent', '2024-01-05 09:00:00');

-- book: writes the lines, which a trigger checks
INSERT INTO entry (journal_id, line, account_id, debit, credit)
VALUES (3, 2, 2, 0, 4.5000), (3, 3, 3, 0, 0.5000);

-- book: writes a line with bound amounts
-- bound: 3, 2, 2, '0.0001'
INSERT INTO entry (journal_id, line, account_id, credit) VALUES (?, ?, ?, ?);

-- book: adds to a balance
UPDATE account SET balance = balance + 5.0000, version = version + 1 WHERE id = 1;

-- book: takes from a balance if it is covered
UPDATE account SET balance = balance - 480.0000, version = version + 1
WHERE id = 1 AND balance - held >= 480.0000;

-- book: moves an amount between two accounts by one statement
UPDATE account SET balance = balance + CASE id WHEN 1 THEN -50.0000 ELSE 50.0000 END
WHERE id IN (1, 2);

-- book: writes a balance if its version is the one that was read
UPDATE account SET balance = 499.0000, version = 5 WHERE id = 1 AND version = 4;

-- book: adds the lines of a journal to all of its accounts
UPDATE account JOIN (SELECT account_id, SUM(debit - credit) AS total FROM entry
    WHERE journal_id = 2 GROUP BY account_id) AS s ON s.account_id = account.id
SET account.balance = account.balance + s.total, account.version = account.version + 1;

-- book: computes a balance again from all lines
UPDATE account SET balance = (SELECT COALESCE(SUM(debit - credit), 0) FROM entry e
    WHERE e.account_id = account.id) WHERE id = 1;

-- reverse: copies the lines with their sides changed
INSERT INTO entry (journal_id, line, account_id, debit, credit)
SELECT 3, line + 10, account_id, credit, debit FROM entry WHERE journal_id = 1;

-- instead: reads the lines and writes them with their sides changed
SELECT line, account_id, credit, debit FROM entry WHERE journal_id = 1;
INSERT INTO entry (journal_id, line, account_id, debit, credit)
VALUES (3, 11, 1, 0, 300.0000), (3, 12, 2, 300.0000, 0);

-- reverse: marks the journal
UPDATE journal SET reversed_by = 3 WHERE id = 1 AND reversed_by IS NULL;

-- draft: removes a line
DELETE FROM entry WHERE journal_id = 3 AND line = 1;

-- draft: removes a journal without lines
DELETE FROM journal WHERE id = 4 AND number IS NULL;

-- draft: changes a line
UPDATE entry SET debit = 6.0000, account_id = 4 WHERE journal_id = 3 AND line = 1;

-- draft: numbers the lines anew, which are part of the key
UPDATE entry SET line = line + 10 WHERE journal_id = 3;

-- instead: gives one line its number
UPDATE entry SET line = 11 WHERE journal_id = 3 AND line = 1;

-- hold: reserves an amount
INSERT INTO hold (id, account_id, amount, state, expires_at)
VALUES ('018f0000-0000-7000-8000-0000000000c9', 1, 15.0000, 'open', '2024-01-06 00:00:00');

-- hold: adds to what is held if it is covered
UPDATE account SET held = held + 15.0000 WHERE id = 1 AND balance - held >= 15.0000;

-- hold: ends one, which a trigger writes into the audit
UPDATE hold SET state = 'done' WHERE id = '018f0000-0000-7000-8000-0000000000c1';

-- hold: gives back what has expired, by account
UPDATE account JOIN (SELECT account_id, SUM(amount) AS amount FROM hold
    WHERE state = 'open' AND expires_at < '2024-02-01 00:00:00' GROUP BY account_id) AS x
ON x.account_id = account.id SET account.held = account.held - x.amount;

-- hold: removes those that are done
DELETE FROM hold WHERE state = 'done' AND expires_at < '2024-01-02 00:00:00';

-- period: closes one
UPDATE period SET state = 'closed', closed_at = NOW(6) WHERE year = 2024 AND month = 1
    AND state = 'open';

-- period: opens the next unless it is there
INSERT IGNORE INTO period (year, month) VALUES (2024, 1), (2024, 2);

-- balances: writes those of a day from the accounts
INSERT INTO daily_balance (account_id, day, opening, closing)
SELECT id, '2024-01-03', balance, balance FROM account WHERE kind = 'asset';

-- instead: reads the accounts and writes the balances of a day
SELECT id, balance FROM account WHERE kind = 'asset';
INSERT INTO daily_balance (account_id, day, opening, closing)
VALUES (1, '2024-01-03', 500.0000, 500.0000), (4, '2024-01-03', 75.5000, 75.5000);

-- balances: writes those of a day again from the accounts
INSERT INTO daily_balance (account_id, day, opening, closing)
SELECT id, '2024-01-02', 0, balance FROM account WHERE kind = 'asset'
ON DUPLICATE KEY UPDATE closing = VALUES(closing);

-- instead: reads the accounts, and writes the balances of a day again
SELECT id, balance FROM account WHERE kind = 'asset';
INSERT INTO daily_balance (account_id, day, opening, closing)
VALUES (1, '2024-01-02', 0, 500.0000), (4, '2024-01-02', 0, 75.5000)
ON DUPLICATE KEY UPDATE closing = VALUES(closing);

-- balances: adds a line to that of a day
INSERT INTO daily_balance (account_id, day, opening, closing) VALUES (1, '2024-01-02', 0, 12.2500)
ON DUPLICATE KEY UPDATE closing = closing + VALUES(closing);

-- rates: saves those of a day
REPLACE INTO rate (from_code, to_code, valid_on, value)
VALUES ('USD', 'EUR', '2024-01-03', 0.92000000), ('JPY', 'EUR', '2024-01-03', 0.00640000);

-- rates: removes old ones
DELETE FROM rate WHERE valid_on < '2024-01-03';

-- reconcile: ties a line of the bank to a line of a journal
UPDATE statement_line SET matched_journal = 1, matched_line = 1 WHERE bank_ref = 'B-1';

-- reconcile: ties lines of equal amounts
UPDATE statement_line s JOIN entry e ON e.account_id = s.account_id AND e.amount = s.amount
SET s.matched_journal = e.journal_id, s.matched_line = e.line
WHERE s.matched_journal IS NULL;

-- reconcile: marks lines of journals that are tied
UPDATE entry SET reconciled = 1 WHERE account_id = 1 AND EXISTS (
    SELECT 1 FROM statement_line s WHERE s.account_id = entry.account_id
        AND s.amount = entry.debit);

-- reconcile: marks lines of both tables at once
UPDATE statement_line s JOIN entry e ON e.account_id = s.account_id AND e.amount = s.amount
SET s.matched_journal = e.journal_id, e.reconciled = 1;

-- reconcile: loads lines of the bank
INSERT INTO statement_line (bank_ref, account_id, amount)
VALUES ('B-3', 1, -3.1000), ('B-4', 1, 1000000.0001);

-- request: keeps its key unless it is known
INSERT INTO request_key (client, request_id, created_at) VALUES ('web', 'r-2', NOW(6))
ON DUPLICATE KEY UPDATE request_id = VALUES(request_id);

-- request: keeps its answer
UPDATE request_key SET answer = '{"journal": 9}' WHERE client = 'web' AND request_id = 'r-0';

-- request: removes old keys
DELETE FROM request_key WHERE created_at < '2024-01-01 00:00:00';

-- event: writes one beside the books
INSERT INTO outbox_event (topic, payload) VALUES ('booked', '{"id": 3, "lines": [1, 2]}');

-- event: locks the next that no other sender has
SELECT id, payload FROM outbox_event WHERE sent_at IS NULL ORDER BY id LIMIT 10
FOR UPDATE SKIP LOCKED;

-- event: marks those that were sent
UPDATE outbox_event SET sent_at = NOW(6) WHERE id IN (1, 2) AND sent_at IS NULL;

-- audit: writes a row, in a table without a key
INSERT INTO audit_trail (changed_at, actor, what) VALUES (NOW(6), 'ann', 'closed 2024-01');

-- account: opens one below another
INSERT INTO account (code, name, kind, currency, parent_id)
VALUES ('1020', 'Petty cash', 'asset', 'EUR', (SELECT a.id FROM (
    SELECT id FROM account WHERE code = '1000') AS a));

-- account: moves children to another parent
UPDATE account SET parent_id = 5 WHERE parent_id = 1;

-- account: removes one that was never used
DELETE FROM account WHERE id = 5 AND balance = 0;

-- currency: renames one that accounts refer to
UPDATE currency SET digits = 3 WHERE code = 'JPY';
