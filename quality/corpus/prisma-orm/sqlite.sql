-- A booking service over a Prisma-like mapper: names in mixed case and qualified by the schema,
-- bound
-- values throughout, every column returned, implicit join tables, upserts.

-- == schema

CREATE TABLE `User` (
    `id` integer PRIMARY KEY AUTOINCREMENT,
    `email` varchar(191) NOT NULL,
    `name` varchar(191),
    `role` text NOT NULL DEFAULT 'USER',
    `createdAt` text NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE UNIQUE INDEX `User_email_key` ON `User` (`email`);

CREATE TABLE `Team` (
    `id` varchar(36) NOT NULL PRIMARY KEY,
    `name` varchar(191) NOT NULL,
    `slug` varchar(191) UNIQUE
);

CREATE TABLE `Member` (
    `userId` integer NOT NULL,
    `teamId` varchar(36) NOT NULL,
    `accepted` integer NOT NULL DEFAULT 0,
    PRIMARY KEY (`userId`, `teamId`),
    FOREIGN KEY (`userId`) REFERENCES `User` (`id`) ON DELETE CASCADE ON UPDATE CASCADE,
    FOREIGN KEY (`teamId`) REFERENCES `Team` (`id`) ON DELETE CASCADE ON UPDATE CASCADE
);

CREATE TABLE `Offer` (
    `id` integer PRIMARY KEY AUTOINCREMENT,
    `title` varchar(191) NOT NULL,
    `length` integer NOT NULL,
    `hidden` integer NOT NULL DEFAULT 0,
    `userId` integer,
    `metadata` text,
    FOREIGN KEY (`userId`) REFERENCES `User` (`id`) ON DELETE SET NULL ON UPDATE CASCADE
);

CREATE TABLE `Booking` (
    `id` integer PRIMARY KEY AUTOINCREMENT,
    `uid` varchar(36) NOT NULL UNIQUE,
    `userId` integer NOT NULL,
    `offerId` integer,
    `startTime` text NOT NULL,
    `status` varchar(20) NOT NULL DEFAULT 'ACCEPTED',
    `paid` integer NOT NULL DEFAULT 0,
    `updatedAt` text,
    FOREIGN KEY (`userId`) REFERENCES `User` (`id`) ON DELETE RESTRICT,
    FOREIGN KEY (`offerId`) REFERENCES `Offer` (`id`) ON DELETE RESTRICT
);

CREATE TABLE `Attendee` (
    `id` integer PRIMARY KEY AUTOINCREMENT,
    `email` varchar(191) NOT NULL,
    `bookingId` integer,
    FOREIGN KEY (`bookingId`) REFERENCES `Booking` (`id`) ON DELETE CASCADE
);

CREATE TABLE `Tag` (
    `id` integer PRIMARY KEY AUTOINCREMENT,
    `name` varchar(100) NOT NULL UNIQUE
);

CREATE TABLE `_OfferToTag` (
    `A` integer NOT NULL,
    `B` integer NOT NULL
);

CREATE UNIQUE INDEX `_OfferToTag_AB_unique` ON `_OfferToTag` (`A`, `B`);

CREATE TABLE `Credential` (
    `id` integer PRIMARY KEY AUTOINCREMENT,
    `type` varchar(60) NOT NULL,
    `key` text NOT NULL,
    `userId` integer NOT NULL
);

CREATE TABLE `OneTimeToken` (
    `identifier` varchar(120) NOT NULL,
    `token` varchar(120) NOT NULL UNIQUE,
    `expires` text NOT NULL,
    UNIQUE (`identifier`, `token`)
);

CREATE TABLE `Counter` (
    `name` varchar(60) NOT NULL PRIMARY KEY,
    `value` integer NOT NULL
);

-- == rows

INSERT INTO `User` VALUES (1, 'ann@example.org', 'Ann', 'ADMIN', '2024-01-01 00:00:00'),
    (2, 'bob@example.org', NULL, 'USER', '2024-01-02 00:00:00'),
    (3, 'cy@example.org', 'Cy', 'USER', '2024-01-03 00:00:00');
INSERT INTO `Team` VALUES ('t1', 'Core', 'core'), ('t2', 'Guests', NULL);
INSERT INTO `Member` VALUES (1, 't1', 1), (2, 't1', 0);
INSERT INTO `Offer` VALUES (1, 'Call', 15, 0, 1, '{"a": 1}'),
    (2, 'Meeting', 60, 0, 1, NULL), (3, 'Secret', 30, 1, 3, NULL);
INSERT INTO `Booking` VALUES
    (1, 'b-1', 1, 1, '2024-02-01 10:00:00', 'ACCEPTED', 1, NULL),
    (2, 'b-2', 2, 1, '2024-02-02 10:00:00', 'PENDING', 0, NULL),
    (3, 'b-3', 1, NULL, '2024-02-03 10:00:00', 'CANCELLED', 0, '2024-01-20 00:00:00');
INSERT INTO `Attendee` VALUES (1, 'x@example.org', 1), (2, 'y@example.org', 1),
    (3, 'z@example.org', 2);
INSERT INTO `Tag` VALUES (1, 'work'), (2, 'home');
INSERT INTO `_OfferToTag` VALUES (1, 1), (2, 1), (2, 2);
INSERT INTO `Credential` VALUES (1, 'calendar', '{"token": "x"}', 1);
INSERT INTO `OneTimeToken` VALUES ('ann@example.org', 'tok1', '2024-01-05 00:00:00'),
    ('bob@example.org', 'tok2', '2024-03-05 00:00:00');
INSERT INTO `Counter` VALUES ('visits', 10);

-- == statements

-- create: a user, with all columns returned
-- bound: 'dee@example.org', 'Dee'
INSERT INTO `main`.`User` (`email`, `name`, `role`) VALUES (?, ?, 'USER')
RETURNING `id` AS `id`, `email` AS `email`, `name` AS `name`, `role` AS `role`;

-- create: a team with its own key
-- bound: '018f0000-0000-7000-8000-0000000000b1', 'New', NULL
INSERT INTO `main`.`Team` (`id`, `name`, `slug`) VALUES (?, ?, ?);

-- create: nested, a membership of a new pair
-- bound: 3, 't1'
INSERT INTO `main`.`Member` (`userId`, `teamId`, `accepted`) VALUES (?, ?, 1);

-- create: an event type with a document
INSERT INTO `main`.`Offer` (`title`, `length`, `hidden`, `userId`, `metadata`)
VALUES ('Chat', 5, 0, 2, '{"b": {"c": []}}');

-- createMany: attendees
-- bound: 'p@example.org', 2, 'q@example.org', 2
INSERT INTO `main`.`Attendee` (`email`, `bookingId`) VALUES (?, ?), (?, ?);

-- createMany: tags, skipping duplicates
INSERT OR IGNORE INTO `main`.`Tag` (`name`) VALUES ('work'), ('play');

-- createMany: rows of which some give no value
INSERT INTO `main`.`Booking` (`uid`, `userId`, `offerId`, `startTime`, `status`)
VALUES ('b-8', 1, 2, '2024-03-01 09:00:00', 'ACCEPTED'),
    ('b-9', 2, NULL, '2024-03-01 10:00:00', 'PENDING');

-- update: a user by its key
-- bound: 'Bob', 2
UPDATE `main`.`User` SET `name` = ? WHERE (`main`.`User`.`id` = ? AND 1 = 1);

-- update: with all columns returned
UPDATE `main`.`Team` SET `name` = 'Kernel' WHERE (`main`.`Team`.`id` = 't1' AND 1=1)
RETURNING `id` AS `id`, `name` AS `name`, `slug` AS `slug`;

-- update: increments a number
-- bound: 1, 'visits'
UPDATE `main`.`Counter` SET `value` = (`main`.`Counter`.`value` + ?)
WHERE (`main`.`Counter`.`name` = ? AND 1 = 1);

-- update: a role
UPDATE `main`.`User` SET `role` = 'ADMIN' WHERE `id` IN (2);

-- update: its own time of change
UPDATE `main`.`Booking` SET `status` = 'ACCEPTED', `updatedAt` = '2024-02-01 12:00:00.123'
WHERE `main`.`Booking`.`uid` = 'b-2';

-- update: unties event types from a user
UPDATE `main`.`Offer` SET `userId` = NULL WHERE `main`.`Offer`.`userId` = 3;

-- updateMany: bookings by a time and a state
-- bound: 'CANCELLED', '2024-02-02 00:00:00', 'PENDING'
UPDATE `main`.`Booking` SET `status` = ?
WHERE (`main`.`Booking`.`startTime` >= ? AND `main`.`Booking`.`status` = ?);

-- updateMany: by a relation
UPDATE `main`.`Booking` SET `paid` = 1 WHERE `userId` IN (
    SELECT `t1`.`id` FROM `main`.`User` AS `t1` WHERE `t1`.`role` = 'ADMIN');

-- updateMany: by a relation that is missing
UPDATE `main`.`Offer` SET `hidden` = 1 WHERE `id` NOT IN (
    SELECT `offerId` FROM `main`.`Booking` WHERE `offerId` IS NOT NULL)
    AND `hidden` = 0;

-- upsert: natively
INSERT INTO `main`.`Counter` (`name`, `value`) VALUES ('visits', 1)
ON CONFLICT (`name`) DO UPDATE SET `value` = (`Counter`.`value` + 1)
WHERE (`Counter`.`name` = 'visits' AND 1=1) RETURNING `name` AS `name`, `value` AS `value`;

-- upsert: by a unique column
INSERT INTO `main`.`Team` (`id`, `name`, `slug`) VALUES ('t9', 'Core 2', 'core')
ON CONFLICT (`slug`) DO UPDATE SET `name` = `excluded`.`name`;

-- upsert: of a row of a composite key, which it assigns as well
INSERT INTO `main`.`Member` (`userId`, `teamId`, `accepted`) VALUES (2, 't1', 1)
ON CONFLICT (`userId`, `teamId`) DO UPDATE SET `userId` = excluded.`userId`,
    `accepted` = excluded.`accepted`;

-- delete: a membership
-- bound: 2, 't1'
DELETE FROM `main`.`Member` WHERE (`main`.`Member`.`userId` = ?
    AND `main`.`Member`.`teamId` = ?);

-- delete: with all columns returned
DELETE FROM `main`.`Credential` WHERE (`main`.`Credential`.`id` = 1 AND 1=1)
RETURNING `id` AS `id`, `key` AS `key`;

-- delete: a booking that attendees go along with
DELETE FROM `main`.`Booking` WHERE (`main`.`Booking`.`id` = 1 AND 1 = 1);

-- delete: a user whom memberships go along with
DELETE FROM `main`.`User` WHERE (`main`.`User`.`id` = 3 AND 1 = 1);

-- delete: a team without members
DELETE FROM `main`.`Team` WHERE `main`.`Team`.`id` = 't2';

-- deleteMany: attendees of cancelled bookings
DELETE FROM `main`.`Attendee` WHERE `bookingId` IN (
    SELECT `id` FROM `main`.`Booking` WHERE `status` IN ('CANCELLED', 'PENDING'));

-- deleteMany: tokens that have expired, by a unique index for a key
DELETE FROM `main`.`OneTimeToken` WHERE `expires` < '2024-02-01 00:00:00';

-- deleteMany: of everything
DELETE FROM `main`.`Attendee` WHERE 1 = 1;

-- connect: a tag to an event type
INSERT OR IGNORE INTO `main`.`_OfferToTag` (`A`, `B`) VALUES (1, 2);

-- disconnect: tags from an event type
DELETE FROM `main`.`_OfferToTag` WHERE (`main`.`_OfferToTag`.`A` = 2
    AND `main`.`_OfferToTag`.`B` IN (1, 2));

-- token: uses one up
DELETE FROM `main`.`OneTimeToken` WHERE (`identifier` = 'bob@example.org'
    AND `token` = 'tok2');

-- token: creates one
INSERT INTO `main`.`OneTimeToken` (`identifier`, `token`, `expires`)
VALUES ('cy@example.org', 'tok3', '2024-04-01 00:00:00.5');
