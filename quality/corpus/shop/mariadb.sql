-- A large shop in the manner of those with attributes in rows: quotes, orders, stock by deltas,
-- prices
-- computed into index tables, change logs, rules, customer groups, carts.

-- == schema

CREATE TABLE store (
    store_id smallint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    code varchar(32) NOT NULL UNIQUE
);

CREATE TABLE article (
    article_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    sku varchar(64) NOT NULL UNIQUE,
    type_code varchar(32) NOT NULL DEFAULT 'simple',
    created_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP
);

CREATE TABLE article_text (
    value_id int NOT NULL AUTO_INCREMENT PRIMARY KEY,
    attribute_id smallint unsigned NOT NULL,
    store_id smallint unsigned NOT NULL,
    article_id int unsigned NOT NULL,
    value varchar(255) DEFAULT NULL,
    UNIQUE KEY one_value (article_id, attribute_id, store_id),
    CONSTRAINT text_of_article FOREIGN KEY (article_id) REFERENCES article (article_id)
        ON DELETE CASCADE
);

CREATE TABLE category (
    category_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    path varchar(255) NOT NULL,
    position int NOT NULL,
    level int NOT NULL DEFAULT 0,
    children_count int NOT NULL
);

CREATE TABLE category_article (
    category_id int unsigned NOT NULL,
    article_id int unsigned NOT NULL,
    position int NOT NULL DEFAULT 0,
    PRIMARY KEY (category_id, article_id)
);

CREATE TABLE stock_item (
    article_id int unsigned NOT NULL,
    stock_id smallint unsigned NOT NULL,
    qty decimal(12, 4) DEFAULT NULL,
    min_qty decimal(12, 4) NOT NULL DEFAULT 0,
    is_in_stock tinyint NOT NULL DEFAULT 1,
    low_stock_date timestamp NULL,
    PRIMARY KEY (article_id, stock_id)
);

CREATE TABLE stock_reservation (
    reservation_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    sku varchar(64) NOT NULL,
    quantity decimal(10, 4) NOT NULL,
    metadata varchar(255)
);

CREATE TABLE cart (
    cart_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    store_id smallint unsigned NOT NULL,
    customer_id int unsigned DEFAULT NULL,
    is_active tinyint unsigned DEFAULT 1,
    items_qty decimal(12, 4) DEFAULT 0,
    grand_total decimal(20, 4) DEFAULT 0,
    trigger_recollect smallint NOT NULL DEFAULT 0,
    updated_at timestamp NOT NULL DEFAULT '2020-01-01 00:00:00' ON UPDATE CURRENT_TIMESTAMP
);

CREATE TABLE cart_item (
    item_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    cart_id int unsigned NOT NULL,
    article_id int unsigned DEFAULT NULL,
    qty decimal(12, 4) NOT NULL DEFAULT 0,
    price decimal(12, 4) NOT NULL DEFAULT 0,
    CONSTRAINT item_of_cart FOREIGN KEY (cart_id) REFERENCES cart (cart_id) ON DELETE CASCADE
);

CREATE TABLE sales_order (
    order_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    increment_id varchar(50) DEFAULT NULL,
    store_id smallint unsigned DEFAULT NULL,
    state varchar(32) DEFAULT NULL,
    customer_id int unsigned DEFAULT NULL,
    grand_total decimal(20, 4) DEFAULT NULL,
    created_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
    UNIQUE KEY one_number (increment_id, store_id)
);

CREATE TABLE order_grid (
    order_id int unsigned NOT NULL PRIMARY KEY,
    increment_id varchar(50) DEFAULT NULL,
    status varchar(32) DEFAULT NULL,
    grand_total decimal(20, 4) DEFAULT NULL
);

CREATE TABLE sequence_order_1 (
    sequence_value int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY
);

CREATE TABLE customer (
    customer_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    email varchar(255) DEFAULT NULL,
    group_id smallint unsigned NOT NULL DEFAULT 0,
    failures_num smallint DEFAULT 0,
    UNIQUE KEY one_email (email)
);

CREATE TABLE customer_group_link (
    customer_id int unsigned NOT NULL,
    group_id smallint unsigned NOT NULL,
    PRIMARY KEY (customer_id, group_id)
);

CREATE TABLE related_article (
    article_1 int unsigned NOT NULL,
    article_2 int unsigned NOT NULL,
    KEY pair (article_1, article_2)
);

CREATE TABLE price_index (
    article_id int unsigned NOT NULL,
    customer_group smallint unsigned NOT NULL,
    price decimal(20, 6) DEFAULT NULL,
    final_price decimal(20, 6) DEFAULT NULL,
    PRIMARY KEY (article_id, customer_group)
);

CREATE TABLE price_index_tmp (
    article_id int unsigned NOT NULL,
    customer_group smallint unsigned NOT NULL,
    price decimal(20, 6) DEFAULT NULL,
    PRIMARY KEY (article_id, customer_group)
) ENGINE = MEMORY;

CREATE TABLE change_log (
    version_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    article_id int unsigned NOT NULL
);

CREATE TABLE view_state (
    state_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    view_id varchar(100) NOT NULL UNIQUE,
    status varchar(16) DEFAULT 'idle',
    version_id int unsigned DEFAULT NULL
);

CREATE TABLE config_value (
    config_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    scope varchar(8) NOT NULL DEFAULT 'default',
    scope_id int NOT NULL DEFAULT 0,
    path varchar(255) NOT NULL,
    value text,
    UNIQUE KEY one_scope (scope, scope_id, path)
);

CREATE TABLE url_rewrite (
    rewrite_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    request_path varchar(255) DEFAULT NULL,
    target_path varchar(255) DEFAULT NULL,
    store_id smallint unsigned NOT NULL,
    UNIQUE KEY one_path (request_path, store_id)
);

CREATE TABLE web_session (
    session_id varchar(255) NOT NULL PRIMARY KEY,
    expires int unsigned NOT NULL DEFAULT 0,
    data mediumblob NOT NULL
);

CREATE TRIGGER article_logged AFTER UPDATE ON article FOR EACH ROW
    INSERT INTO change_log (article_id) VALUES (NEW.article_id);

-- == rows

INSERT INTO store VALUES (1, 'main'), (2, 'north');
INSERT INTO article VALUES (1, 'CUP', 'simple', '2024-01-01 00:00:00', '2024-01-01 00:00:00'),
    (2, 'POT', 'simple', '2024-01-01 00:00:00', '2024-01-01 00:00:00'),
    (3, 'SET', 'bundle', '2024-01-01 00:00:00', '2024-01-01 00:00:00');
INSERT INTO article_text VALUES (1, 73, 0, 1, 'Cup'), (2, 73, 1, 1, 'Kopp'), (3, 73, 0, 2, 'Pot');
INSERT INTO category VALUES (1, '1', 0, 0, 2), (2, '1/2', 1, 1, 0), (3, '1/3', 2, 1, 0);
INSERT INTO category_article VALUES (2, 1, 1), (2, 2, 2), (3, 3, 0);
INSERT INTO stock_item VALUES (1, 1, 12.0000, 2, 1, NULL), (2, 1, 3.0000, 3, 1, NULL);
INSERT INTO stock_reservation VALUES (1, 'CUP', -2.0000, '{"event":"placed"}'),
    (2, 'CUP', 2.0000, '{"event":"shipped"}'), (3, 'POT', -1.0000, '{"event":"placed"}');
INSERT INTO cart VALUES (1, 1, 1, 1, 3, 39.6000, 0, '2024-02-01 00:00:00'),
    (2, 1, NULL, 0, 0, 0, 0, '2023-01-01 00:00:00');
INSERT INTO cart_item VALUES (1, 1, 1, 2.0000, 9.9000), (2, 1, 2, 1.0000, 19.8000);
INSERT INTO sales_order VALUES (1, '100000001', 1, 'new', 1, 39.6000, '2024-02-01 00:00:00'),
    (2, '100000002', 1, 'complete', 2, 9.9000, '2024-02-02 00:00:00');
INSERT INTO order_grid VALUES (1, '100000001', 'pending', 39.6000);
INSERT INTO sequence_order_1 VALUES (1), (2);
INSERT INTO customer VALUES (1, 'ann@example.org', 1, 0), (2, 'bob@example.org', 1, 3);
INSERT INTO customer_group_link VALUES (1, 1), (2, 1), (2, 3);
INSERT INTO related_article VALUES (1, 2), (2, 1);
INSERT INTO price_index VALUES (1, 0, 9.9, 9.9), (1, 1, 9.9, 8.9), (2, 0, 19.8, 19.8);
INSERT INTO price_index_tmp VALUES (1, 0, 10.9);
INSERT INTO change_log VALUES (1, 1), (2, 2), (3, 1);
INSERT INTO view_state VALUES (1, 'prices', 'idle', 1);
INSERT INTO config_value VALUES (1, 'default', 0, 'web/url', 'https://example.org'),
    (2, 'stores', 2, 'web/lang', 'no');
INSERT INTO url_rewrite VALUES (1, 'cup.html', 'article/1', 1), (2, 'pot.html', 'article/2', 1);
INSERT INTO web_session VALUES ('s1', 1700000000, x'00FF'), ('s2', 1600000000, '');

-- == statements

-- cart: creates one
INSERT INTO `cart` (`store_id`, `customer_id`, `is_active`, `items_qty`) VALUES (1, 2, 1, 0);

-- cart: puts an article in
INSERT INTO `cart_item` (`cart_id`, `article_id`, `qty`, `price`) VALUES ('1', '3', '1', '25.5000');

-- cart: changes an amount
UPDATE `cart_item` SET `qty` = '3.0000' WHERE (item_id = '1');

-- cart: sums it up by a join
UPDATE cart c JOIN (SELECT cart_id, SUM(qty) AS q, SUM(qty * price) AS t
    FROM cart_item GROUP BY cart_id) s ON s.cart_id = c.cart_id
SET c.items_qty = s.q + 1, c.grand_total = s.t + 1;

-- cart: has those with an article computed again
UPDATE `cart` AS `c` INNER JOIN `cart_item` AS `i` ON i.cart_id = c.cart_id
SET `c`.`trigger_recollect` = 1 WHERE (i.article_id IN (2));

-- cart: stops one that has been ordered
UPDATE `cart` SET `is_active` = 0 WHERE `cart_id` = 1;

-- cart: removes old ones with their items
DELETE FROM `cart` WHERE `is_active` = 0 AND `updated_at` < '2023-06-01';

-- cart: removes items
DELETE FROM `cart_item` WHERE (cart_id = '1') AND (article_id NOT IN ('1'));

-- order: takes the next number from a table
INSERT INTO `sequence_order_1` () VALUES ();

-- order: writes one
INSERT INTO `sales_order` (`increment_id`, `store_id`, `state`, `customer_id`, `grand_total`,
    `created_at`) VALUES ('100000003', 1, 'new', 1, '39.6000', '2024-02-05 10:00:00');

-- order: changes its state
UPDATE `sales_order` SET `state` = 'processing' WHERE (`order_id` = '1') AND (`state` = 'new');

-- order: copies it into the grid
INSERT INTO `order_grid` (`order_id`, `increment_id`, `status`, `grand_total`)
SELECT o.order_id, o.increment_id, o.state, o.grand_total FROM `sales_order` AS o
WHERE o.order_id = 2
ON DUPLICATE KEY UPDATE `status` = VALUES(`status`), `grand_total` = VALUES(`grand_total`);

-- instead: reads the order and writes its values into the grid
SELECT order_id, increment_id, state, grand_total FROM sales_order WHERE order_id = 2;
INSERT INTO `order_grid` (`order_id`, `increment_id`, `status`, `grand_total`)
VALUES (2, '100000002', 'complete', 9.9000)
ON DUPLICATE KEY UPDATE `status` = VALUES(`status`), `grand_total` = VALUES(`grand_total`);

-- order: removes rows of the grid without an order
DELETE `g` FROM `order_grid` AS `g` LEFT JOIN `sales_order` AS `o` ON o.order_id = g.order_id
WHERE (o.state <> 'complete');

-- stock: locks the rows of articles with their kinds
SELECT `si`.`article_id`, `si`.`qty`, `a`.`type_code` FROM `stock_item` AS `si`
INNER JOIN `article` AS `a` ON si.article_id = a.article_id
WHERE (si.stock_id = 1) AND (si.article_id IN (1, 2)) FOR UPDATE;

-- stock: takes amounts of several articles by one CASE
UPDATE `stock_item` SET `qty` = CASE `article_id` WHEN 1 THEN qty - 2 WHEN 2 THEN qty - 1
    ELSE qty END WHERE (article_id IN (1, 2)) AND (stock_id = 1);

-- stock: marks what is out of stock
UPDATE `stock_item` SET `is_in_stock` = 0, `low_stock_date` = '2024-02-05 10:00:00'
WHERE qty <= min_qty AND article_id IN (SELECT article_id FROM article WHERE type_code = 'simple');

-- stock: saves a row, new or not
INSERT INTO `stock_item` (`article_id`, `stock_id`, `qty`, `is_in_stock`)
VALUES (3, 1, 5, 1), (1, 1, 20, 1)
ON DUPLICATE KEY UPDATE `qty` = VALUES(`qty`), `is_in_stock` = VALUES(`is_in_stock`);

-- stock: appends reservations
INSERT INTO `stock_reservation` (`sku`, `quantity`, `metadata`)
VALUES ('CUP', -3, '{"event":"placed"}'), ('POT', -1, '{"event":"placed"}');

-- stock: removes reservations that add up to nothing
DELETE FROM stock_reservation WHERE reservation_id IN ('1', '2');

-- article: writes one
INSERT INTO `article` (`sku`, `type_code`) VALUES ('LID', 'simple');

-- article: saves one
UPDATE `article` SET `sku` = 'CUP-1' WHERE (`article_id` = '1');

-- article: removes one with its values
DELETE FROM `article` WHERE (article_id = '3');

-- article: saves values of attributes
INSERT INTO `article_text` (`attribute_id`, `store_id`, `article_id`, `value`)
VALUES ('73', 0, '1', 'Big cup'), ('74', 0, '1', NULL)
ON DUPLICATE KEY UPDATE `value` = VALUES(`value`);

-- article: keeps the number of a value that is there for the connection
INSERT INTO `article_text` (`attribute_id`, `store_id`, `article_id`, `value`)
VALUES (73, 0, 2, 'Teapot')
ON DUPLICATE KEY UPDATE `value_id` = LAST_INSERT_ID(`value_id`), `value` = 'Teapot';

-- article: removes values of a store
DELETE FROM `article_text` WHERE (attribute_id = '73') AND (article_id = '1') AND (store_id = 1);

-- category: moves a branch
UPDATE `category` SET `path` = REPLACE(`path`, '1/3', '1/2/3'), `level` = `level` + 1
WHERE (`path` LIKE '1/3%');

-- category: counts children of parents
UPDATE `category` SET `children_count` = children_count + 1 WHERE (category_id IN (1, 2));

-- category: puts articles in
INSERT INTO `category_article` (`category_id`, `article_id`, `position`)
VALUES (3, 1, 10), (2, 1, 5) ON DUPLICATE KEY UPDATE `position` = VALUES(`position`);

-- category: takes articles out
DELETE FROM `category_article` WHERE (category_id = 2) AND (article_id IN (1, 2));

-- category: moves the articles after a position up
UPDATE category_article SET position = position + 1 WHERE category_id = 2 AND position >= 1
ORDER BY position DESC;

-- prices: writes the index from a table of it in memory
INSERT INTO `price_index` (`article_id`, `customer_group`, `price`)
SELECT t.article_id, t.customer_group, t.price FROM price_index_tmp AS t
ON DUPLICATE KEY UPDATE `price` = VALUES(`price`);

-- prices: fills the table in memory
INSERT INTO price_index_tmp (article_id, customer_group, price) VALUES (2, 0, 21.0);

-- prices: corrects the index by a rule
UPDATE price_index SET final_price = LEAST(final_price, ROUND(price * 0.8, 4))
WHERE customer_group = 1;

-- prices: removes rows of articles that are gone or out of stock
DELETE p FROM price_index p JOIN stock_item s ON s.article_id = p.article_id WHERE s.qty < 5;

-- change log: removes what has been worked on
DELETE FROM `change_log` WHERE (`version_id` <= 2);

-- change log: notes how far the view is
UPDATE `view_state` SET `status` = 'idle', `version_id` = 3 WHERE (`view_id` = 'prices');

-- customer: writes one
INSERT INTO `customer` (`email`, `group_id`) VALUES ('cy@example.org', 1);

-- customer: counts a failed login
UPDATE `customer` SET `failures_num` = failures_num + 1 WHERE (customer_id = '2');

-- customer: puts all customers of one group into another, too
INSERT IGNORE INTO customer_group_link (customer_id, group_id)
SELECT customer_id, 3 FROM customer_group_link WHERE group_id = 1;

-- instead: names the customers of the group
SELECT customer_id FROM customer_group_link WHERE group_id = 1;
INSERT IGNORE INTO customer_group_link (customer_id, group_id) VALUES (1, 3), (2, 3);

-- related articles: adds a pair, in a table without a key
INSERT INTO `related_article` (`article_1`, `article_2`) VALUES (1, 3);

-- related articles: removes those of an article, in a table without a key
DELETE FROM `related_article` WHERE `article_1` = 1;

-- config: saves a value
INSERT INTO `config_value` (`scope`, `scope_id`, `path`, `value`)
VALUES ('default', 0, 'web/url', 'https://example.com')
ON DUPLICATE KEY UPDATE `scope` = VALUES(`scope`), `scope_id` = VALUES(`scope_id`),
    `path` = VALUES(`path`), `value` = VALUES(`value`);

-- config: removes values of a scope
DELETE FROM `config_value` WHERE (scope = 'stores') AND (scope_id = 2) AND (path LIKE 'web/%');

-- url: replaces paths
REPLACE INTO `url_rewrite` (`request_path`, `target_path`, `store_id`)
VALUES ('cup.html', 'article/1?x', 1), ('lid.html', 'article/4', 1);

-- url: removes paths of a store
DELETE FROM `url_rewrite` WHERE (`store_id` IN (1)) AND (`request_path` = 'pot.html');

-- session: saves one
REPLACE INTO `web_session` (`session_id`, `expires`, `data`)
VALUES ('s1', 1700009999, x'00FE01');

-- session: removes those that have expired
DELETE FROM `web_session` WHERE (expires < 1650000000);

-- indexer: empties a table
TRUNCATE TABLE `price_index`;
