-- A manager of mailing lists that writes its SQL by hand and puts much into one statement: writes
-- in
-- WITH, upserts from SELECT, arrays, jsonb, RETURNING.

-- == schema

CREATE TYPE subscriber_status AS ENUM ('enabled', 'disabled', 'blocklisted');
CREATE TYPE campaign_status AS ENUM ('draft', 'running', 'paused', 'finished');

CREATE TABLE subscriber (
    id serial PRIMARY KEY,
    uuid uuid NOT NULL UNIQUE,
    email text NOT NULL,
    name text NOT NULL,
    attribs jsonb NOT NULL DEFAULT '{}',
    status subscriber_status NOT NULL DEFAULT 'enabled',
    created_at timestamptz DEFAULT now(),
    updated_at timestamptz DEFAULT now()
);

CREATE UNIQUE INDEX subscriber_email ON subscriber (lower(email));

CREATE TABLE list (
    id serial PRIMARY KEY,
    uuid uuid NOT NULL UNIQUE,
    name text NOT NULL,
    optin text NOT NULL DEFAULT 'single',
    tags varchar(100)[],
    updated_at timestamptz DEFAULT now()
);

CREATE TABLE subscriber_list (
    subscriber_id integer REFERENCES subscriber (id) ON DELETE CASCADE ON UPDATE CASCADE,
    list_id integer NULL REFERENCES list (id) ON DELETE CASCADE ON UPDATE CASCADE,
    meta jsonb NOT NULL DEFAULT '{}',
    status text NOT NULL DEFAULT 'unconfirmed',
    updated_at timestamptz DEFAULT now(),
    PRIMARY KEY (subscriber_id, list_id)
);

CREATE TABLE campaign (
    id serial PRIMARY KEY,
    uuid uuid NOT NULL UNIQUE,
    name text NOT NULL,
    subject text NOT NULL,
    body text NOT NULL,
    status campaign_status NOT NULL DEFAULT 'draft',
    tags varchar(100)[],
    to_send integer NOT NULL DEFAULT 0,
    sent integer NOT NULL DEFAULT 0,
    last_subscriber_id integer NOT NULL DEFAULT 0,
    send_at timestamptz,
    started_at timestamptz,
    updated_at timestamptz DEFAULT now()
);

CREATE TABLE campaign_list (
    id bigserial PRIMARY KEY,
    campaign_id integer NOT NULL REFERENCES campaign (id) ON DELETE CASCADE,
    list_id integer REFERENCES list (id) ON DELETE SET NULL,
    list_name text NOT NULL DEFAULT '',
    UNIQUE (campaign_id, list_id)
);

CREATE TABLE campaign_view (
    id bigserial PRIMARY KEY,
    campaign_id integer NOT NULL REFERENCES campaign (id) ON DELETE CASCADE,
    subscriber_id integer REFERENCES subscriber (id) ON DELETE SET NULL,
    created_at timestamptz DEFAULT now()
);

CREATE TABLE link (
    id serial PRIMARY KEY,
    uuid uuid NOT NULL UNIQUE,
    url text NOT NULL UNIQUE
);

CREATE TABLE link_click (
    id bigserial PRIMARY KEY,
    campaign_id integer REFERENCES campaign (id) ON DELETE CASCADE,
    link_id integer NOT NULL REFERENCES link (id) ON DELETE CASCADE,
    subscriber_id integer REFERENCES subscriber (id) ON DELETE SET NULL
);

CREATE TABLE template (
    id serial PRIMARY KEY,
    name text NOT NULL,
    body text NOT NULL,
    is_default boolean NOT NULL DEFAULT false,
    updated_at timestamptz DEFAULT now()
);

CREATE UNIQUE INDEX template_default ON template (is_default) WHERE is_default;

CREATE TABLE media (
    id serial PRIMARY KEY,
    filename text NOT NULL,
    meta jsonb NOT NULL DEFAULT '{}'
);

CREATE TABLE bounce (
    id serial PRIMARY KEY,
    subscriber_id integer NOT NULL REFERENCES subscriber (id) ON DELETE CASCADE,
    campaign_id integer REFERENCES campaign (id) ON DELETE SET NULL,
    kind text NOT NULL,
    created_at timestamptz DEFAULT now()
);

CREATE TABLE setting (
    key text NOT NULL UNIQUE,
    value jsonb NOT NULL DEFAULT '{}',
    updated_at timestamptz DEFAULT now()
);

CREATE TABLE login_session (
    id text PRIMARY KEY,
    data jsonb NOT NULL DEFAULT '{}',
    created_at timestamp
);

CREATE MATERIALIZED VIEW subscriber_count AS
    SELECT status, count(*) AS number FROM subscriber GROUP BY status;

-- == rows

INSERT INTO subscriber VALUES
    (1, '018f0000-0000-7000-8000-000000000001', 'ann@example.org', 'Ann', '{"city": "Oslo"}',
        'enabled', '2024-01-01', '2024-01-01'),
    (2, '018f0000-0000-7000-8000-000000000002', 'Bob@example.org', 'Bob', '{}',
        'enabled', '2024-01-02', '2024-01-02'),
    (3, '018f0000-0000-7000-8000-000000000003', 'cy@example.org', 'Cy', '{"city": "Rome"}',
        'blocklisted', '2024-01-03', '2024-01-03'),
    (4, '018f0000-0000-7000-8000-000000000004', 'dee@example.org', 'Dee', '{}',
        'disabled', '2024-01-04', '2024-01-04');
INSERT INTO list VALUES
    (1, '018f0000-0000-7000-8000-000000000011', 'News', 'single', '{a,b}', '2024-01-01'),
    (2, '018f0000-0000-7000-8000-000000000012', 'Offers', 'double', '{}', '2024-01-01'),
    (3, '018f0000-0000-7000-8000-000000000013', 'Empty', 'single', NULL, '2024-01-01');
INSERT INTO subscriber_list VALUES (1, 1, '{}', 'confirmed', '2024-01-01'),
    (2, 1, '{}', 'unconfirmed', '2024-01-01'), (1, 2, '{}', 'unsubscribed', '2024-01-01'),
    (3, 2, '{"why": "spam"}', 'confirmed', '2024-01-01');
INSERT INTO campaign VALUES
    (1, '018f0000-0000-7000-8000-000000000021', 'May', 'Hello', 'Hi', 'running', '{x}', 3, 1, 1,
        NULL, '2024-05-01', '2024-05-01'),
    (2, '018f0000-0000-7000-8000-000000000022', 'June', 'News', 'Yes', 'draft', NULL, 0, 0, 0,
        '2024-06-01', NULL, '2024-05-02');
INSERT INTO campaign_list VALUES (1, 1, 1, 'News'), (2, 2, 2, 'Offers');
INSERT INTO campaign_view VALUES (1, 1, 1, '2024-05-01'), (2, 1, NULL, '2024-05-01');
INSERT INTO link VALUES (1, '018f0000-0000-7000-8000-000000000031', 'https://example.org/a');
INSERT INTO link_click VALUES (1, 1, 1, 1);
INSERT INTO template VALUES (1, 'Plain', '<p>', true, '2024-01-01'),
    (2, 'Rich', '<div>', false, '2024-01-01');
INSERT INTO media VALUES (1, 'logo.png', '{"w": 10}');
INSERT INTO bounce VALUES (1, 2, 1, 'soft', '2024-05-02'), (2, 2, 1, 'hard', '2024-05-03'),
    (3, 4, NULL, 'hard', '2024-01-01');
INSERT INTO setting VALUES ('app.root', '"https://example.org"', '2024-01-01'),
    ('app.limit', '10', '2024-01-01');
INSERT INTO login_session VALUES ('s1', '{"user": 1}', '2024-01-01'),
    ('s2', '{}', '2024-05-01');
SELECT setval('subscriber_id_seq', 4), setval('list_id_seq', 3), setval('campaign_id_seq', 2),
    setval('campaign_list_id_seq', 2), setval('campaign_view_id_seq', 2), setval('link_id_seq', 1),
    setval('link_click_id_seq', 1), setval('template_id_seq', 2), setval('media_id_seq', 1),
    setval('bounce_id_seq', 3);

-- == statements

-- adds a subscriber
-- bound: '018f0000-0000-7000-8000-000000000005', 'eve@example.org', 'Eve', '{"a": 1}'
INSERT INTO subscriber (uuid, email, name, attribs) VALUES ($1::uuid, $2, $3, $4::jsonb)
RETURNING id;

-- adds a subscriber with lists in one statement
WITH sub AS (
    INSERT INTO subscriber (uuid, email, name, status)
    VALUES ('018f0000-0000-7000-8000-000000000005', 'eve@example.org', 'Eve', 'enabled')
    RETURNING id)
INSERT INTO subscriber_list (subscriber_id, list_id, status)
SELECT sub.id, l.id, 'unconfirmed' FROM sub, list l WHERE l.id = ANY(ARRAY[1, 2]);

-- adds a subscriber with lists, which keep what they have
WITH sub AS (
    INSERT INTO subscriber (uuid, email, name, status)
    VALUES ('018f0000-0000-7000-8000-000000000005', 'eve@example.org', 'Eve', 'enabled')
    RETURNING id, status)
INSERT INTO subscriber_list (subscriber_id, list_id, status)
SELECT id, UNNEST(ARRAY[1, 3]), 'unconfirmed' FROM sub
ON CONFLICT (subscriber_id, list_id) DO UPDATE SET updated_at = now();

-- instead: adds the subscriber, and then its lists
INSERT INTO subscriber (id, uuid, email, name, status)
VALUES (50, '018f0000-0000-7000-8000-000000000005', 'eve@example.org', 'Eve', 'enabled');
INSERT INTO subscriber_list (subscriber_id, list_id, status)
VALUES (50, 1, 'unconfirmed'), (50, 3, 'unconfirmed')
ON CONFLICT (subscriber_id, list_id) DO UPDATE SET updated_at = now();

-- saves a subscriber by its address whatever its case
INSERT INTO subscriber (uuid, email, name)
VALUES ('018f0000-0000-7000-8000-000000000006', 'bob@example.org', 'Robert')
ON CONFLICT (lower(email)) DO UPDATE SET name = excluded.name, updated_at = now();

-- instead: changes the subscriber, and inserts one if no row was changed
UPDATE subscriber SET name = 'Robert', updated_at = now() WHERE lower(email) = 'bob@example.org';
INSERT INTO subscriber (uuid, email, name)
SELECT '018f0000-0000-7000-8000-000000000006', 'bob@example.org', 'Robert'
WHERE NOT EXISTS (SELECT 1 FROM subscriber WHERE lower(email) = 'bob@example.org');

-- imports subscribers unless their addresses are known
INSERT INTO subscriber (uuid, email, name, attribs)
VALUES ('018f0000-0000-7000-8000-000000000006', 'BOB@example.org', 'Bob', '{}'),
    ('018f0000-0000-7000-8000-000000000007', 'fay@example.org', 'Fay', '{"x": [1]}')
ON CONFLICT (lower(email)) DO NOTHING;

-- changes a subscriber where something is given
UPDATE subscriber SET email = coalesce(nullif('', ''), email), name = 'Anna',
    attribs = attribs || '{"lang": "no"}', updated_at = now()
WHERE id = 1;

-- changes a subscriber and its lists in one statement
WITH s AS (
    UPDATE subscriber SET name = 'Anna', updated_at = now() WHERE id = 1 RETURNING id),
d AS (DELETE FROM subscriber_list WHERE subscriber_id = 1 AND list_id <> ALL(ARRAY[1, 3]))
INSERT INTO subscriber_list (subscriber_id, list_id, status)
VALUES (1, 1, 'confirmed'), (1, 3, 'confirmed')
ON CONFLICT (subscriber_id, list_id) DO UPDATE SET status = excluded.status;

-- instead: writes subscriber and lists by three statements
UPDATE subscriber SET name = 'Anna', updated_at = now() WHERE id = 1;
DELETE FROM subscriber_list WHERE subscriber_id = 1 AND list_id <> ALL(ARRAY[1, 3]);
INSERT INTO subscriber_list (subscriber_id, list_id, status)
VALUES (1, 1, 'confirmed'), (1, 3, 'confirmed')
ON CONFLICT (subscriber_id, list_id) DO UPDATE SET status = excluded.status;

-- blocks subscribers and ends their subscriptions in one statement
WITH b AS (
    UPDATE subscriber SET status = 'blocklisted', updated_at = now()
    WHERE id = ANY(ARRAY[1, 2]) RETURNING id)
UPDATE subscriber_list SET status = 'unsubscribed', updated_at = now()
WHERE subscriber_id IN (SELECT id FROM b);

-- blocks subscribers that have bounced more than once
WITH sub AS (
    SELECT subscriber_id AS id FROM bounce GROUP BY subscriber_id HAVING count(*) > 1)
UPDATE subscriber SET status = 'blocklisted' WHERE id = ANY(SELECT id FROM sub);

-- removes subscribers
DELETE FROM subscriber WHERE id = ANY(ARRAY[4]);

-- removes blocked subscribers
DELETE FROM subscriber WHERE status = 'blocklisted';

-- removes subscribers on no list
DELETE FROM subscriber a USING (
    SELECT s.id FROM subscriber s LEFT JOIN subscriber_list l ON l.subscriber_id = s.id
    WHERE l.subscriber_id IS NULL) b
WHERE a.id = b.id;

-- puts subscribers on lists by all pairs
INSERT INTO subscriber_list (subscriber_id, list_id, status)
SELECT a, b, 'unconfirmed' FROM unnest(ARRAY[2, 4]) a, unnest(ARRAY[1, 3]) b
ON CONFLICT (subscriber_id, list_id) DO UPDATE SET status = 'unconfirmed';

-- instead: puts subscribers on lists by values
INSERT INTO subscriber_list (subscriber_id, list_id, status)
VALUES (2, 1, 'unconfirmed'), (2, 3, 'unconfirmed'), (4, 1, 'unconfirmed'), (4, 3, 'unconfirmed')
ON CONFLICT (subscriber_id, list_id) DO UPDATE SET status = 'unconfirmed';

-- puts subscribers on a list unless they are
INSERT INTO subscriber_list (subscriber_id, list_id)
SELECT s.id, 2 FROM subscriber s WHERE s.status = 'enabled'
ON CONFLICT DO NOTHING;

-- confirms a subscription
UPDATE subscriber_list SET status = 'confirmed', updated_at = now(),
    meta = meta || '{"optin_ip": "10.0.0.1"}'
WHERE subscriber_id = 2 AND list_id = 1;

-- ends subscriptions by the identity of the subscriber
UPDATE subscriber_list SET status = 'unsubscribed', updated_at = now()
WHERE subscriber_id = (SELECT id FROM subscriber
        WHERE uuid = '018f0000-0000-7000-8000-000000000001')
    AND list_id = ANY(ARRAY[1, 2]);

-- takes subscribers off lists by pairs
DELETE FROM subscriber_list
WHERE (subscriber_id, list_id) = ANY(SELECT a, b FROM unnest(ARRAY[1, 3]) a, unnest(ARRAY[2]) b);

-- ends subscriptions of blocked subscribers
UPDATE subscriber_list sl SET status = 'unsubscribed'
FROM subscriber s WHERE s.id = sl.subscriber_id AND s.status = 'blocklisted';

-- removes subscriptions that were never confirmed
WITH optins AS (SELECT id FROM list WHERE optin = 'single')
DELETE FROM subscriber_list WHERE status = 'unconfirmed' AND list_id IN (SELECT id FROM optins);

-- creates a list
INSERT INTO list (uuid, name, optin, tags)
VALUES ('018f0000-0000-7000-8000-000000000014', 'Events', 'double', ARRAY['x', 'y z'])
RETURNING id;

-- changes a list
UPDATE list SET name = 'News!', tags = '{a,c}'::varchar(100)[], updated_at = now() WHERE id = 1;

-- notes when lists were last changed
UPDATE list SET updated_at = now() WHERE id = ANY(ARRAY[1, 2]);

-- removes lists
DELETE FROM list WHERE id = ANY(ARRAY[3]);

-- creates a campaign with the lists that it goes to
WITH camp AS (
    INSERT INTO campaign (uuid, name, subject, body)
    VALUES ('018f0000-0000-7000-8000-000000000023', 'July', 'Sun', 'Hot') RETURNING id)
INSERT INTO campaign_list (campaign_id, list_id, list_name)
SELECT (SELECT id FROM camp), id, name FROM list WHERE id = ANY(ARRAY[1, 2])
RETURNING campaign_id;

-- changes a campaign and its lists
WITH camp AS (
    UPDATE campaign SET name = 'May 2', subject = 'Hi', updated_at = now() WHERE id = 1
    RETURNING id),
d AS (DELETE FROM campaign_list WHERE campaign_id = 1 AND NOT (list_id = ANY(ARRAY[2])))
INSERT INTO campaign_list (campaign_id, list_id, list_name)
SELECT 1, id, name FROM list WHERE id = ANY(ARRAY[2])
ON CONFLICT (campaign_id, list_id) DO UPDATE SET list_name = excluded.list_name;

-- starts a campaign with the number of its subscribers
WITH counts AS (
    SELECT count(*) AS to_send FROM subscriber_list WHERE list_id = 1 AND status <> 'unsubscribed')
UPDATE campaign SET status = 'running', started_at = now(), to_send = counts.to_send
FROM counts WHERE campaign.id = 2;

-- takes the next subscribers of a campaign and notes how far it is
WITH next AS (
    SELECT s.id FROM subscriber s JOIN subscriber_list l ON l.subscriber_id = s.id
    WHERE l.list_id = 1 AND s.id > 1 ORDER BY s.id LIMIT 10),
u AS (
    UPDATE campaign SET last_subscriber_id = (SELECT max(id) FROM next), updated_at = now()
    WHERE (SELECT count(*) FROM next) > 0 AND id = 1)
SELECT id FROM next;

-- counts what a campaign has sent
UPDATE campaign SET sent = sent + 5, updated_at = now() WHERE id = 1;

-- pauses a campaign that runs
UPDATE campaign SET status = (
    CASE WHEN status = 'running' THEN 'paused' ELSE 'draft' END)::campaign_status
WHERE id = 1;

-- removes a campaign
DELETE FROM campaign WHERE id = 2;

-- counts a view by identities
WITH view AS (
    SELECT c.id AS campaign_id, s.id AS subscriber_id FROM campaign c
    LEFT JOIN subscriber s ON s.uuid = '018f0000-0000-7000-8000-000000000002'
    WHERE c.uuid = '018f0000-0000-7000-8000-000000000021')
INSERT INTO campaign_view (campaign_id, subscriber_id)
VALUES ((SELECT campaign_id FROM view), (SELECT subscriber_id FROM view));

-- saves a link and returns its identity, old or new
INSERT INTO link (uuid, url)
VALUES ('018f0000-0000-7000-8000-000000000032', 'https://example.org/a')
ON CONFLICT (url) DO UPDATE SET url = excluded.url RETURNING uuid;

-- saves a link and counts a click on it
WITH l AS (
    INSERT INTO link (uuid, url)
    VALUES ('018f0000-0000-7000-8000-000000000033', 'https://example.org/b')
    ON CONFLICT (url) DO UPDATE SET url = excluded.url RETURNING id)
INSERT INTO link_click (campaign_id, link_id, subscriber_id) SELECT 1, id, 1 FROM l;

-- instead: saves the link, and counts the click by a second statement
INSERT INTO link (uuid, url)
VALUES ('018f0000-0000-7000-8000-000000000033', 'https://example.org/b')
ON CONFLICT (url) DO UPDATE SET url = excluded.url;
INSERT INTO link_click (campaign_id, link_id, subscriber_id)
SELECT 1, id, 1 FROM link WHERE url = 'https://example.org/b';

-- counts a click
INSERT INTO link_click (campaign_id, link_id, subscriber_id)
VALUES (1, (SELECT id FROM link WHERE url = 'https://example.org/a'), NULL) RETURNING id;

-- creates a template
INSERT INTO template (name, body) VALUES ('Dark', '<b>') RETURNING id;

-- makes another template the default one
WITH u AS (UPDATE template SET is_default = true WHERE id = 2 RETURNING id)
UPDATE template SET is_default = false WHERE id <> 2 AND is_default;

-- instead: takes the default from one template and gives it to the other
UPDATE template SET is_default = false WHERE is_default;
UPDATE template SET is_default = true WHERE id = 2;

-- removes a template and gives its campaigns the default one
WITH tpl AS (DELETE FROM template WHERE id = 2 AND is_default = false RETURNING id)
UPDATE campaign SET updated_at = now() WHERE (SELECT count(*) FROM tpl) = 1 AND id = 1;

-- saves a file
INSERT INTO media (filename, meta) VALUES ('photo.jpg', '{"w": 640, "h": 480}') RETURNING id;

-- records a bounce and blocks the subscriber at the second
WITH sub AS (SELECT id FROM subscriber WHERE email = 'ann@example.org'),
num AS (SELECT count(*) + 1 AS num FROM bounce WHERE subscriber_id = (SELECT id FROM sub)),
blocked AS (
    UPDATE subscriber SET status = 'blocklisted'
    WHERE id = (SELECT id FROM sub) AND (SELECT num FROM num) >= 1)
INSERT INTO bounce (subscriber_id, campaign_id, kind) SELECT id, 1, 'hard' FROM sub;

-- removes old bounces
DELETE FROM bounce WHERE created_at < now() - interval '1 year' AND kind = 'soft';

-- saves settings from a document
UPDATE setting SET value = s.value, updated_at = now()
FROM (SELECT * FROM jsonb_each('{"app.limit": 20, "none": 1}')) AS s(key, value)
WHERE setting.key = s.key;

-- saves a setting or changes it
INSERT INTO setting (key, value) VALUES ('app.limit', '30'), ('app.lang', '"en"')
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = now();

-- changes a part of a session
UPDATE login_session SET data = jsonb_set(data, '{user}', '2') WHERE id = 's1';

-- removes sessions that are old
DELETE FROM login_session WHERE created_at <= '2024-02-01';

-- locks a subscriber in order to merge it
SELECT id, attribs FROM subscriber WHERE lower(email) = 'bob@example.org' FOR UPDATE;

-- refreshes a view of counts
-- changes nothing
REFRESH MATERIALIZED VIEW subscriber_count;
