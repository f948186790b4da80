-- A booking service over a Prisma-like mapper: names in mixed case and qualified by the schema,
-- bound
-- values throughout, every column returned, implicit join tables, upserts.

-- == schema

CREATE TABLE `User` (
    `id` bigint AUTO_INCREMENT PRIMARY KEY,
    `email` varchar(191) NOT NULL,
    `name` varchar(191),
    `role` enum('USER', 'ADMIN') NOT NULL DEFAULT 'USER',
    `createdAt` datetime(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)
);

CREATE UNIQUE INDEX `User_email_key` ON `User` (`email`);

CREATE TABLE `Team` (
    `id` varchar(36) NOT NULL PRIMARY KEY,
    `name` varchar(191) NOT NULL,
    `slug` varchar(191) UNIQUE
);

CREATE TABLE `Member` (
    `userId` bigint NOT NULL,
    `teamId` varchar(36) NOT NULL,
    `accepted` tinyint(1) NOT NULL DEFAULT 0,
    PRIMARY KEY (`userId`, `teamId`),
    FOREIGN KEY (`userId`) REFERENCES `User` (`id`) ON DELETE CASCADE ON UPDATE CASCADE,
    FOREIGN KEY (`teamId`) REFERENCES `Team` (`id`) ON DELETE CASCADE ON UPDATE CASCADE
);

CREATE TABLE `Offer` (
    `id` bigint AUTO_INCREMENT PRIMARY KEY,
    `title` varchar(191) NOT NULL,
    `length` integer NOT NULL,
    `hidden` tinyint(1) NOT NULL DEFAULT 0,
    `userId` bigint,
    `metadata` json,
    FOREIGN KEY (`userId`) REFERENCES `User` (`id`) ON DELETE SET NULL ON UPDATE CASCADE
);

CREATE TABLE `Booking` (
    `id` bigint AUTO_INCREMENT PRIMARY KEY,
    `uid` varchar(36) NOT NULL UNIQUE,
    `userId` bigint NOT NULL,
    `offerId` bigint,
    `startTime` datetime(3) NOT NULL,
    `status` varchar(20) NOT NULL DEFAULT 'ACCEPTED',
    `paid` tinyint(1) NOT NULL DEFAULT 0,
    `updatedAt` datetime(3),
    FOREIGN KEY (`userId`) REFERENCES `User` (`id`) ON DELETE RESTRICT,
    FOREIGN KEY (`offerId`) REFERENCES `Offer` (`id`) ON DELETE RESTRICT
);

CREATE TABLE `Attendee` (
    `id` bigint AUTO_INCREMENT PRIMARY KEY,
    `email` varchar(191) NOT NULL,
    `bookingId` bigint,
    FOREIGN KEY (`bookingId`) REFERENCES `Booking` (`id`) ON DELETE CASCADE
);

CREATE TABLE `Tag` (
    `id` bigint AUTO_INCREMENT PRIMARY KEY,
    `name` varchar(100) NOT NULL UNIQUE
);

CREATE TABLE `_OfferToTag` (
    `A` bigint NOT NULL,
    `B` bigint NOT NULL
);

CREATE UNIQUE INDEX `_OfferToTag_AB_unique` ON `_OfferToTag` (`A`, `B`);

CREATE TABLE `Credential` (
    `id` bigint AUTO_INCREMENT PRIMARY KEY,
    `type` varchar(60) NOT NULL,
    `key` json NOT NULL,
    `userId` bigint NOT NULL
);

CREATE TABLE `OneTimeToken` (
    `identifier` varchar(120) NOT NULL,
    `token` varchar(120) NOT NULL UNIQUE,
    `expires` datetime(3) NOT NULL,
    UNIQUE (`identifier`, `token`)
);

CREATE TABLE `Counter` (
    `name` varchar(60) NOT NULL PRIMARY KEY,
    `value` bigint NOT NULL
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
INSERT INTO `User` (`email`, `name`, `role`) VALUES (?, ?, 'USER');

-- create: a user, with a column returned
INSERT INTO `User` (`email`, `name`) VALUES ('dee@example.org', 'Dee') RETURNING `id`;

-- instead: asks for the number by the unique column
INSERT INTO `User` (`email`, `name`) VALUES ('dee@example.org', 'Dee');
SELECT `id` FROM `User` WHERE `email` = 'dee@example.org';

-- create: a team with its own key
-- bound: '018f0000-0000-7000-8000-0000000000b1', 'New', NULL
INSERT INTO `Team` (`id`, `name`, `slug`) VALUES (?, ?, ?);

-- create: nested, a membership of a new pair
-- bound: 3, 't1'
INSERT INTO `Member` (`userId`, `teamId`, `accepted`) VALUES (?, ?, 1);

-- create: an event type with a document
INSERT INTO `Offer` (`title`, `length`, `hidden`, `userId`, `metadata`)
VALUES ('Chat', 5, 0, 2, '{"b": {"c": []}}');

-- createMany: attendees
-- bound: 'p@example.org', 2, 'q@example.org', 2
INSERT INTO `Attendee` (`email`, `bookingId`) VALUES (?, ?), (?, ?);

-- createMany: tags, skipping duplicates
INSERT IGNORE INTO `Tag` (`name`) VALUES ('work'), ('play');

-- createMany: rows of which some give no value
INSERT INTO `Booking` (`uid`, `userId`, `offerId`, `startTime`, `status`)
VALUES ('b-8', 1, 2, '2024-03-01 09:00:00', DEFAULT),
    ('b-9', 2, NULL, '2024-03-01 10:00:00', 'PENDING');

-- update: a user by its key
-- bound: 'Bob', 2
UPDATE `User` SET `name` = ? WHERE (`User`.`id` = ? AND 1 = 1);

-- update: with all columns returned
UPDATE `Team` SET `name` = 'Kernel' WHERE (`Team`.`id` = 't1' AND 1=1);

-- update: increments a number
-- bound: 1, 'visits'
UPDATE `Counter` SET `value` = (`Counter`.`value` + ?)
WHERE (`Counter`.`name` = ? AND 1 = 1);

-- update: a role
UPDATE `User` SET `role` = 'ADMIN' WHERE `id` IN (2);

-- update: its own time of change
UPDATE `Booking` SET `status` = 'ACCEPTED', `updatedAt` = '2024-02-01 12:00:00.123'
WHERE `Booking`.`uid` = 'b-2';

-- update: unties event types from a user
UPDATE `Offer` SET `userId` = NULL WHERE `Offer`.`userId` = 3;

-- updateMany: bookings by a time and a state
-- bound: 'CANCELLED', '2024-02-02 00:00:00', 'PENDING'
UPDATE `Booking` SET `status` = ?
WHERE (`Booking`.`startTime` >= ? AND `Booking`.`status` = ?);

-- updateMany: by a relation
UPDATE `Booking` SET `paid` = 1 WHERE `userId` IN (
    SELECT `t1`.`id` FROM `User` AS `t1` WHERE `t1`.`role` = 'ADMIN');

-- updateMany: by a relation that is missing
UPDATE `Offer` SET `hidden` = 1 WHERE `id` NOT IN (
    SELECT `offerId` FROM `Booking` WHERE `offerId` IS NOT NULL)
    AND `hidden` = 0;

-- upsert: natively
INSERT INTO `Counter` (`name`, `value`) VALUES ('visits', 1)
ON DUPLICATE KEY UPDATE `value` = `value` + 1;

-- upsert: by a unique column
INSERT INTO `Team` (`id`, `name`, `slug`) VALUES ('t9', 'Core 2', 'core')
ON DUPLICATE KEY UPDATE `name` = VALUES(`name`);

-- upsert: of a row of a composite key, which it assigns as well
INSERT INTO `Member` (`userId`, `teamId`, `accepted`) VALUES (2, 't1', 1)
ON DUPLICATE KEY UPDATE `userId` = VALUES(`userId`), `accepted` = VALUES(`accepted`);

-- delete: a membership
-- bound: 2, 't1'
DELETE FROM `Member` WHERE (`Member`.`userId` = ?
    AND `Member`.`teamId` = ?);

-- delete: with all columns returned
DELETE FROM `Credential` WHERE (`Credential`.`id` = 1 AND 1=1);

-- delete: a booking that attendees go along with
DELETE FROM `Booking` WHERE (`Booking`.`id` = 1 AND 1 = 1);

-- delete: a user whom memberships go along with
DELETE FROM `User` WHERE (`User`.`id` = 3 AND 1 = 1);

-- delete: a team without members
DELETE FROM `Team` WHERE `Team`.`id` = 't2';

-- deleteMany: attendees of cancelled bookings
DELETE FROM `Attendee` WHERE `bookingId` IN (
    SELECT `id` FROM `Booking` WHERE `status` IN ('CANCELLED', 'PENDING'));

-- deleteMany: tokens that have expired, by a unique index for a key
DELETE FROM `OneTimeToken` WHERE `expires` < '2024-02-01 00:00:00';

-- deleteMany: of everything
DELETE FROM `Attendee` WHERE 1 = 1;

-- connect: a tag to an event type
INSERT IGNORE INTO `_OfferToTag` (`A`, `B`) VALUES (1, 2);

-- disconnect: tags from an event type
DELETE FROM `_OfferToTag` WHERE (`_OfferToTag`.`A` = 2
    AND `_OfferToTag`.`B` IN (1, 2));

-- token: uses one up
DELETE FROM `OneTimeToken` WHERE (`identifier` = 'bob@example.org'
    AND `token` = 'tok2');

-- token: creates one
INSERT INTO `OneTimeToken` (`identifier`, `token`, `expires`)
VALUES ('cy@example.org', 'tok3', '2024-04-01 00:00:00.5');

-- raw: locks a booking
SELECT `id`, `status` FROM `Booking` WHERE `uid` = 'b-1' FOR UPDATE;

-- raw: changes a document
UPDATE `Offer` SET `metadata` = JSON_MERGE_PATCH(`metadata`, '{"a": 2}') WHERE `id` = 1;
