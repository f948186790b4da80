-- A booking service over a Prisma-like mapper: names in mixed case and qualified by the schema,
-- bound
-- values throughout, every column returned, implicit join tables, upserts.

-- == schema

CREATE TYPE "Role" AS ENUM ('USER', 'ADMIN');

CREATE TABLE "User" (
    "id" bigserial PRIMARY KEY,
    "email" varchar(191) NOT NULL,
    "name" varchar(191),
    "role" "Role" NOT NULL DEFAULT 'USER',
    "createdAt" timestamp(3) NOT NULL DEFAULT now()
);

CREATE UNIQUE INDEX "User_email_key" ON "User" ("email");

CREATE TABLE "Team" (
    "id" varchar(36) NOT NULL PRIMARY KEY,
    "name" varchar(191) NOT NULL,
    "slug" varchar(191) UNIQUE
);

CREATE TABLE "Member" (
    "userId" integer NOT NULL,
    "teamId" varchar(36) NOT NULL,
    "accepted" boolean NOT NULL DEFAULT false,
    PRIMARY KEY ("userId", "teamId"),
    FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    FOREIGN KEY ("teamId") REFERENCES "Team" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

CREATE TABLE "Offer" (
    "id" bigserial PRIMARY KEY,
    "title" varchar(191) NOT NULL,
    "length" integer NOT NULL,
    "hidden" boolean NOT NULL DEFAULT false,
    "userId" integer,
    "metadata" jsonb,
    FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE SET NULL ON UPDATE CASCADE
);

CREATE TABLE "Booking" (
    "id" bigserial PRIMARY KEY,
    "uid" varchar(36) NOT NULL UNIQUE,
    "userId" integer NOT NULL,
    "offerId" integer,
    "startTime" timestamp(3) NOT NULL,
    "status" varchar(20) NOT NULL DEFAULT 'ACCEPTED',
    "paid" boolean NOT NULL DEFAULT false,
    "updatedAt" timestamp(3),
    FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE RESTRICT,
    FOREIGN KEY ("offerId") REFERENCES "Offer" ("id") ON DELETE RESTRICT
);

CREATE TABLE "Attendee" (
    "id" bigserial PRIMARY KEY,
    "email" varchar(191) NOT NULL,
    "bookingId" integer,
    FOREIGN KEY ("bookingId") REFERENCES "Booking" ("id") ON DELETE CASCADE
);

CREATE TABLE "Tag" (
    "id" bigserial PRIMARY KEY,
    "name" varchar(100) NOT NULL UNIQUE
);

CREATE TABLE "_OfferToTag" (
    "A" integer NOT NULL,
    "B" integer NOT NULL
);

CREATE UNIQUE INDEX "_OfferToTag_AB_unique" ON "_OfferToTag" ("A", "B");

CREATE TABLE "Credential" (
    "id" bigserial PRIMARY KEY,
    "type" varchar(60) NOT NULL,
    "key" jsonb NOT NULL,
    "userId" integer NOT NULL
);

CREATE TABLE "OneTimeToken" (
    "identifier" varchar(120) NOT NULL,
    "token" varchar(120) NOT NULL UNIQUE,
    "expires" timestamp(3) NOT NULL,
    UNIQUE ("identifier", "token")
);

CREATE TABLE "Counter" (
    "name" varchar(60) NOT NULL PRIMARY KEY,
    "value" integer NOT NULL
);

-- == rows

INSERT INTO "User" VALUES (1, 'ann@example.org', 'Ann', 'ADMIN', '2024-01-01 00:00:00'),
    (2, 'bob@example.org', NULL, 'USER', '2024-01-02 00:00:00'),
    (3, 'cy@example.org', 'Cy', 'USER', '2024-01-03 00:00:00');
INSERT INTO "Team" VALUES ('t1', 'Core', 'core'), ('t2', 'Guests', NULL);
INSERT INTO "Member" VALUES (1, 't1', true), (2, 't1', false);
INSERT INTO "Offer" VALUES (1, 'Call', 15, false, 1, '{"a": 1}'),
    (2, 'Meeting', 60, false, 1, NULL), (3, 'Secret', 30, true, 3, NULL);
INSERT INTO "Booking" VALUES
    (1, 'b-1', 1, 1, '2024-02-01 10:00:00', 'ACCEPTED', true, NULL),
    (2, 'b-2', 2, 1, '2024-02-02 10:00:00', 'PENDING', false, NULL),
    (3, 'b-3', 1, NULL, '2024-02-03 10:00:00', 'CANCELLED', false, '2024-01-20 00:00:00');
INSERT INTO "Attendee" VALUES (1, 'x@example.org', 1), (2, 'y@example.org', 1),
    (3, 'z@example.org', 2);
INSERT INTO "Tag" VALUES (1, 'work'), (2, 'home');
INSERT INTO "_OfferToTag" VALUES (1, 1), (2, 1), (2, 2);
INSERT INTO "Credential" VALUES (1, 'calendar', '{"token": "x"}', 1);
INSERT INTO "OneTimeToken" VALUES ('ann@example.org', 'tok1', '2024-01-05 00:00:00'),
    ('bob@example.org', 'tok2', '2024-03-05 00:00:00');
INSERT INTO "Counter" VALUES ('visits', 10);
SELECT setval('"User_id_seq"', 3), setval('"Offer_id_seq"', 3),
    setval('"Booking_id_seq"', 3), setval('"Attendee_id_seq"', 3), setval('"Tag_id_seq"', 2),
    setval('"Credential_id_seq"', 1);

-- == statements

-- create: a user, with all columns returned
-- bound: 'dee@example.org', 'Dee'
INSERT INTO "public"."User" ("email", "name", "role") VALUES ($1, $2, CAST('USER' AS "Role"))
RETURNING "public"."User"."id", "public"."User"."email", "public"."User"."name",
    "public"."User"."role"::text, "public"."User"."createdAt";

-- create: a team with its own key
-- bound: '018f0000-0000-7000-8000-0000000000b1', 'New', NULL
INSERT INTO "public"."Team" ("id", "name", "slug") VALUES ($1, $2, $3);

-- create: nested, a membership of a new pair
-- bound: 3, 't1'
INSERT INTO "public"."Member" ("userId", "teamId", "accepted") VALUES ($1, $2, true);

-- create: an event type with a document
INSERT INTO "public"."Offer" ("title", "length", "hidden", "userId", "metadata")
VALUES ('Chat', 5, false, 2, '{"b": {"c": []}}');

-- createMany: attendees
-- bound: 'p@example.org', 2, 'q@example.org', 2
INSERT INTO "public"."Attendee" ("email", "bookingId") VALUES ($1, $2), ($3, $4);

-- createMany: tags, skipping duplicates
INSERT INTO "public"."Tag" ("name") VALUES ('work'), ('play') ON CONFLICT DO NOTHING;

-- createMany: rows of which some give no value
INSERT INTO "public"."Booking" ("uid", "userId", "offerId", "startTime", "status")
VALUES ('b-8', 1, 2, '2024-03-01 09:00:00', DEFAULT),
    ('b-9', 2, NULL, '2024-03-01 10:00:00', 'PENDING');

-- update: a user by its key
-- bound: 'Bob', 2
UPDATE "public"."User" SET "name" = $1 WHERE ("public"."User"."id" = $2 AND 1 = 1);

-- update: with all columns returned
UPDATE "public"."Team" SET "name" = 'Kernel' WHERE ("public"."Team"."id" = 't1' AND 1=1)
RETURNING "public"."Team"."id", "public"."Team"."name", "public"."Team"."slug";

-- update: increments a number
-- bound: 1, 'visits'
UPDATE "public"."Counter" SET "value" = ("public"."Counter"."value" + $1)
WHERE ("public"."Counter"."name" = $2 AND 1 = 1);

-- update: a role
UPDATE "public"."User" SET "role" = CAST('ADMIN' AS "public"."Role") WHERE "id" IN (2);

-- update: its own time of change
UPDATE "public"."Booking" SET "status" = 'ACCEPTED', "updatedAt" = '2024-02-01 12:00:00.123'
WHERE "public"."Booking"."uid" = 'b-2';

-- update: unties event types from a user
UPDATE "public"."Offer" SET "userId" = NULL WHERE "public"."Offer"."userId" = 3;

-- updateMany: bookings by a time and a state
-- bound: 'CANCELLED', '2024-02-02 00:00:00', 'PENDING'
UPDATE "public"."Booking" SET "status" = $1
WHERE ("public"."Booking"."startTime" >= $2::timestamp AND "public"."Booking"."status" = $3);

-- updateMany: by a relation
UPDATE "public"."Booking" SET "paid" = true WHERE "userId" IN (
    SELECT "t1"."id" FROM "public"."User" AS "t1" WHERE "t1"."role" = 'ADMIN');

-- updateMany: by a relation that is missing
UPDATE "public"."Offer" SET "hidden" = true WHERE "id" NOT IN (
    SELECT "offerId" FROM "public"."Booking" WHERE "offerId" IS NOT NULL)
    AND "hidden" = false;

-- upsert: natively
INSERT INTO "public"."Counter" ("name", "value") VALUES ('visits', 1)
ON CONFLICT ("name") DO UPDATE SET "value" = ("public"."Counter"."value" + 1)
WHERE ("public"."Counter"."name" = 'visits' AND 1=1)
RETURNING "public"."Counter"."name", "public"."Counter"."value";

-- upsert: by a unique column
INSERT INTO "public"."Team" ("id", "name", "slug") VALUES ('t9', 'Core 2', 'core')
ON CONFLICT ("slug") DO UPDATE SET "name" = "excluded"."name";

-- upsert: of a row of a composite key, which it assigns as well
INSERT INTO "public"."Member" ("userId", "teamId", "accepted") VALUES (2, 't1', true)
ON CONFLICT ("userId", "teamId") DO UPDATE SET "userId" = excluded."userId",
    "accepted" = excluded."accepted";

-- delete: a membership
-- bound: 2, 't1'
DELETE FROM "public"."Member" WHERE ("public"."Member"."userId" = $1
    AND "public"."Member"."teamId" = $2);

-- delete: with all columns returned
DELETE FROM "public"."Credential" WHERE ("public"."Credential"."id" = 1 AND 1=1)
RETURNING "public"."Credential"."id", "public"."Credential"."key";

-- delete: a booking that attendees go along with
DELETE FROM "public"."Booking" WHERE ("public"."Booking"."id" = 1 AND 1 = 1);

-- delete: a user whom memberships go along with
DELETE FROM "public"."User" WHERE ("public"."User"."id" = 3 AND 1 = 1);

-- delete: a team without members
DELETE FROM "public"."Team" WHERE "public"."Team"."id" = 't2';

-- deleteMany: attendees of cancelled bookings
DELETE FROM "public"."Attendee" WHERE "bookingId" IN (
    SELECT "id" FROM "public"."Booking" WHERE "status" IN ('CANCELLED', 'PENDING'));

-- deleteMany: tokens that have expired, by a unique index for a key
DELETE FROM "public"."OneTimeToken" WHERE "expires" < '2024-02-01 00:00:00';

-- deleteMany: of everything
DELETE FROM "public"."Attendee" WHERE 1 = 1;

-- connect: a tag to an event type
INSERT INTO "public"."_OfferToTag" ("A", "B") VALUES (1, 2) ON CONFLICT DO NOTHING;

-- disconnect: tags from an event type
DELETE FROM "public"."_OfferToTag" WHERE ("public"."_OfferToTag"."A" = 2
    AND "public"."_OfferToTag"."B" IN (1, 2));

-- token: uses one up
DELETE FROM "public"."OneTimeToken" WHERE ("identifier" = 'bob@example.org'
    AND "token" = 'tok2');

-- token: creates one
INSERT INTO "public"."OneTimeToken" ("identifier", "token", "expires")
VALUES ('cy@example.org', 'tok3', '2024-04-01 00:00:00.5');

-- raw: locks a booking
SELECT "id", "status" FROM "Booking" WHERE "uid" = 'b-1' FOR UPDATE;

-- raw: sets a value for the transaction that policies read
SELECT set_config('app.tenant', 't1', true);

-- raw: changes an array of documents
UPDATE "Offer" SET "metadata" = jsonb_set("metadata", '{a}', '2'::jsonb, true) WHERE "id" = 1;
