-- An identity server over a Hibernate-like mapper: entities with versions, joined subclasses,
-- element
-- collections that are rewritten as a whole, sequences, bulk statements with aliases.

-- == schema

CREATE TABLE tenant (
    id varchar(36) PRIMARY KEY,
    name varchar(255) UNIQUE,
    enabled tinyint(1) NOT NULL,
    token_seconds integer
);

CREATE TABLE tenant_setting (
    name varchar(255) NOT NULL,
    tenant_id varchar(36) NOT NULL,
    value text,
    PRIMARY KEY (name, tenant_id),
    FOREIGN KEY (tenant_id) REFERENCES tenant (id)
);

CREATE TABLE person (
    id varchar(36) PRIMARY KEY,
    tenant_id varchar(255),
    username varchar(255),
    email varchar(255),
    enabled tinyint(1) NOT NULL,
    created_ms bigint,
    version integer NOT NULL,
    UNIQUE (tenant_id, username)
);

CREATE TABLE person_detail (
    id varchar(36) PRIMARY KEY,
    name varchar(255) NOT NULL,
    value varchar(255),
    user_id varchar(36) NOT NULL,
    FOREIGN KEY (user_id) REFERENCES person (id)
);

CREATE TABLE person_duty (
    user_id varchar(36) NOT NULL,
    duty varchar(191) NOT NULL,
    PRIMARY KEY (duty, user_id),
    FOREIGN KEY (user_id) REFERENCES person (id)
);

CREATE TABLE credential (
    id varchar(36) PRIMARY KEY,
    user_id varchar(36),
    type varchar(255),
    secret_data text,
    priority integer,
    FOREIGN KEY (user_id) REFERENCES person (id)
);

CREATE TABLE app_role (
    id varchar(36) PRIMARY KEY,
    client varchar(36),
    name varchar(255),
    UNIQUE (name, client)
);

CREATE TABLE composite_role (
    composite varchar(36) NOT NULL,
    child_role varchar(36) NOT NULL,
    PRIMARY KEY (composite, child_role),
    FOREIGN KEY (composite) REFERENCES app_role (id),
    FOREIGN KEY (child_role) REFERENCES app_role (id)
);

CREATE TABLE person_role (
    role_id varchar(255) NOT NULL,
    user_id varchar(36) NOT NULL,
    PRIMARY KEY (role_id, user_id),
    FOREIGN KEY (user_id) REFERENCES person (id)
);

CREATE TABLE kept_session (
    session_id varchar(36) NOT NULL,
    kept_flag varchar(4) NOT NULL,
    user_id varchar(191),
    data text,
    last_refresh integer NOT NULL DEFAULT 0,
    version integer DEFAULT 0,
    PRIMARY KEY (session_id, kept_flag)
);

CREATE TABLE event_record (
    id varchar(36) PRIMARY KEY,
    event_time bigint,
    type varchar(255),
    user_id varchar(255),
    details text
);

CREATE TABLE payment_account (
    id bigint PRIMARY KEY,
    dtype varchar(31) NOT NULL,
    owner varchar(60),
    version bigint NOT NULL
);

CREATE TABLE card_account (
    id bigint PRIMARY KEY REFERENCES payment_account (id),
    card_number varchar(20)
);

CREATE TABLE id_table (
    sequence_name varchar(60) PRIMARY KEY,
    next_val bigint
);

CREATE TABLE person_phone_bag (
    person_id varchar(36) NOT NULL,
    phones varchar(30)
);

CREATE TABLE invoice (
    id bigint AUTO_INCREMENT PRIMARY KEY,
    amount decimal(19, 2),
    issued_on date,
    paid tinyint(1) NOT NULL,
    version integer NOT NULL
);

-- == rows

INSERT INTO tenant VALUES ('r1', 'master', 1, 60), ('r2', 'shop', 1, 300);
INSERT INTO tenant_setting VALUES ('theme', 'r1', 'dark'), ('theme', 'r2', NULL),
    ('lang', 'r2', 'no');
INSERT INTO person VALUES ('u1', 'r1', 'root', 'root@example.org', 1, 1700000000000, 2),
    ('u2', 'r2', 'ann', 'ann@example.org', 1, 1700000001000, 0),
    ('u3', 'r2', 'bob', NULL, 0, 1700000002000, 5),
    ('u4', 'r2', 'old', NULL, 0, 1600000000000, 0);
INSERT INTO person_detail VALUES ('a1', 'phone', '123', 'u2'), ('a2', 'city', 'Oslo', 'u2'),
    ('a3', 'city', NULL, 'u3');
INSERT INTO person_duty VALUES ('u3', 'VERIFY_EMAIL'), ('u3', 'UPDATE_PASSWORD');
INSERT INTO credential VALUES ('c1', 'u1', 'password', '{"v": "x"}', 10),
    ('c2', 'u2', 'password', '{"v": "y"}', 10), ('c3', 'u2', 'otp', '{}', 20);
INSERT INTO app_role VALUES ('ro1', 'shop', 'admin'), ('ro2', 'shop', 'view'),
    ('ro3', 'shop', 'edit');
INSERT INTO composite_role VALUES ('ro1', 'ro2'), ('ro1', 'ro3');
INSERT INTO person_role VALUES ('ro1', 'u1'), ('ro2', 'u2');
INSERT INTO kept_session VALUES ('s1', '0', 'u2', '{}', 1700000000, 1),
    ('s2', '1', 'u3', '{}', 1600000000, 0);
INSERT INTO event_record VALUES ('e1', 1600000000000, 'LOGIN', 'u1', NULL),
    ('e2', 1700000000000, 'LOGIN', 'u2', '{}');
INSERT INTO payment_account VALUES (1, 'Card', 'ann', 0), (2, 'Plain', 'bob', 3);
INSERT INTO card_account VALUES (1, '4000');
INSERT INTO id_table VALUES ('invoice', 51);
INSERT INTO person_phone_bag VALUES ('u2', '111'), ('u2', '222'), ('u3', '333');
INSERT INTO invoice VALUES (1, 10.00, '2024-01-31', 0, 0), (2, 25.50, '2024-02-29', 1, 1);

-- == statements

-- persist: a tenant
-- bound: 120, 'test', 'r9'
insert into tenant (token_seconds, enabled, name, id) values (?, 1, ?, ?);

-- persist: a user
insert into person (created_ms, email, enabled, tenant_id, username, version, id)
values (1700000009000, 'cy@example.org', 1, 'r2', 'cy', 0, 'u9');

-- persist: an invoice whose number the database gives
insert into invoice (amount, issued_on, paid, version, id)
values (7.25, '2024-03-01', 0, 0, default);

-- persist: takes a block of numbers from a table, the read
select tbl.next_val from id_table tbl where tbl.sequence_name = 'invoice' for update;

-- persist: takes a block of numbers from a table, the write
update id_table set next_val = 101 where next_val = 51 and sequence_name = 'invoice';

-- persist: the first of two tables of a subclass
insert into payment_account (owner, version, dtype, id) values ('dee', 0, 'Card', 7);

-- persist: the second of two tables of a subclass
insert into card_account (card_number, id) values ('4111', 2);

-- merge: all columns of an entity with its version
update person set created_ms = 1700000001000, email = 'ann@example.com', enabled = 1,
    tenant_id = 'r2', username = 'ann', version = 1
where id = 'u2' and version = 0;

-- merge: only the changed columns
update person set email = 'bob@example.org', version = 6 where id = 'u3' and version = 5;

-- merge: counts the version of an entity whose collection has changed
update person set version = 1 where id = 'u2' and version = 0;

-- merge: an invoice with bound values
-- bound: '12.00', '2024-03-05', 1, 1, 0
update invoice set amount = ?, issued_on = ?, paid = 1, version = ?
where id = ? and version = ?;

-- remove: an entity with its version
delete from invoice where id = 2 and version = 1;

-- remove: an attribute of a user
delete from person_detail where id = 'a1';

-- remove: a user whom nothing refers to any more
delete from person where id = 'u4' and version = 0;

-- element collection: removes all rows of an owner
delete from person_duty where user_id = 'u3';

-- element collection: adds a row
insert into person_duty (user_id, duty) values ('u2', 'SET_UP_CODE');

-- element collection: removes one row by all its columns
delete from person_duty where user_id = 'u3' and duty = 'VERIFY_EMAIL';

-- bag: removes all rows of an owner, in a table without a key
delete from person_phone_bag where person_id = 'u2';

-- bag: adds a row, in a table without a key
insert into person_phone_bag (person_id, phones) values ('u2', '444');

-- many to many: adds a role to a composite
insert into composite_role (composite, child_role) values ('ro3', 'ro2');

-- many to many: removes all of a composite
delete from composite_role where composite = 'ro1';

-- bulk: stops users of a tenant
update person p1_0 set enabled = 0 where p1_0.tenant_id = 'r2';

-- bulk: gives users a later version
update person set version = version + 1, enabled = 1 where enabled = 0;

-- bulk: removes attributes by the tenant of their users
delete pd1_0 from person_detail pd1_0 where pd1_0.user_id in (
    select p1_0.id from person p1_0 where p1_0.tenant_id = 'r2');

-- bulk: removes credentials of users without an address
delete c1_0 from credential c1_0 where exists (
    select 1 from person p1_0 where p1_0.id = c1_0.user_id and p1_0.username = 'ann');

-- bulk: removes roles of users
delete from person_role where role_id = 'ro1';

-- bulk: removes roles of users of a tenant by a tuple
delete from person_role where (role_id, user_id) in (
    select ur.role_id, ur.user_id from (select role_id, user_id from person_role) ur
    where ur.user_id = 'u2');

-- bulk: copies a collection
insert into tenant_setting (name, tenant_id, value)
select ts1_0.name, 'r1', ts1_0.value from tenant_setting ts1_0
where ts1_0.tenant_id = 'r2' and ts1_0.name = 'lang';

-- instead: reads the collection and writes values
select ts1_0.name, ts1_0.value from tenant_setting ts1_0
where ts1_0.tenant_id = 'r2' and ts1_0.name = 'lang';
insert into tenant_setting (name, tenant_id, value) values ('lang', 'r1', 'no');

-- pessimistic lock: an entity
select p1_0.id, p1_0.email, p1_0.version from person p1_0 where p1_0.id = 'u2'
for update;

-- pessimistic lock: an entity with a joined one
select p1_0.id, c1_0.id as c_id from person p1_0
join credential c1_0 on p1_0.id = c1_0.user_id where p1_0.id = 'u2' for update;

-- pessimistic lock: without waiting
select ac1_0.id, ac1_0.owner from payment_account ac1_0 where ac1_0.id = 1 for update nowait;

-- pessimistic lock: the next session that no other holds
select ks1_0.session_id, ks1_0.kept_flag from kept_session ks1_0
where ks1_0.last_refresh < 1650000000 order by ks1_0.last_refresh limit 1 for update skip locked;

-- pessimistic lock: shared
select r1_0.id, r1_0.name from tenant r1_0 where r1_0.id = 'r1' lock in share mode;

-- upsert: a session
insert into kept_session (session_id, kept_flag, user_id, data, last_refresh, version)
values ('s1', '0', 'u2', '{"a": 1}', 1700000100, 2)
on duplicate key update data = values(data), last_refresh = values(last_refresh),
    version = values(version);

-- session: refreshes it unless another node did
update kept_session set last_refresh = 1700000500, version = 2
where session_id = 's1' and kept_flag = '0' and version = 1;

-- session: removes those that have expired
delete from kept_session where kept_flag = '1' and last_refresh < 1650000000;

-- event: writes one
insert into event_record (details, event_time, type, user_id, id)
values ('{"ip": "10.0.0.1"}', 1700000600000, 'LOGOUT', 'u2', 'e9');

-- event: removes old ones
delete from event_record where event_time < 1650000000000;
