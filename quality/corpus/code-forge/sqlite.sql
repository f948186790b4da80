-- trusts: label_lower
-- A code forge whose object mapper names every column in quotes and counts by sub-selects:
-- users, repositories, issues, labels, pull requests, stars, access tokens, action runs.

-- == schema

CREATE TABLE user_account (
    id integer PRIMARY KEY AUTOINCREMENT,
    lower_name varchar(255) NOT NULL UNIQUE,
    name varchar(255) NOT NULL,
    email varchar(255) NOT NULL,
    secret varchar(255) NOT NULL,
    is_admin integer NOT NULL DEFAULT 0,
    follower_count integer NOT NULL DEFAULT 0,
    star_count integer NOT NULL DEFAULT 0,
    repo_count integer NOT NULL DEFAULT 0,
    created_s bigint,
    updated_s bigint
);

CREATE TABLE repository (
    id integer PRIMARY KEY AUTOINCREMENT,
    owner_id bigint,
    lower_name varchar(255) NOT NULL,
    name varchar(255) NOT NULL,
    star_count integer NOT NULL DEFAULT 0,
    issue_count integer NOT NULL DEFAULT 0,
    closed_count integer NOT NULL DEFAULT 0,
    is_private integer,
    topics text,
    size bigint NOT NULL DEFAULT 0,
    updated_s bigint,
    UNIQUE (owner_id, lower_name)
);

CREATE TABLE issue (
    id integer PRIMARY KEY AUTOINCREMENT,
    repo_id bigint,
    number bigint,
    poster_id bigint,
    name varchar(255),
    content text,
    is_closed integer NOT NULL DEFAULT 0,
    comment_count integer NOT NULL DEFAULT 0,
    milestone_id bigint,
    updated_s bigint,
    UNIQUE (repo_id, number)
);

CREATE TABLE issue_counter (
    repo_id bigint PRIMARY KEY,
    last_number bigint
);

CREATE TABLE issue_user (
    id integer PRIMARY KEY AUTOINCREMENT,
    uid bigint,
    issue_id bigint,
    is_read integer,
    is_mentioned integer,
    UNIQUE (uid, issue_id)
);

CREATE TABLE label (
    id integer PRIMARY KEY AUTOINCREMENT,
    repo_id bigint,
    name varchar(255),
    lower_name varchar(255),
    issue_count integer NOT NULL DEFAULT 0,
    closed_count integer NOT NULL DEFAULT 0
);

CREATE TABLE issue_label (
    id integer PRIMARY KEY AUTOINCREMENT,
    issue_id bigint,
    label_id bigint,
    UNIQUE (issue_id, label_id)
);

CREATE TABLE milestone (
    id integer PRIMARY KEY AUTOINCREMENT,
    repo_id bigint,
    name varchar(255),
    issue_count integer NOT NULL DEFAULT 0,
    closed_count integer NOT NULL DEFAULT 0,
    completeness integer
);

CREATE TABLE star (
    id integer PRIMARY KEY AUTOINCREMENT,
    uid bigint,
    repo_id bigint,
    UNIQUE (uid, repo_id)
);

CREATE TABLE pull_request (
    id integer PRIMARY KEY AUTOINCREMENT,
    issue_id bigint,
    status integer,
    head_branch varchar(255),
    commits_ahead integer,
    merged_s bigint
);

CREATE TABLE access_token (
    id integer PRIMARY KEY AUTOINCREMENT,
    uid bigint,
    token_hash varchar(100) UNIQUE,
    updated_s bigint
);

CREATE TABLE action_run (
    id integer PRIMARY KEY AUTOINCREMENT,
    repo_id bigint,
    status integer,
    version integer NOT NULL DEFAULT 0,
    locked_by varchar(40),
    started_s bigint
);

CREATE TABLE status_counter (
    id integer PRIMARY KEY AUTOINCREMENT,
    repo_id bigint,
    sha varchar(64),
    last_number bigint,
    UNIQUE (repo_id, sha)
);

CREATE TABLE setting (
    setting_key varchar(100) PRIMARY KEY,
    setting_value text,
    version integer NOT NULL DEFAULT 1
);

CREATE TABLE repo_topic (
    repo_id bigint NOT NULL,
    topic_id bigint NOT NULL,
    PRIMARY KEY (repo_id, topic_id)
);

CREATE TRIGGER label_lower AFTER INSERT ON label BEGIN
    UPDATE label SET lower_name = lower(name) WHERE id = NEW.id;
END;

-- == rows

INSERT INTO user_account VALUES
    (1, 'ada', 'Ada', 'ada@example.org', 'x', 1, 1, 2, 2, 1700000000, 1700000000),
    (2, 'bo', 'Bo', 'bo@example.org', 'y', 0, 0, 4, 0, 1700000100, 1700000100),
    (3, 'cy', 'Cy', 'cy@example.org', 'z', 0, 0, 0, 0, 1700000200, 1700000200);
INSERT INTO repository VALUES
    (1, 1, 'engine', 'Engine', 2, 3, 1, 0, '["rust"]', 4096, 1700000000),
    (2, 1, 'site', 'Site', 1, 1, 0, 1, NULL, 100, 1700000000),
    (3, 2, 'dots', 'dots', 0, 0, 0, 0, '[]', 0, 1700000000);
INSERT INTO issue VALUES
    (1, 1, 1, 1, 'Crash', 'It stops.', 0, 2, 1, 1700000300),
    (2, 1, 2, 2, 'Slow', NULL, 1, 0, 1, 1700000400),
    (3, 1, 3, 2, 'Typo', '', 0, 1, NULL, 1700000500),
    (4, 2, 1, 1, 'Colour', 'Blue?', 0, 0, NULL, 1700000600);
INSERT INTO issue_counter VALUES (1, 7), (2, 1);
INSERT INTO issue_user VALUES (1, 1, 1, 1, 0), (2, 2, 1, 0, 1), (3, 2, 3, 0, 0);
INSERT INTO label (id, repo_id, name, issue_count, closed_count)
VALUES (1, 1, 'Bug', 6, 5), (2, 1, 'Docs', 1, 0), (3, 2, 'Bug', 0, 0);
INSERT INTO issue_label VALUES (1, 1, 1), (2, 2, 1), (3, 3, 2);
INSERT INTO milestone VALUES (1, 1, '1.0', 2, 1, 50), (2, 1, '2.0', 0, 0, 0);
INSERT INTO star VALUES (1, 1, 1), (2, 2, 1), (3, 1, 2);
INSERT INTO pull_request VALUES (1, 3, 2, 'fix-typo', 1, NULL), (2, 2, 0, 'faster', 7, NULL);
INSERT INTO access_token VALUES (1, 1, 'h1', 1700000000), (2, 2, 'h2', 1690000000);
INSERT INTO action_run VALUES (1, 1, 5, 1, NULL, NULL), (2, 1, 5, 0, NULL, NULL),
    (3, 2, 1, 2, 'runner-1', 1700000000);
INSERT INTO status_counter VALUES (1, 1, 'abc', 4);
INSERT INTO setting VALUES ('picture.off', 'false', 1), ('motd', 'Hello', 3);
INSERT INTO repo_topic VALUES (1, 1), (1, 2), (3, 1);

-- == statements

-- registers a user
INSERT INTO `user_account` (`lower_name`, `name`, `email`, `secret`,
    `is_admin`, `created_s`, `updated_s`)
VALUES ('dee', 'Dee', 'dee@example.org', 'p', 0, 1700001000, 1700001000);

-- saves a user's profile
-- bound: 'Bo B.', 'bo.b@example.org', 1700001000, 2
UPDATE `user_account` SET `name` = ?, `email` = ?, `updated_s` = ?
WHERE `id` = ?;

-- renames a user
UPDATE `user_account` SET `lower_name` = 'cyrus', `name` = 'Cyrus' WHERE `id` = 3;

-- counts a follower
UPDATE `user_account` SET follower_count = follower_count + 1 WHERE id = 1;

-- counts the stars of a user again
UPDATE `user_account` SET star_count = (
    SELECT count(*) FROM `star` WHERE uid = `user_account`.id) WHERE id = 2;

-- counts the repositories of every user again
UPDATE user_account SET repo_count = (
    SELECT COUNT(*) FROM repository WHERE owner_id = user_account.id)
WHERE repo_count <> 9;

-- removes a user who owns nothing
DELETE FROM `user_account` WHERE `id` = 3;

-- creates a repository
INSERT INTO `repository` (`owner_id`, `lower_name`, `name`, `is_private`,
    `topics`, `updated_s`)
VALUES (2, 'tool', 'Tool', 0, '["cli"]', 1700001000);

-- saves chosen columns of a repository
UPDATE `repository` SET `is_private` = 1, `topics` = '["rust", "db"]',
    `updated_s` = 1700001000 WHERE `id` = 1;

-- gives a repository to another owner
UPDATE `repository` SET `owner_id` = 2 WHERE `owner_id` = 1 AND `lower_name` = 'site';

-- removes a repository
DELETE FROM `repository` WHERE `id` = 3;

-- stars a repository
INSERT INTO `star` (`uid`, `repo_id`) VALUES (3, 1);

-- counts a star
UPDATE `repository` SET star_count = star_count + 1 WHERE id = 1;

-- takes a star away
DELETE FROM `star` WHERE `uid` = 1 AND `repo_id` = 2;

-- takes the next number of an issue
INSERT INTO issue_counter (repo_id, last_number) VALUES (1, 1)
ON CONFLICT (repo_id) DO UPDATE SET last_number = issue_counter.last_number + 1;

-- takes the next number of a commit's status
INSERT INTO status_counter (repo_id, sha, last_number) VALUES (1, 'abc', 1)
ON CONFLICT (repo_id, sha)
DO UPDATE SET last_number = status_counter.last_number + 1;

-- sets the number of issues back to what there is
UPDATE issue_counter SET last_number = (SELECT max(number) FROM issue WHERE repo_id = 1)
WHERE repo_id = 1 AND last_number <> 0;

-- opens an issue
INSERT INTO `issue` (`repo_id`, `number`, `poster_id`, `name`, `content`,
    `is_closed`, `updated_s`)
VALUES (1, 4, 2, 'Leak', 'Memory; grows "slowly".', 0, 1700001000);

-- opens an issue with the next number in one statement
INSERT INTO issue (repo_id, number, poster_id, name, updated_s)
SELECT 1, MAX(number) + 1, 1, 'Next', 1700001000 FROM issue WHERE repo_id = 1;

-- closes an issue
UPDATE `issue` SET `is_closed` = 1, `updated_s` = 1700001000 WHERE `id` = 1;

-- closes issues that were quiet
UPDATE issue SET is_closed = 1 WHERE is_closed = 0 AND updated_s < 1700000550
    AND repo_id IN (SELECT id FROM repository WHERE owner_id = 1);

-- counts the closed issues of a repository again
UPDATE `repository` SET closed_count = (
    SELECT count(*) FROM issue WHERE repo_id = 2 AND is_closed = 1 AND 1 = 1) + 1
WHERE id = 2;

-- counts issues and closed issues of a label in two sub-selects
UPDATE label SET issue_count = (SELECT count(*) FROM issue_label WHERE label_id = 1),
    closed_count = (SELECT count(*) FROM issue_label il JOIN issue i ON i.id = il.issue_id
        WHERE il.label_id = 1 AND i.is_closed = 0)
WHERE id = 1;

-- adds a label to a repository
INSERT INTO `label` (`repo_id`, `name`) VALUES (2, 'Help Wanted');

-- copies the labels of a repository
INSERT INTO label (repo_id, name) SELECT 3, name FROM label WHERE repo_id = 1;

-- labels an issue
INSERT INTO `issue_label` (`issue_id`, `label_id`) VALUES (3, 1);

-- takes all labels off an issue
DELETE FROM `issue_label` WHERE `issue_id` = 1;

-- takes labels of other repositories off the issues of one
DELETE FROM issue_label WHERE id IN (SELECT il.id FROM issue_label il
    JOIN issue i ON i.id = il.issue_id JOIN label l ON l.id = il.label_id
    WHERE i.repo_id = 1 AND l.name = 'Docs');

-- writes who is told of an issue
INSERT INTO `issue_user` (`uid`, `issue_id`, `is_read`, `is_mentioned`)
VALUES (1, 4, 1, 0), (2, 4, 0, 0), (3, 4, 0, 1);

-- marks an issue as read
UPDATE `issue_user` SET is_read = 1 WHERE uid = 2 AND issue_id = 1;

-- mentions users of an issue
UPDATE `issue_user` SET `is_mentioned` = 1
WHERE `issue_id` = 1 AND `uid` IN (1, 2, 3);

-- moves issues from one milestone to another
UPDATE issue SET milestone_id = 2 WHERE milestone_id = 1 AND is_closed = 0;

-- computes how much of a milestone is done
UPDATE `milestone` SET completeness = 100 * closed_count / (
    CASE WHEN issue_count > 0 THEN issue_count ELSE 1 END) + 1 WHERE `id` = 1;

-- merges a pull request unless another process has
UPDATE `pull_request` SET `status` = 3, `merged_s` = 1700001000
WHERE `id` = 1 AND `merged_s` IS NULL;

-- lets pull requests be checked again by the branch of their issue's repository
UPDATE pull_request SET status = 1
FROM issue WHERE issue.id = pull_request.issue_id AND issue.repo_id = 1
    AND pull_request.status = 2;

-- notes the use of a token
UPDATE `access_token` SET `updated_s` = 1700001000 WHERE `token_hash` = 'h1';

-- removes a token
DELETE FROM `access_token` WHERE `id` = 2 AND `uid` = 2;

-- takes a run for a runner by its version
UPDATE `action_run` SET `status` = 6, `locked_by` = 'runner-2',
    `started_s` = 1700001000, `version` = `version` + 1
WHERE `id` = 1 AND `version` = 1;

-- saves a setting unless it is there
INSERT OR IGNORE INTO setting (setting_key, setting_value)
VALUES ('motd', 'x'), ('theme', 'dark');

-- counts the version of a setting if it is as it was read
UPDATE setting SET setting_value = 'Good day', version = version + 1
WHERE setting_key = 'motd' AND version = 3;

-- gives a repository other topics, the old ones go
DELETE FROM `repo_topic` WHERE `repo_id` = 1 AND `topic_id` NOT IN (2, 5);

-- replaces a topic everywhere, which is part of the key
UPDATE repo_topic SET topic_id = 9 WHERE topic_id = 1 AND repo_id = 3;
