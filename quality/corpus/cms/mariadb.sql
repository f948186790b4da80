-- A content system with a shop as a plugin, in the manner of those that run on MySQL alone: posts
-- with
-- metadata in rows, options as upserts, counted terms, cached values, scheduled actions, reserved
-- stock.

-- == schema

CREATE TABLE entry (
    ID bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    author bigint unsigned NOT NULL DEFAULT 0,
    dated datetime NOT NULL DEFAULT '1000-01-01 00:00:00',
    dated_gmt datetime NOT NULL DEFAULT '1000-01-01 00:00:00',
    content longtext NOT NULL,
    title text NOT NULL,
    status varchar(20) NOT NULL DEFAULT 'publish',
    name varchar(200) NOT NULL DEFAULT '',
    parent bigint unsigned NOT NULL DEFAULT 0,
    kind varchar(20) NOT NULL DEFAULT 'post',
    sort_order int NOT NULL DEFAULT 0,
    remarks bigint NOT NULL DEFAULT 0,
    KEY name (name(191)),
    KEY type_status_date (kind, status, dated, ID)
);

CREATE TABLE entry_data (
    data_id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    entry_id bigint unsigned NOT NULL DEFAULT 0,
    data_key varchar(255) DEFAULT NULL,
    data_value longtext,
    KEY entry_id (entry_id),
    KEY data_key (data_key(191))
);

CREATE TABLE site_option (
    option_id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    option_name varchar(191) NOT NULL DEFAULT '',
    option_value longtext NOT NULL,
    autoload varchar(20) NOT NULL DEFAULT 'yes',
    UNIQUE KEY option_name (option_name)
);

CREATE TABLE remark (
    remark_id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    entry_id bigint unsigned NOT NULL DEFAULT 0,
    writer tinytext NOT NULL,
    written_at datetime NOT NULL DEFAULT '1000-01-01 00:00:00',
    words text NOT NULL,
    approved varchar(20) NOT NULL DEFAULT '1',
    answer_to bigint unsigned NOT NULL DEFAULT 0
);

CREATE TABLE term (
    term_id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name varchar(200) NOT NULL DEFAULT '',
    slug varchar(200) NOT NULL DEFAULT ''
);

CREATE TABLE term_use (
    use_id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    term_id bigint unsigned NOT NULL DEFAULT 0,
    taxonomy varchar(32) NOT NULL DEFAULT '',
    parent bigint unsigned NOT NULL DEFAULT 0,
    count bigint NOT NULL DEFAULT 0,
    UNIQUE KEY term_taxonomy (term_id, taxonomy)
);

CREATE TABLE term_tie (
    object_id bigint unsigned NOT NULL DEFAULT 0,
    use_id bigint unsigned NOT NULL DEFAULT 0,
    term_order int NOT NULL DEFAULT 0,
    PRIMARY KEY (object_id, use_id)
);

CREATE TABLE member (
    ID bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    login varchar(60) NOT NULL DEFAULT '',
    secret varchar(255) NOT NULL DEFAULT '',
    email varchar(100) NOT NULL DEFAULT '',
    standing int NOT NULL DEFAULT 0
);

CREATE TABLE member_data (
    data_id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    user_id bigint unsigned NOT NULL DEFAULT 0,
    data_key varchar(255) DEFAULT NULL,
    data_value longtext
);

CREATE TABLE plugin_order (
    id bigint unsigned NOT NULL PRIMARY KEY,
    status varchar(20) DEFAULT NULL,
    total_amount decimal(26, 8) DEFAULT NULL,
    customer_id bigint unsigned DEFAULT NULL,
    changed_gmt datetime DEFAULT NULL
);

CREATE TABLE plugin_order_item (
    item_id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    item_name text NOT NULL,
    order_id bigint unsigned NOT NULL
);

CREATE TABLE plugin_article_index (
    product_id bigint NOT NULL PRIMARY KEY,
    sku varchar(100) DEFAULT '',
    min_price decimal(19, 4) DEFAULT NULL,
    stock_quantity double DEFAULT NULL,
    stock_status varchar(100) DEFAULT 'instock',
    total_sales bigint DEFAULT 0
);

CREATE TABLE plugin_reservation (
    order_id bigint NOT NULL,
    product_id bigint NOT NULL,
    stock_quantity double NOT NULL DEFAULT 0,
    timestamp datetime NOT NULL DEFAULT '1000-01-01 00:00:00',
    expires datetime NOT NULL DEFAULT '1000-01-01 00:00:00',
    PRIMARY KEY (order_id, product_id)
);

CREATE TABLE plugin_cart (
    cart_id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    cart_key char(32) NOT NULL,
    cart_value longtext NOT NULL,
    cart_expiry bigint unsigned NOT NULL,
    UNIQUE KEY cart_key (cart_key)
);

CREATE TABLE task (
    task_id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    hook varchar(191) NOT NULL,
    status varchar(20) NOT NULL,
    due_gmt datetime NULL,
    priority tinyint unsigned NOT NULL DEFAULT 10,
    args varchar(191) DEFAULT NULL,
    attempts int NOT NULL DEFAULT 0,
    claim_id bigint unsigned NOT NULL DEFAULT 0,
    tried_gmt datetime NULL
);

CREATE TABLE task_claim (
    claim_id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    made_gmt datetime NULL
);

-- == rows

INSERT INTO entry (ID, author, dated, dated_gmt, content, title,
    status, name, parent, kind, remarks) VALUES
    (1, 1, '2024-01-01 10:00:00', '2024-01-01 09:00:00', 'Hi', 'Hello', 'publish', 'hello', 0,
        'post', 1),
    (2, 1, '2024-01-02 10:00:00', '2024-01-02 09:00:00', 'Text', 'About', 'draft', '', 0,
        'page', 0),
    (3, 1, '2024-01-02 11:00:00', '2024-01-02 10:00:00', 'Old', 'About', 'inherit',
        '2-revision-v1', 2, 'revision', 0),
    (4, 2, '2024-01-03 10:00:00', '2024-01-03 09:00:00', '', 'Cup', 'publish', 'cup', 0,
        'product', 0),
    (5, 2, '2023-01-03 10:00:00', '2023-01-03 09:00:00', '', 'Auto', 'auto-draft', '', 0,
        'post', 0);
INSERT INTO entry_data VALUES (1, 1, '_editor', '1'), (2, 4, '_stock', '12'),
    (3, 4, '_price', '9.90'), (4, 1, '_opened', '1700000000:1'), (5, 99, '_orphan', 'x');
INSERT INTO site_option VALUES (1, 'siteurl', 'https://example.org', 'yes'),
    (2, '_cached_feed', 'a:1', 'no'), (3, '_cached_timeout_feed', '1600000000', 'no'),
    (4, 'cron', 'a:0:{}', 'yes'), (5, '_cached_live', 'b', 'no'),
    (6, '_cached_timeout_live', '1900000000', 'no');
INSERT INTO remark VALUES (1, 1, 'Ann', '2024-01-05 00:00:00', 'Nice', '1', 0),
    (2, 1, 'Bot', '2023-01-05 00:00:00', 'Buy', 'spam', 0),
    (3, 1, 'Bob', '2024-01-06 00:00:00', 'Why', '0', 1);
INSERT INTO term VALUES (1, 'News', 'news'), (2, 'Cups', 'cups'), (3, 'Lone', 'lone');
INSERT INTO term_use VALUES (1, 1, 'category', 0, 7), (2, 2, 'product_cat', 0, 1),
    (3, 3, 'category', 1, 0);
INSERT INTO term_tie VALUES (1, 1, 0), (4, 2, 0), (99, 1, 0);
INSERT INTO member VALUES (1, 'admin', '$P$a', 'admin@example.org', 0),
    (2, 'seller', '$P$b', 'seller@example.org', 0);
INSERT INTO member_data VALUES (1, 1, 'nickname', 'admin'), (2, 2, 'nickname', 'seller'),
    (3, 2, 'session_tokens', 'a:1');
INSERT INTO plugin_order VALUES (10, 'pending', 19.80, 2, '2024-02-01 00:00:00'),
    (11, 'completed', 9.90, NULL, '2024-02-02 00:00:00');
INSERT INTO plugin_order_item VALUES (1, 'Cup', 10), (2, 'Shipping', 10), (3, 'Cup', 11);
INSERT INTO plugin_article_index VALUES (4, 'CUP', 9.90, 12, 'instock', 3);
INSERT INTO plugin_reservation VALUES
    (10, 4, 2, '2024-02-01 00:00:00', '2024-02-01 01:00:00');
INSERT INTO plugin_cart VALUES (1, 'k1', 'a:0', 1700000000), (2, 'k2', 'a:1', 1600000000);
INSERT INTO task VALUES
    (1, 'send', 'pending', '2024-02-01 00:00:00', 10, '[1]', 0, 0, NULL),
    (2, 'send', 'pending', '2024-02-01 00:00:01', 10, '[2]', 0, 0, NULL),
    (3, 'clean', 'complete', '2023-01-01 00:00:00', 10, NULL, 1, 0, '2023-01-01 00:00:01');
INSERT INTO task_claim VALUES (1, '2024-01-01 00:00:00');

-- == statements

-- post: inserts one
INSERT INTO `entry` (`author`, `dated`, `dated_gmt`, `content`, `title`,
    `status`, `name`, `parent`, `kind`, `sort_order`)
VALUES (1, '2024-02-01 10:00:00', '2024-02-01 09:00:00', '<p>It\'s new</p>', 'New', 'draft', '',
    0, 'post', 0);

-- post: inserts one that waits for its date
INSERT INTO `entry` (`author`, `dated`, `content`, `title`, `status`)
VALUES (1, '0000-00-00 00:00:00', '', '', 'draft');

-- post: publishes one
UPDATE `entry` SET `status` = 'publish', `name` = 'about' WHERE `ID` = 2;

-- post: saves all its columns
UPDATE `entry` SET `author` = 1, `dated` = '2024-01-01 10:00:00',
    `content` = 'Hi all', `title` = 'Hello 2', `status` = 'publish',
    `name` = 'hello', `parent` = 0, `sort_order` = 0, `kind` = 'post',
    `remarks` = 1 WHERE `ID` = 1;

-- post: removes one
DELETE FROM `entry` WHERE `ID` = 3;

-- post: moves the children of a page
UPDATE entry SET parent = 0 WHERE parent = 2 AND kind <> 'attachment';

-- post: removes old drafts that were never saved
DELETE FROM entry WHERE status = 'auto-draft'
    AND DATE_SUB('2024-02-01 00:00:00', INTERVAL 7 DAY) > dated;

-- post: replaces a word in all contents
UPDATE entry SET content = REPLACE(content, 'Hi', 'Hello')
WHERE content LIKE '%Hi%';

-- post: counts approved comments again
UPDATE entry SET remarks = (
    SELECT COUNT(*) + 4 FROM remark
    WHERE entry_id = entry.ID AND approved = '1')
WHERE ID = 1;

-- metadata: adds a row
INSERT INTO `entry_data` (`entry_id`, `data_key`, `data_value`) VALUES (1, '_picture', '55');

-- metadata: adds a row unless the key is there
INSERT INTO entry_data (entry_id, data_key, data_value)
SELECT 2, '_layout', 'default' FROM DUAL
WHERE NOT EXISTS (
    SELECT 1 FROM entry_data WHERE entry_id = 2 AND data_key = '_layout');

-- metadata: changes a value
UPDATE `entry_data` SET `data_value` = '1700000500:1'
WHERE `entry_id` = 1 AND `data_key` = '_opened';

-- metadata: takes from a stock that is text
UPDATE entry_data SET data_value = data_value - 2.000000
WHERE entry_id = 4 AND data_key = '_stock';

-- metadata: removes rows by their numbers
DELETE FROM entry_data WHERE data_id IN (1, 4);

-- metadata: removes rows of posts that are gone
DELETE pm FROM entry_data pm LEFT JOIN entry wp ON wp.ID = pm.entry_id WHERE wp.ID IS NULL;

-- metadata: copies the rows of a post to another
INSERT INTO entry_data (entry_id, data_key, data_value)
SELECT 2, data_key, data_value FROM entry_data WHERE entry_id = 4;

-- instead: reads the rows and writes them as values
SELECT data_key, data_value FROM entry_data WHERE entry_id = 4;
INSERT INTO entry_data (entry_id, data_key, data_value)
VALUES (2, '_stock', '12'), (2, '_price', '9.90');

-- option: saves one, new or not
INSERT INTO `site_option` (`option_name`, `option_value`, `autoload`)
VALUES ('siteurl', 'https://example.com', 'yes')
ON DUPLICATE KEY UPDATE `option_name` = VALUES(`option_name`),
    `option_value` = VALUES(`option_value`), `autoload` = VALUES(`autoload`);

-- option: changes one
UPDATE `site_option` SET `option_value` = 'a:1:{i:0;s:1:\"x\";}' WHERE `option_name` = 'cron';

-- option: takes a lock unless it is taken
INSERT IGNORE INTO `site_option` (`option_name`, `option_value`, `autoload`)
VALUES ('updater.lock', '1700000000', 'no') /* LOCK */;

-- option: removes a cached value with its time-out
DELETE FROM site_option WHERE option_name IN ('_cached_feed', '_cached_timeout_feed');

-- option: removes all cached values that have expired
DELETE a, b FROM site_option a, site_option b
WHERE a.option_name LIKE '\\_cached\\_%' AND a.option_name NOT LIKE '\\_cached\\_timeout\\_%'
    AND b.option_name = CONCAT('_cached_timeout_', SUBSTRING(a.option_name, 9))
    AND b.option_value < 1700000000;

-- instead: reads the names, and removes the options by them
SELECT b.option_name FROM site_option b
WHERE b.option_name LIKE '\\_cached\\_timeout\\_%' AND b.option_value < 1700000000;
DELETE FROM site_option WHERE option_name IN ('_cached_feed', '_cached_timeout_feed');

-- comment: writes one
INSERT INTO `remark` (`entry_id`, `writer`, `written_at`, `words`,
    `approved`, `answer_to`)
VALUES (1, 'Eve', '2024-02-01 00:00:00', 'Good 😀', '0', 1);

-- comment: approves one
UPDATE `remark` SET `approved` = '1' WHERE `remark_id` = 3;

-- comment: removes spam that is old
DELETE FROM remark WHERE approved = 'spam' AND written_at < '2024-01-01' LIMIT 100;

-- term: adds one
INSERT INTO `term` (`name`, `slug`) VALUES ('Plates', 'plates');

-- term: puts it into a taxonomy
INSERT INTO `term_use` (`term_id`, `taxonomy`, `parent`, `count`)
VALUES (2, 'category', 0, 0) ON DUPLICATE KEY UPDATE count = VALUES(count);

-- term: ties a post to terms with their order
INSERT INTO term_tie (object_id, use_id, term_order)
VALUES (1, 1, 2), (1, 3, 1) ON DUPLICATE KEY UPDATE term_order = VALUES(term_order);

-- term: unties a post
DELETE FROM term_tie WHERE object_id = 1 AND use_id IN ('1', '3');

-- term: counts the posts of a term again
UPDATE `term_use` SET `count` = 1 WHERE `use_id` = 1;

-- term: counts the published posts of all terms again
UPDATE term_use tt SET count = (
    SELECT COUNT(*) FROM term_tie tr JOIN entry p ON p.ID = tr.object_id
    WHERE tr.use_id = tt.use_id AND p.status = 'publish')
WHERE tt.taxonomy = 'category';

-- term: removes ties of posts that are gone
DELETE tr FROM term_tie tr
LEFT JOIN entry p ON tr.object_id = p.ID WHERE p.ID IS NULL;

-- term: removes a term together with its taxonomy
DELETE t, tt FROM term t INNER JOIN term_use tt ON t.term_id = tt.term_id
WHERE t.term_id = 3;

-- user: changes a password
UPDATE `member` SET `secret` = '$P$c', `standing` = 0 WHERE `ID` = 2;

-- user: removes all data beside the account
DELETE FROM member_data WHERE user_id = 2 AND data_key = 'session_tokens';

-- order: saves one, its key too
INSERT INTO plugin_order (id, status, total_amount, customer_id, changed_gmt)
VALUES (10, 'processing', 19.80, 2, '2024-02-03 00:00:00')
ON DUPLICATE KEY UPDATE id = VALUES(id), status = VALUES(status),
    total_amount = VALUES(total_amount), changed_gmt = VALUES(changed_gmt);

-- order: adds items
INSERT INTO `plugin_order_item` (`item_name`, `order_id`) VALUES ('Cup', 11);

-- order: removes its items with a join to the order
DELETE items FROM plugin_order_item items
INNER JOIN plugin_order orders ON orders.id = items.order_id WHERE orders.status = 'pending';

-- stock: reserves units if there are enough, in one statement
INSERT INTO plugin_reservation (order_id, product_id, stock_quantity, timestamp, expires)
SELECT 11, 4, 3, NOW(), (NOW() + INTERVAL 60 MINUTE) FROM DUAL
WHERE (SELECT data_value FROM entry_data WHERE entry_id = 4 AND data_key = '_stock' FOR UPDATE)
    - (SELECT COALESCE(SUM(r.stock_quantity), 0) FROM plugin_reservation r
        WHERE r.expires > '2024-02-01 00:30:00' AND r.product_id = 4 FOR UPDATE) >= 3
ON DUPLICATE KEY UPDATE expires = VALUES(expires), stock_quantity = VALUES(stock_quantity);

-- instead: locks stock and reservations by statements of their own
SELECT data_value FROM entry_data WHERE entry_id = 4 AND data_key = '_stock' FOR UPDATE;
SELECT COALESCE(SUM(stock_quantity), 0) FROM plugin_reservation
WHERE expires > '2024-02-01 00:30:00' AND product_id = 4 FOR UPDATE;
INSERT INTO plugin_reservation (order_id, product_id, stock_quantity, timestamp, expires)
VALUES (11, 4, 3, NOW(), NOW() + INTERVAL 60 MINUTE)
ON DUPLICATE KEY UPDATE expires = VALUES(expires), stock_quantity = VALUES(stock_quantity);

-- stock: releases what an order has reserved
DELETE FROM plugin_reservation WHERE order_id = 10;

-- stock: takes sold units from the table for searches
UPDATE plugin_article_index SET stock_quantity = stock_quantity - 2,
    total_sales = total_sales + 2 WHERE product_id = 4;

-- stock: saves the row for searches
REPLACE INTO `plugin_article_index` (`product_id`, `sku`, `min_price`, `stock_quantity`,
    `stock_status`) VALUES (4, 'CUP', 10.5, NULL, 'outofstock');

-- stock: fills the table for searches with metadata
INSERT IGNORE INTO plugin_article_index (product_id, sku)
SELECT ID, name FROM entry WHERE kind = 'page';

-- instead: reads the posts and fills the table with values
SELECT ID, name FROM entry WHERE kind = 'page';
INSERT IGNORE INTO plugin_article_index (product_id, sku) VALUES (2, '');

-- stock: prices of the table for searches from metadata
UPDATE plugin_article_index l INNER JOIN entry_data m
ON m.entry_id = l.product_id AND m.data_key = '_price' SET l.min_price = m.data_value + 1;

-- session: saves a cart
INSERT INTO plugin_cart (`cart_key`, `cart_value`, `cart_expiry`)
VALUES ('k1', 'a:2', 1700009999)
ON DUPLICATE KEY UPDATE `cart_value` = VALUES(`cart_value`),
    `cart_expiry` = VALUES(`cart_expiry`);

-- session: removes those that have expired
DELETE FROM plugin_cart WHERE cart_expiry < 1650000000;

-- action: makes a claim
INSERT INTO `task_claim` (`made_gmt`) VALUES ('2024-02-01 00:00:05');

-- action: claims the next ones
UPDATE task SET claim_id = 2, tried_gmt = '2024-02-01 00:00:05'
WHERE claim_id = 0 AND due_gmt <= '2024-02-01 00:00:05' AND status = 'pending'
ORDER BY priority ASC, attempts ASC, due_gmt ASC, task_id ASC LIMIT 1;

-- action: claims the next ones that no other process locks
UPDATE task t1 JOIN (
    SELECT task_id FROM task WHERE claim_id = 0 AND status = 'pending'
    ORDER BY priority ASC, task_id ASC LIMIT 1 FOR UPDATE SKIP LOCKED) t2
ON t1.task_id = t2.task_id
SET t1.claim_id = 2, t1.tried_gmt = '2024-02-01 00:00:05';

-- action: schedules one unless it is scheduled
INSERT INTO task (hook, status, due_gmt, args)
SELECT 'send', 'pending', '2024-02-02 00:00:00', '[3]' FROM DUAL
WHERE (SELECT NULL FROM task WHERE hook = 'send' AND args = '[3]' LIMIT 1) IS NULL;

-- action: counts an attempt
UPDATE task SET attempts = attempts + 1, status = 'in-progress',
    tried_gmt = '2024-02-01 00:00:06' WHERE task_id = 1;

-- action: removes old ones
DELETE FROM task WHERE status = 'complete' AND due_gmt <= '2023-06-01 00:00:00'
ORDER BY task_id LIMIT 20;

-- connection: chooses how strict the server is
-- changes nothing
SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION';
