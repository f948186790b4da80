-- A chain of shops that rents films: films with actors and categories, inventory, customers, staff,
-- rentals and payments. Its tables keep the time of their last change by triggers, or on MariaDB by
-- the column itself. No trigger is trusted.

-- == schema

CREATE TYPE film_rating AS ENUM ('G', 'PG', 'PG-13', 'R', 'NC-17');

CREATE TABLE country (
    country_id bigserial PRIMARY KEY,
    country varchar(50) NOT NULL,
    last_update timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE shop (
    shop_id bigserial PRIMARY KEY,
    manager_staff_id integer,
    street varchar(50) NOT NULL,
    country_id bigint NOT NULL,
    last_update timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (country_id) REFERENCES country (country_id) ON UPDATE CASCADE ON DELETE RESTRICT
);

CREATE TABLE film (
    film_id bigserial PRIMARY KEY,
    title varchar(120) NOT NULL,
    description text,
    release_year integer,
    rental_days integer NOT NULL DEFAULT 3,
    rental_rate decimal(4, 2) NOT NULL DEFAULT 4.99,
    length integer,
    rating film_rating DEFAULT 'G',
    special_features text[],
    fulltext tsvector,
    last_update timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE actor (
    actor_id bigserial PRIMARY KEY,
    first_name varchar(45) NOT NULL,
    last_name varchar(45) NOT NULL
);

CREATE TABLE film_actor (
    actor_id bigint NOT NULL REFERENCES actor (actor_id) ON UPDATE CASCADE ON DELETE RESTRICT,
    film_id bigint NOT NULL REFERENCES film (film_id) ON UPDATE CASCADE ON DELETE RESTRICT,
    PRIMARY KEY (actor_id, film_id)
);

CREATE TABLE film_text (
    film_id bigint PRIMARY KEY,
    title varchar(120) NOT NULL,
    description text
);

CREATE TABLE inventory (
    inventory_id bigserial PRIMARY KEY,
    film_id bigint NOT NULL REFERENCES film (film_id) ON UPDATE CASCADE ON DELETE RESTRICT,
    shop_id bigint NOT NULL REFERENCES shop (shop_id) ON UPDATE CASCADE ON DELETE RESTRICT
);

CREATE TABLE customer (
    customer_id bigserial PRIMARY KEY,
    shop_id bigint NOT NULL REFERENCES shop (shop_id) ON UPDATE CASCADE ON DELETE RESTRICT,
    first_name varchar(45) NOT NULL,
    last_name varchar(45) NOT NULL,
    email varchar(50) UNIQUE,
    active boolean NOT NULL DEFAULT true,
    last_update timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE rental (
    rental_id bigserial PRIMARY KEY,
    rented_at timestamp NOT NULL,
    inventory_id bigint NOT NULL REFERENCES inventory (inventory_id) ON DELETE RESTRICT,
    customer_id bigint NOT NULL REFERENCES customer (customer_id) ON DELETE RESTRICT,
    returned_at timestamp,
    UNIQUE (rented_at, inventory_id, customer_id)
);

CREATE TABLE payment (
    payment_id bigserial PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customer (customer_id) ON DELETE RESTRICT,
    rental_id bigint REFERENCES rental (rental_id) ON UPDATE CASCADE ON DELETE SET NULL,
    amount decimal(5, 2) NOT NULL,
    paid_at timestamp NOT NULL
);

CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.last_update = now(); RETURN NEW; END $$;

CREATE FUNCTION index_film() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.fulltext = to_tsvector('english', NEW.title || ' ' || coalesce(NEW.description, ''));
    RETURN NEW;
END $$;

CREATE TRIGGER country_touch BEFORE UPDATE ON country FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER shop_touch BEFORE UPDATE ON shop FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER film_touch BEFORE UPDATE ON film FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER film_fulltext BEFORE INSERT OR UPDATE ON film
    FOR EACH ROW EXECUTE FUNCTION index_film();
CREATE TRIGGER customer_touch BEFORE UPDATE ON customer FOR EACH ROW EXECUTE FUNCTION touch();

CREATE VIEW customer_list AS
    SELECT customer_id, first_name || ' ' || last_name AS name, shop_id FROM customer;

-- == rows

INSERT INTO country VALUES (1, 'Norway', '2024-01-01 00:00:00'),
    (2, 'Chile', '2024-01-01 00:00:00'), (3, 'Atlantis', '2024-01-01 00:00:00');
INSERT INTO shop VALUES (1, 1, '7 Quay', 1, '2024-01-01 00:00:00'),
    (2, 2, '9 Plaza', 2, '2024-01-01 00:00:00');
INSERT INTO film (film_id, title, description, release_year, rental_days, rental_rate, length,
    rating, special_features, last_update)
VALUES (1, 'ICE ROAD', 'A slow race', 2006, 3, 2.99, 96, 'PG', '{Trailers}', '2024-01-01'),
    (2, 'SALT MILL', NULL, 2007, 5, 4.99, 120, 'G', NULL, '2024-01-01'),
    (3, 'LOST ISLE', 'A long wait', 2006, 7, 0.99, 75, 'R', '{Commentaries}', '2024-01-01');
INSERT INTO actor VALUES (1, 'LIV', 'STRAND'), (2, 'TOR', 'BERG'), (3, 'ANA', 'RIOS');
INSERT INTO film_actor VALUES (1, 1), (1, 2), (2, 1), (3, 3);
INSERT INTO film_text VALUES (1, 'ICE ROAD', 'A slow race'), (2, 'SALT MILL', NULL),
    (3, 'LOST ISLE', 'A long wait');
INSERT INTO inventory VALUES (1, 1, 1), (2, 1, 2), (3, 2, 1), (4, 3, 2), (5, 3, 2);
INSERT INTO customer VALUES
    (1, 1, 'MARY', 'DALE', 'mary.dale@example.org', true, '2024-01-01 00:00:00'),
    (2, 1, 'JON', 'ELK', 'jon.elk@example.org', true, '2024-01-01 00:00:00'),
    (3, 2, 'EVA', 'FJORD', NULL, false, '2024-01-01 00:00:00');
INSERT INTO rental VALUES (1, '2024-02-01 10:00:00', 1, 1, '2024-02-03 10:00:00'),
    (2, '2024-02-02 11:00:00', 3, 2, NULL), (3, '2024-02-05 12:00:00', 4, 1, NULL);
INSERT INTO payment VALUES (1, 1, 1, 2.99, '2024-02-01 10:00:00'),
    (2, 2, 2, 4.99, '2024-02-02 11:00:00'), (3, 1, 3, 0.99, '2024-02-05 12:00:00'),
    (4, 1, NULL, 1.00, '2024-02-06 09:00:00');
SELECT setval('country_country_id_seq', 3), setval('shop_shop_id_seq', 2),
    setval('film_film_id_seq', 3), setval('actor_actor_id_seq', 3),
    setval('inventory_inventory_id_seq', 5), setval('customer_customer_id_seq', 3),
    setval('rental_rental_id_seq', 3), setval('payment_payment_id_seq', 4);

-- == statements

-- rents a copy
INSERT INTO rental (rented_at, inventory_id, customer_id)
VALUES ('2024-02-10 15:00:00', 2, 2);

-- rents a copy and returns the number of the rental
-- bound: 5, 1
INSERT INTO rental (rented_at, inventory_id, customer_id) VALUES (now(), $1, $2)
RETURNING rental_id;

-- rents a copy only if it is in stock
INSERT INTO rental (rented_at, inventory_id, customer_id)
SELECT '2024-02-10 15:00:00', i.inventory_id, 2 FROM inventory i
WHERE i.inventory_id = 2 AND NOT EXISTS (
    SELECT 1 FROM rental r WHERE r.inventory_id = i.inventory_id AND r.returned_at IS NULL);

-- takes a copy back
UPDATE rental SET returned_at = '2024-02-11 09:00:00' WHERE rental_id = 2;

-- takes back whatever copies a customer has
UPDATE rental SET returned_at = now() WHERE customer_id = 1 AND returned_at IS NULL;

-- locks the open rentals of a customer
SELECT rental_id FROM rental WHERE customer_id = 1 AND returned_at IS NULL FOR UPDATE;

-- locks a free copy of a film in a shop
SELECT i.inventory_id FROM inventory i
WHERE i.film_id = 3 AND i.shop_id = 2 AND NOT EXISTS (
    SELECT 1 FROM rental r WHERE r.inventory_id = i.inventory_id AND r.returned_at IS NULL)
ORDER BY i.inventory_id LIMIT 1 FOR UPDATE;

-- locks copies with their films
SELECT i.inventory_id, f.rental_rate FROM inventory i JOIN film f ON f.film_id = i.film_id
WHERE i.shop_id = 1 FOR UPDATE;

-- books a payment
INSERT INTO payment (customer_id, rental_id, amount, paid_at)
VALUES (2, 2, 4.99, '2024-02-11 09:00:00');

-- books a late fee for every overdue rental
INSERT INTO payment (customer_id, rental_id, amount, paid_at)
SELECT r.customer_id, r.rental_id, f.rental_rate, '2024-02-20 00:00:00'
FROM rental r JOIN inventory i ON i.inventory_id = r.inventory_id
JOIN film f ON f.film_id = i.film_id WHERE r.returned_at IS NULL;

-- corrects a payment
UPDATE payment SET amount = amount - 0.50 WHERE payment_id = 2;

-- removes payments without a rental
DELETE FROM payment WHERE rental_id IS NULL;

-- removes a rental whose payments stay
DELETE FROM rental WHERE rental_id = 3;

-- takes a new customer
INSERT INTO customer (shop_id, first_name, last_name, email)
VALUES (1, 'KIM', 'GRANE', 'kim.grane@example.org');

-- takes a new customer unless the address is known
INSERT INTO customer (shop_id, first_name, last_name, email)
VALUES (1, 'KIM', 'GRANE', 'jon.elk@example.org'), (1, 'LEA', 'HEI', 'lea@example.org')
ON CONFLICT (email) DO NOTHING;

-- moves a customer to another shop
UPDATE customer SET shop_id = 2 WHERE customer_id = 1;

-- stops customers who have not rented since a day
UPDATE customer SET active = false WHERE active = true AND customer_id NOT IN (
    SELECT customer_id FROM rental WHERE rented_at >= '2024-02-03 00:00:00');

-- writes addresses in small letters
UPDATE customer SET email = lower(last_name) || '@example.org' WHERE email IS NULL;

-- removes a customer who never rented
DELETE FROM customer WHERE customer_id = 3;

-- takes a new film
INSERT INTO film (title, description, release_year, rating)
VALUES ('BLUE FELL', 'A mountain', 2023, 'PG-13');

-- takes a new film with its features and returns its number
INSERT INTO film (title, description, special_features)
VALUES ('BLUE FELL', 'A mountain', ARRAY['Trailers', 'Deleted Scenes']) RETURNING film_id;

-- changes the price of a film
UPDATE film SET rental_rate = 1.99 WHERE film_id = 2;

-- changes prices of long films
UPDATE film SET rental_rate = rental_rate + 1, rental_days = rental_days + 1
WHERE length > 90 AND rating IN ('G', 'PG');

-- adds a feature to a film
UPDATE film SET special_features = array_append(special_features, 'Commentaries')
WHERE film_id = 1;

-- takes an actor
INSERT INTO actor (first_name, last_name) VALUES ('NIL', 'HAV');

-- corrects the name of an actor
UPDATE actor SET last_name = 'STRØM' WHERE first_name = 'LIV' AND last_name = 'STRAND';

-- casts an actor for a film
INSERT INTO film_actor (actor_id, film_id) VALUES (3, 1);

-- casts an actor for all films of a year
INSERT INTO film_actor (actor_id, film_id)
SELECT 3, film_id FROM film WHERE release_year = 2006 AND film_id < 3;

-- takes an actor off a film
DELETE FROM film_actor WHERE actor_id = 1 AND film_id = 2;

-- takes actors off a film by their names
DELETE FROM film_actor WHERE film_id = 1 AND actor_id IN (
    SELECT actor_id FROM actor WHERE last_name LIKE 'B%');

-- puts copies into a shop
INSERT INTO inventory (film_id, shop_id) VALUES (2, 2), (2, 2), (1, 2);

-- moves copies between shops
UPDATE inventory SET shop_id = 1 WHERE film_id = 3 AND shop_id = 2;

-- removes copies that were never rented
DELETE FROM inventory WHERE NOT EXISTS (
    SELECT 1 FROM rental r WHERE r.inventory_id = inventory.inventory_id);

-- removes copies of one film that are not rented, and returns them
DELETE FROM inventory WHERE film_id = 1 AND inventory_id NOT IN (SELECT inventory_id FROM rental)
RETURNING inventory_id, shop_id;

-- adds a country
INSERT INTO country (country) VALUES ('Iceland');

-- renames a country
UPDATE country SET country = 'Republic of Chile' WHERE country_id = 2;

-- removes a country without shops
DELETE FROM country WHERE country = 'Atlantis';

-- changes a name through a view
UPDATE customer_list SET shop_id = 2 WHERE customer_id = 2;

-- writes the text for searches of one film
INSERT INTO film_text (film_id, title, description) VALUES (2, 'SALT MILL', 'A trade')
ON CONFLICT (film_id) DO UPDATE SET description = excluded.description;
