-- A site with an admin whose object mapper quotes names, numbers its joins and collects what it
-- deletes by itself: users, groups, content, a log, sessions, a shop's stock.

-- == schema

CREATE TABLE auth_user (
    id integer PRIMARY KEY,
    password varchar(128) NOT NULL,
    last_login text,
    is_superuser integer NOT NULL,
    username varchar(150) NOT NULL UNIQUE,
    email varchar(254) NOT NULL,
    is_active integer NOT NULL,
    date_joined text NOT NULL
);

CREATE TABLE auth_group (
    id integer PRIMARY KEY,
    name varchar(150) NOT NULL UNIQUE
);

CREATE TABLE auth_user_groups (
    id integer PRIMARY KEY,
    user_id bigint NOT NULL REFERENCES auth_user (id) DEFERRABLE INITIALLY DEFERRED,
    group_id bigint NOT NULL REFERENCES auth_group (id) DEFERRABLE INITIALLY DEFERRED,
    UNIQUE (user_id, group_id)
);

CREATE TABLE content_article (
    id integer PRIMARY KEY,
    title varchar(200) NOT NULL,
    slug varchar(50) NOT NULL UNIQUE,
    body text NOT NULL,
    status varchar(10) NOT NULL,
    author_id bigint NULL REFERENCES auth_user (id) DEFERRABLE INITIALLY DEFERRED,
    view_count integer NOT NULL,
    metadata text NOT NULL,
    published_at text NULL,
    modified_at text NOT NULL
);

CREATE TABLE content_category (
    id integer PRIMARY KEY,
    parent_id bigint NULL REFERENCES content_category (id) DEFERRABLE INITIALLY DEFERRED,
    name varchar(60) NOT NULL,
    lft integer NOT NULL,
    rght integer NOT NULL,
    tree_id integer NOT NULL
);

CREATE TABLE content_article_categories (
    id integer PRIMARY KEY,
    article_id bigint NOT NULL REFERENCES content_article (id) DEFERRABLE INITIALLY DEFERRED,
    category_id bigint NOT NULL REFERENCES content_category (id) DEFERRABLE INITIALLY DEFERRED,
    UNIQUE (article_id, category_id)
);

CREATE TABLE admin_log (
    id integer PRIMARY KEY,
    action_time text NOT NULL,
    object_id text NULL,
    object_repr varchar(200) NOT NULL,
    action_flag smallint NOT NULL,
    change_message text NOT NULL,
    user_id bigint NOT NULL REFERENCES auth_user (id) DEFERRABLE INITIALLY DEFERRED
);

CREATE TABLE site_session (
    session_key varchar(40) PRIMARY KEY,
    session_data text NOT NULL,
    expire_date text NOT NULL
);

CREATE TABLE site_cache (
    cache_key varchar(255) PRIMARY KEY,
    value text NOT NULL,
    expires text NOT NULL
);

CREATE TABLE shop_stock (
    id text PRIMARY KEY,
    sku varchar(40) NOT NULL,
    quantity integer NOT NULL CHECK (quantity >= 0),
    reserved integer NOT NULL
);

CREATE TABLE shop_allocation (
    id integer PRIMARY KEY,
    stock_id text NOT NULL REFERENCES shop_stock (id) DEFERRABLE INITIALLY DEFERRED,
    order_no varchar(20) NOT NULL,
    quantity integer NOT NULL,
    UNIQUE (stock_id, order_no)
);

CREATE TABLE site_migrations (
    id integer PRIMARY KEY,
    app varchar(255) NOT NULL,
    name varchar(255) NOT NULL,
    applied text NOT NULL
);

-- == rows

INSERT INTO auth_user VALUES
    (1, 'pbkdf2$a', '2024-01-05 10:00:00', 1, 'admin', 'admin@example.org', 1,
        '2024-01-01 00:00:00'),
    (2, 'pbkdf2$b', NULL, 0, 'writer', 'writer@example.org', 1, '2024-01-02 00:00:00'),
    (3, '!', NULL, 0, 'guest', '', 0, '2024-01-03 00:00:00');
INSERT INTO auth_group VALUES (1, 'editors'), (2, 'readers');
INSERT INTO auth_user_groups VALUES (1, 2, 1), (2, 2, 2), (3, 1, 1);
INSERT INTO content_article VALUES
    (1, 'Alpha', 'alpha', 'Text', 'live', 2, 10, '{"tags": ["x"]}', '2024-01-10 00:00:00',
        '2024-01-10 00:00:00'),
    (2, 'Beta', 'beta', 'More', 'draft', 2, 0, '{}', NULL, '2024-01-11 00:00:00'),
    (3, 'Gamma', 'gamma', '', 'draft', NULL, 3, '{}', NULL, '2024-01-12 00:00:00');
INSERT INTO content_category VALUES (1, NULL, 'Root', 1, 6, 1), (2, 1, 'News', 2, 3, 1),
    (3, 1, 'Blog', 4, 5, 1);
INSERT INTO content_category VALUES (4, NULL, 'Old', 1, 4, 2), (5, 4, 'Older', 2, 3, 2);
INSERT INTO content_article_categories VALUES (1, 1, 2), (2, 1, 3), (3, 2, 3);
INSERT INTO admin_log VALUES (1, '2024-01-10 00:00:00', '1', 'Alpha', 1, '[{"added": {}}]', 1);
INSERT INTO site_session VALUES ('k1', 'e30:1', '2024-02-01 00:00:00'),
    ('k2', 'e30:2', '2023-12-01 00:00:00');
INSERT INTO site_cache VALUES ('page:/', 'html', '2024-02-01 00:00:00'),
    ('page:/x', 'html', '2023-01-01 00:00:00');
INSERT INTO shop_stock VALUES ('018f0000-0000-7000-8000-0000000000a1', 'CUP', 10, 2),
    ('018f0000-0000-7000-8000-0000000000a2', 'CUP', 4, 0),
    ('018f0000-0000-7000-8000-0000000000a3', 'POT', 1, 1);
INSERT INTO shop_allocation VALUES (1, '018f0000-0000-7000-8000-0000000000a1', 'O-1', 2);
INSERT INTO site_migrations VALUES (1, 'content', '0001_initial', '2024-01-01 00:00:00');

-- == statements

-- create: a user
INSERT INTO `auth_user` (`password`, `last_login`, `is_superuser`, `username`,
    `email`, `is_active`, `date_joined`)
VALUES ('pbkdf2$c', NULL, 0, 'new', 'new@example.org', 1, '2024-02-01 00:00:00');

-- login: dates it
-- bound: '2024-02-01 10:00:00', 2
UPDATE `auth_user` SET `last_login` = ? WHERE `auth_user`.`id` = ?;

-- save: all columns of a user
UPDATE `auth_user` SET `password` = 'pbkdf2$d', `last_login` = NULL,
    `is_superuser` = 0, `username` = 'author', `email` = 'a@example.org',
    `is_active` = 1, `date_joined` = '2024-01-02 00:00:00'
WHERE `auth_user`.`id` = 2;

-- admin action: stops users
UPDATE `auth_user` SET `is_active` = 0 WHERE `auth_user`.`id` IN (1, 2);

-- delete: a user whom nothing refers to
DELETE FROM `auth_user` WHERE `auth_user`.`id` IN (3);

-- collected delete: the groups of a user
DELETE FROM `auth_user_groups` WHERE `auth_user_groups`.`user_id` IN (2);

-- collected delete: articles lose their author
UPDATE `content_article` SET `author_id` = NULL
WHERE `content_article`.`id` IN (1, 2);

-- create: a group
INSERT INTO `auth_group` (`name`) VALUES ('staff');

-- many to many: adds groups and skips those that are there
INSERT OR IGNORE INTO "auth_user_groups" ("user_id", "group_id") VALUES (1, 1), (1, 2);

-- many to many: takes groups off a user
DELETE FROM `auth_user_groups` WHERE (`auth_user_groups`.`user_id` = 2
    AND `auth_user_groups`.`group_id` IN (1));

-- create: an article
INSERT INTO `content_article` (`title`, `slug`, `body`, `status`,
    `author_id`, `view_count`, `metadata`, `published_at`, `modified_at`)
VALUES ('Delta', 'delta', 'Quote '' and \ slash', 'draft', 2, 0, '{"a": null}', NULL,
    '2024-02-01 00:00:00.123456');

-- bulk create: articles
INSERT INTO `content_article` (`title`, `slug`, `body`, `status`,
    `view_count`, `metadata`, `modified_at`)
VALUES ('E', 'e', '', 'draft', 0, '{}', '2024-02-01 00:00:00'),
    ('F', 'f', '', 'draft', 0, '{}', '2024-02-01 00:00:00'),
    ('G', 'g', '', 'live', 0, '[]', '2024-02-01 00:00:00');

-- bulk create: with an update of conflicts
INSERT INTO `content_article` (`title`, `slug`, `body`, `status`,
    `view_count`, `metadata`, `modified_at`)
VALUES ('Alpha 2', 'alpha', '', 'live', 0, '{}', '2024-02-01 00:00:00'),
    ('Zeta', 'zeta', '', 'live', 0, '{}', '2024-02-01 00:00:00')
ON CONFLICT("slug") DO UPDATE SET "title" = EXCLUDED."title", "status" = EXCLUDED."status";

-- bulk update: one CASE for each column
UPDATE `content_article` SET `title` = CASE
    WHEN (`content_article`.`id` = 1) THEN 'One'
    WHEN (`content_article`.`id` = 2) THEN 'Two' ELSE NULL END,
    `view_count` = CASE WHEN (`content_article`.`id` = 1) THEN 11
    WHEN (`content_article`.`id` = 2) THEN 1 ELSE NULL END
WHERE `content_article`.`id` IN (1, 2);

-- F expression: counts a view
UPDATE `content_article` SET `view_count` = (`content_article`.`view_count` + 1)
WHERE `content_article`.`id` = 1;

-- update: publishes drafts of active authors by a nested sub-select
UPDATE "content_article" SET "status" = 'live', "published_at" = '2024-02-01 00:00:00'
WHERE "content_article"."id" IN (SELECT U0."id" FROM "content_article" U0
    INNER JOIN "auth_user" U1 ON (U0."author_id" = U1."id")
    WHERE (U0."status" = 'draft' AND U1."is_active"));

-- update: takes a value from a sub-select of another table
UPDATE `content_article` SET `title` = (SELECT U0.`username` FROM `auth_user` U0
    WHERE U0.`id` = (`content_article`.`author_id`) LIMIT 1)
WHERE `content_article`.`author_id` IS NOT NULL;

-- update: a text with a function
UPDATE "content_article" SET "slug" = ("content_article"."slug" || '-old')
WHERE `content_article`.`status` = 'draft';

-- update: a key of a document
UPDATE "content_article" SET "metadata" = JSON_SET("content_article"."metadata", '$.seen', 1)
WHERE JSON_EXTRACT("content_article"."metadata", '$.tags[0]') = 'x';

-- fast delete: by a nested query
DELETE FROM "content_article_categories" WHERE "content_article_categories"."id" IN (
    SELECT U0."id" FROM "content_article_categories" U0
    INNER JOIN "content_article" U1 ON (U0."article_id" = U1."id")
    WHERE U1."status" = 'draft');

-- collected delete: articles after what refers to them
DELETE FROM `content_article` WHERE `content_article`.`id` IN (3);

-- tree: makes room for a node
UPDATE content_category
SET lft = CASE WHEN lft > 3 THEN lft + 2 ELSE lft END,
    rght = CASE WHEN rght > 3 THEN rght + 2 ELSE rght END
WHERE tree_id = 1 AND rght > 3;

-- tree: adds a node
INSERT INTO `content_category` (`parent_id`, `name`, `lft`, `rght`,
    `tree_id`)
VALUES (2, 'Local', 3, 4, 1);

-- tree: removes a branch, children with their parents
DELETE FROM `content_category` WHERE `content_category`.`id` IN (5, 4);

-- log: writes what an admin did
INSERT INTO `admin_log` (`action_time`, `object_id`, `object_repr`,
    `action_flag`, `change_message`, `user_id`)
VALUES (CURRENT_TIMESTAMP, '2', 'Beta', 2, '[{"changed": {"fields": ["Title"]}}]', 1);

-- session: saves one by an update first
UPDATE `site_session` SET `session_data` = 'e30:9',
    `expire_date` = '2024-03-01 00:00:00' WHERE `site_session`.`session_key` = 'k1';

-- session: creates one
INSERT INTO `site_session` (`session_key`, `session_data`, `expire_date`)
VALUES ('k9', 'e30:0', '2024-03-01 00:00:00');

-- session: removes those that have expired
DELETE FROM `site_session` WHERE `site_session`.`expire_date` < '2024-01-01 00:00:00';

-- cache: sets a page
INSERT INTO site_cache (cache_key, value, expires)
VALUES ('page:/', 'new', '2024-03-01 00:00:00')
ON CONFLICT (cache_key) DO UPDATE SET value = excluded.value, expires = excluded.expires;

-- cache: culls what has expired
DELETE FROM site_cache WHERE expires < '2024-01-01 00:00:00';

-- stock: reserves if there is enough
UPDATE `shop_stock` SET `reserved` = (`shop_stock`.`reserved` + 3)
WHERE (`shop_stock`.`sku` = 'CUP'
    AND `shop_stock`.`quantity` - `shop_stock`.`reserved` >= 3);

-- stock: takes reserved units
UPDATE `shop_stock` SET `quantity` = (`shop_stock`.`quantity` - 1),
    `reserved` = (`shop_stock`.`reserved` - 1)
WHERE `shop_stock`.`id` = '018f0000-0000-7000-8000-0000000000a3';

-- stock: adds rows whose keys are random
INSERT INTO `shop_stock` (`id`, `sku`, `quantity`, `reserved`)
VALUES ('018f0000-0000-7000-8000-0000000000a9', 'LID', 5, 0);

-- stock: allocates or adds to what is allocated
INSERT INTO `shop_allocation` (`stock_id`, `order_no`, `quantity`)
VALUES ('018f0000-0000-7000-8000-0000000000a1', 'O-1', 1)
ON CONFLICT("stock_id", "order_no")
DO UPDATE SET "quantity" = "shop_allocation"."quantity" + EXCLUDED."quantity";

-- migration: notes that it was applied
INSERT INTO `site_migrations` (`app`, `name`, `applied`)
VALUES ('content', '0002_views', '2024-02-01 00:00:00');
