-- A shop with a blog whose object mapper quotes every name, keeps timestamps, versions of rows and
-- counters, and writes bulk inserts and joined updates: products, orders, posts, comments, tags.

-- == schema

CREATE TABLE users (
    id integer PRIMARY KEY,
    email varchar(191) NOT NULL,
    username varchar(60) NOT NULL,
    sign_in_count integer NOT NULL DEFAULT 0,
    current_sign_in_at text,
    posts_count integer NOT NULL DEFAULT 0,
    lock_version integer NOT NULL DEFAULT 0,
    created_at text NOT NULL,
    updated_at text NOT NULL
);

CREATE UNIQUE INDEX index_users_on_email ON users (email);

CREATE TABLE posts (
    id integer PRIMARY KEY,
    user_id bigint NOT NULL,
    title varchar(191) NOT NULL,
    body text,
    slug varchar(191) NOT NULL,
    published integer NOT NULL DEFAULT 0,
    comments_count integer NOT NULL DEFAULT 0,
    position integer,
    deleted_at text,
    created_at text NOT NULL,
    updated_at text NOT NULL,
    CONSTRAINT fk_posts_users FOREIGN KEY (user_id) REFERENCES users (id)
);

CREATE UNIQUE INDEX index_posts_on_slug ON posts (slug);

CREATE TABLE comments (
    id integer PRIMARY KEY,
    post_id bigint NOT NULL,
    user_id bigint,
    body text NOT NULL,
    created_at text NOT NULL,
    updated_at text NOT NULL,
    CONSTRAINT fk_comments_posts FOREIGN KEY (post_id) REFERENCES posts (id) ON DELETE CASCADE,
    CONSTRAINT fk_comments_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE SET NULL
);

CREATE TABLE tags (
    id integer PRIMARY KEY,
    name varchar(100) NOT NULL UNIQUE
);

CREATE TABLE posts_tags (
    post_id bigint NOT NULL,
    tag_id bigint NOT NULL
);

CREATE TABLE follows (
    id integer PRIMARY KEY,
    follower_id bigint NOT NULL,
    followed_id bigint NOT NULL,
    created_at text NOT NULL,
    UNIQUE (follower_id, followed_id)
);

CREATE TABLE products (
    id integer PRIMARY KEY,
    sku varchar(60) NOT NULL UNIQUE,
    name varchar(191) NOT NULL,
    price_cents integer NOT NULL,
    stock integer NOT NULL,
    settings text,
    created_at text NOT NULL,
    updated_at text NOT NULL
);

CREATE TABLE orders (
    id integer PRIMARY KEY,
    user_id bigint,
    number varchar(32) NOT NULL UNIQUE,
    state varchar(20) NOT NULL DEFAULT 'cart',
    total_cents integer NOT NULL DEFAULT 0,
    lock_version integer NOT NULL DEFAULT 0,
    completed_at text,
    created_at text NOT NULL,
    updated_at text NOT NULL
);

CREATE TABLE line_items (
    id integer PRIMARY KEY,
    order_id bigint NOT NULL,
    product_id bigint NOT NULL,
    quantity integer NOT NULL,
    price_cents integer NOT NULL,
    updated_at text NOT NULL,
    FOREIGN KEY (order_id) REFERENCES orders (id),
    FOREIGN KEY (product_id) REFERENCES products (id)
);

CREATE TABLE notifications (
    id integer PRIMARY KEY,
    user_id bigint NOT NULL,
    read_at text,
    kind varchar(40) NOT NULL,
    created_at text NOT NULL,
    FOREIGN KEY (user_id) REFERENCES users (id)
);

CREATE TABLE schema_migrations (
    version varchar(191) PRIMARY KEY
);

-- == rows

INSERT INTO users (id, email, username, sign_in_count, posts_count, created_at, updated_at) VALUES
    (1, 'ann@example.org', 'ann', 4, 2, '2024-01-01 00:00:00', '2024-01-01 00:00:00'),
    (2, 'bob@example.org', 'bob', 0, 1, '2024-01-02 00:00:00', '2024-01-02 00:00:00'),
    (3, 'cy@example.org', 'cy', 1, 0, '2024-01-03 00:00:00', '2024-01-03 00:00:00'),
    (4, 'zed@example.org', 'zed', 0, 0, '2024-01-04 00:00:00', '2024-01-04 00:00:00');
INSERT INTO posts (id, user_id, title, slug, published, comments_count, position, created_at,
    updated_at) VALUES
    (1, 1, 'First', 'first', 1, 2, 1, '2024-01-05 00:00:00', '2024-01-05 00:00:00'),
    (2, 1, 'Second', 'second', 0, 0, 2, '2024-01-06 00:00:00', '2024-01-06 00:00:00'),
    (3, 2, 'Third', 'third', 1, 1, 3, '2024-01-07 00:00:00', '2024-01-07 00:00:00');
INSERT INTO comments VALUES (1, 1, 2, 'Nice', '2024-01-08 00:00:00', '2024-01-08 00:00:00'),
    (2, 1, 4, 'Spam', '2024-01-08 01:00:00', '2024-01-08 01:00:00'),
    (3, 3, 1, 'Hm', '2024-01-09 00:00:00', '2024-01-09 00:00:00');
INSERT INTO tags VALUES (1, 'rust'), (2, 'sql'), (3, 'old');
INSERT INTO posts_tags VALUES (1, 1), (1, 2), (3, 2);
INSERT INTO follows VALUES (1, 2, 1, '2024-01-01 00:00:00');
INSERT INTO products VALUES
    (1, 'A-1', 'Cup', 900, 12, '{"colour": "red"}', '2024-01-01 00:00:00', '2024-01-01 00:00:00'),
    (2, 'B-2', 'Plate', 1500, 3, NULL, '2024-01-01 00:00:00', '2024-01-01 00:00:00');
INSERT INTO orders VALUES
    (1, 1, 'R100', 'cart', 2400, 0, NULL, '2024-02-01 00:00:00', '2024-02-01 00:00:00'),
    (2, 2, 'R101', 'complete', 900, 3, '2024-02-01', '2024-02-01 00:00:00', '2024-02-01 00:00:00'),
    (3, NULL, 'R102', 'cart', 0, 0, NULL, '2023-01-01 00:00:00', '2023-01-01 00:00:00');
INSERT INTO line_items VALUES (1, 1, 1, 1, 900, '2024-02-01 00:00:00'),
    (2, 1, 2, 1, 1500, '2024-02-01 00:00:00'), (3, 2, 1, 1, 900, '2024-02-01 00:00:00');
INSERT INTO notifications VALUES (1, 1, NULL, 'reply', '2024-02-01 00:00:00'),
    (2, 1, NULL, 'like', '2024-02-02 00:00:00'), (3, 3, NULL, 'like', '2024-02-02 00:00:00');
INSERT INTO schema_migrations VALUES ('20240101000000');

-- == statements

-- create: a user
-- bound: 'dee@example.org', 'dee', '2024-03-01 00:00:00.123456', '2024-03-01 00:00:00.123456'
INSERT INTO `users` (`email`, `username`, `created_at`, `updated_at`)
VALUES (?, ?, ?, ?);

-- create: a post with what is left out as NULL
INSERT INTO `posts` (`user_id`, `title`, `body`, `slug`, `published`,
    `position`, `deleted_at`, `created_at`, `updated_at`)
VALUES (1, 'It''s new', 'Text', 'new', 0, NULL, NULL, '2024-03-01 00:00:00.5',
    '2024-03-01 00:00:00.5');

-- save: only the columns that have changed
UPDATE `posts` SET `title` = 'First!', `updated_at` = '2024-03-01 00:00:00'
WHERE `posts`.`id` = 1;

-- save: with a version that must not have changed
-- bound: 'address', '2024-03-01 00:00:00', 1, 1, 0
UPDATE `orders` SET `state` = ?,
    `updated_at` = ?, `lock_version` = ?
WHERE `orders`.`id` = ? AND `orders`.`lock_version` = ?;

-- destroy: a comment
DELETE FROM `comments` WHERE `comments`.`id` = 2;

-- destroy: a post that comments go along with
DELETE FROM `posts` WHERE `posts`.`id` = 3;

-- instead: destroys an order after its lines, where the key does not act along
DELETE FROM `line_items` WHERE `line_items`.`order_id` = 1;
DELETE FROM `orders` WHERE `orders`.`id` = 1;

-- destroy: a user whose comments stay without one
DELETE FROM `users` WHERE `users`.`id` = 4;

-- destroy: a tag
DELETE FROM `tags` WHERE `tags`.`id` = 3;

-- soft delete: marks a post
UPDATE `posts` SET `deleted_at` = '2024-03-01 00:00:00' WHERE `posts`.`id` = 2;

-- increment: a counter beside a touch
UPDATE `posts` SET `comments_count` = COALESCE(`comments_count`, 0) + 1,
    `updated_at` = '2024-03-01 00:00:00' WHERE `posts`.`id` = 1;

-- counter cache: takes one off a user
UPDATE `users` SET `posts_count` = COALESCE(`posts_count`, 0) - 1
WHERE `users`.`id` = 1;

-- reset of counters by a sub-select
UPDATE `posts` SET `comments_count` = 5 + (
    SELECT COUNT(*) FROM comments WHERE comments.post_id = `posts`.`id`);

-- touch: several records
UPDATE `posts` SET `updated_at` = '2024-03-01 00:00:00'
WHERE `posts`.`id` IN (1, 2);

-- sign-in: counts and dates it
UPDATE `users` SET `sign_in_count` = 5, `current_sign_in_at` = '2024-03-01 00:00:00'
WHERE `users`.`id` = 1;

-- update_all: with a condition
UPDATE `notifications` SET `read_at` = '2024-03-01 00:00:00'
WHERE `notifications`.`user_id` = 1 AND `notifications`.`read_at` IS NULL;

-- update_all: of a joined relation
UPDATE "comments" SET "body" = '[removed]' WHERE ("comments"."id") IN (
    SELECT "comments"."id" FROM "comments" INNER JOIN "posts"
        ON "posts"."id" = "comments"."post_id" WHERE "posts"."published" = 1);

-- update_all: of an outer join by a sub-select of keys
UPDATE `posts` SET `published` = 1 WHERE `posts`.`id` IN (
    SELECT `posts`.`id` FROM `posts` LEFT OUTER JOIN `comments`
        ON `comments`.`post_id` = `posts`.`id`
    WHERE `comments`.`id` IS NULL);

-- update_all: with an order and a limit
UPDATE `posts` SET `position` = 9 WHERE `posts`.`id` IN (
    SELECT `posts`.`id` FROM `posts`
    ORDER BY `posts`.`id` DESC LIMIT 1);

-- acts_as_list: makes room at a position
UPDATE `posts` SET `position` = `position` + 1
WHERE `posts`.`position` >= 2;

-- delete_all: with a condition
DELETE FROM `notifications` WHERE `notifications`.`created_at` < '2024-02-02 00:00:00';

-- delete_all: of a joined relation
DELETE FROM `line_items` WHERE `line_items`.`id` IN (
    SELECT `line_items`.`id` FROM `line_items` INNER JOIN `orders`
        ON `orders`.`id` = `line_items`.`order_id`
    WHERE `orders`.`state` = 'cart');

-- in_batches: removes old carts by their keys
DELETE FROM `orders` WHERE `orders`.`state` = 'cart'
    AND `orders`.`updated_at` < '2024-01-01 00:00:00' AND `orders`.`id` IN (3);

-- habtm: joins a post to a tag, in a table without a key
INSERT INTO `posts_tags` (`post_id`, `tag_id`) VALUES (3, 1);

-- habtm: takes tags off a post
DELETE FROM `posts_tags` WHERE `posts_tags`.`post_id` = 1
    AND `posts_tags`.`tag_id` IN (1, 2);

-- insert_all: skips duplicates
INSERT INTO "tags" ("name") VALUES ('sql'), ('ruby')
ON CONFLICT DO NOTHING RETURNING "id";

-- insert_all: skips duplicates of one index
INSERT INTO "tags" ("name") VALUES ('sql'), ('perl')
ON CONFLICT ("name") DO NOTHING RETURNING "id";

-- upsert_all: by the index of the stock number
INSERT INTO `products` (`sku`, `name`, `price_cents`, `stock`,
    `created_at`, `updated_at`)
VALUES ('A-1', 'Cup', 950, 10, '2024-03-01 00:00:00', '2024-03-01 00:00:00'),
    ('C-3', 'Bowl', 1100, 4, '2024-03-01 00:00:00', '2024-03-01 00:00:00')
ON CONFLICT ("sku") DO UPDATE SET updated_at = (CASE WHEN (
    "price_cents" IS excluded."price_cents")
    THEN "products".updated_at ELSE STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') END),
    "name" = excluded."name", "price_cents" = excluded."price_cents" RETURNING "id";

-- find_or_create: follows a user unless the row is there
INSERT INTO `follows` (`follower_id`, `followed_id`, `created_at`)
VALUES (2, 3, '2024-03-01 00:00:00')
ON CONFLICT DO NOTHING;

-- with_lock: an order
SELECT `orders`.* FROM `orders` WHERE `orders`.`id` = 1 LIMIT 1 FOR UPDATE;

-- checkout: takes stock if there is enough
UPDATE `products` SET `stock` = `stock` - 1
WHERE `products`.`id` = 1 AND `products`.`stock` >= 1;

-- checkout: sums up the order
UPDATE `orders` SET `total_cents` = (
    SELECT COALESCE(SUM(quantity * price_cents), 0) + 100 FROM line_items WHERE order_id = 1)
WHERE `orders`.`id` = 1;

-- checkout: puts a product into the cart
INSERT INTO `line_items` (`order_id`, `product_id`, `quantity`,
    `price_cents`, `updated_at`)
VALUES (3, 2, 2, 1500, '2024-03-01 00:00:00');

-- migration: notes that it has run
INSERT INTO `schema_migrations` (version) VALUES ('20240301000000');
