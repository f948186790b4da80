-- A chain of shops that rents films: films with actors and categories, inventory, customers, staff,
-- rentals and payments. Its tables keep the time of their last change by triggers, or on MariaDB by
-- the column itself. No trigger is trusted.

-- == schema

CREATE TABLE country (
    country_id bigint AUTO_INCREMENT PRIMARY KEY,
    country varchar(50) NOT NULL,
    last_update timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP
);

CREATE TABLE shop (
    shop_id bigint AUTO_INCREMENT PRIMARY KEY,
    manager_staff_id integer,
    street varchar(50) NOT NULL,
    country_id bigint NOT NULL,
    last_update timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
    FOREIGN KEY (country_id) REFERENCES country (country_id) ON UPDATE CASCADE ON DELETE RESTRICT
);

CREATE TABLE film (
    film_id bigint AUTO_INCREMENT PRIMARY KEY,
    title varchar(120) NOT NULL,
    description text,
    release_year integer,
    rental_days integer NOT NULL DEFAULT 3,
    rental_rate decimal(4, 2) NOT NULL DEFAULT 4.99,
    length integer,
    rating enum('G', 'PG', 'PG-13', 'R', 'NC-17') DEFAULT 'G',
    special_features set('Trailers', 'Commentaries', 'Deleted Scenes'),
    last_update timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP
);

CREATE TABLE actor (
    actor_id bigint AUTO_INCREMENT PRIMARY KEY,
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
    inventory_id bigint AUTO_INCREMENT PRIMARY KEY,
    film_id bigint NOT NULL REFERENCES film (film_id) ON UPDATE CASCADE ON DELETE RESTRICT,
    shop_id bigint NOT NULL REFERENCES shop (shop_id) ON UPDATE CASCADE ON DELETE RESTRICT
);

CREATE TABLE customer (
    customer_id bigint AUTO_INCREMENT PRIMARY KEY,
    shop_id bigint NOT NULL REFERENCES shop (shop_id) ON UPDATE CASCADE ON DELETE RESTRICT,
    first_name varchar(45) NOT NULL,
    last_name varchar(45) NOT NULL,
    email varchar(50) UNIQUE,
    active tinyint(1) NOT NULL DEFAULT 1,
    last_update timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP
);

CREATE TABLE rental (
    rental_id bigint AUTO_INCREMENT PRIMARY KEY,
    rented_at datetime(6) NOT NULL,
    inventory_id bigint NOT NULL REFERENCES inventory (inventory_id) ON DELETE RESTRICT,
    customer_id bigint NOT NULL REFERENCES customer (customer_id) ON DELETE RESTRICT,
    returned_at datetime(6),
    UNIQUE (rented_at, inventory_id, customer_id)
);

CREATE TABLE payment (
    payment_id bigint AUTO_INCREMENT PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customer (customer_id) ON DELETE RESTRICT,
    rental_id bigint REFERENCES rental (rental_id) ON UPDATE CASCADE ON DELETE SET NULL,
    amount decimal(5, 2) NOT NULL,
    paid_at datetime(6) NOT NULL
);

CREATE TRIGGER film_copies AFTER INSERT ON film FOR EACH ROW
    INSERT INTO film_text VALUES (NEW.film_id, NEW.title, NEW.description);
CREATE TRIGGER film_copies_again AFTER UPDATE ON film FOR EACH ROW
    UPDATE film_text SET title = NEW.title, description = NEW.description
    WHERE film_id = NEW.film_id;
CREATE TRIGGER rental_dates BEFORE INSERT ON rental FOR EACH ROW
    SET NEW.rented_at = IFNULL(NEW.rented_at, NOW());

-- == rows

INSERT INTO country VALUES (1, 'Norway', '2024-01-01 00:00:00'),
    (2, 'Chile', '2024-01-01 00:00:00'), (3, 'Atlantis', '2024-01-01 00:00:00');
INSERT INTO shop VALUES (1, 1, '7 Quay', 1, '2024-01-01 00:00:00'),
    (2, 2, '9 Plaza', 2, '2024-01-01 00:00:00');
INSERT INTO film (film_id, title, description, release_year, rental_days, rental_rate, length,
    rating, special_features, last_update)
VALUES (1, 'ICE ROAD', 'A slow race', 2006, 3, 2.99, 96, 'PG', 'Trailers', '2024-01-01'),
    (2, 'SALT MILL', NULL, 2007, 5, 4.99, 120, 'G', NULL, '2024-01-01'),
    (3, 'LOST ISLE', 'A long wait', 2006, 7, 0.99, 75, 'R', 'Commentaries', '2024-01-01');
INSERT INTO actor VALUES (1, 'LIV', 'STRAND'), (2, 'TOR', 'BERG'), (3, 'ANA', 'RIOS');
INSERT INTO film_actor VALUES (1, 1), (1, 2), (2, 1), (3, 3);
INSERT INTO inventory VALUES (1, 1, 1), (2, 1, 2), (3, 2, 1), (4, 3, 2), (5, 3, 2);
INSERT INTO customer VALUES
    (1, 1, 'MARY', 'DALE', 'mary.dale@example.org', 1, '2024-01-01 00:00:00'),
    (2, 1, 'JON', 'ELK', 'jon.elk@example.org', 1, '2024-01-01 00:00:00'),
    (3, 2, 'EVA', 'FJORD', NULL, 0, '2024-01-01 00:00:00');
INSERT INTO rental VALUES (1, '2024-02-01 10:00:00', 1, 1, '2024-02-03 10:00:00'),
    (2, '2024-02-02 11:00:00', 3, 2, NULL), (3, '2024-02-05 12:00:00', 4, 1, NULL);
INSERT INTO payment VALUES (1, 1, 1, 2.99, '2024-02-01 10:00:00'),
    (2, 2, 2, 4.99, '2024-02-02 11:00:00'), (3, 1, 3, 0.99, '2024-02-05 12:00:00'),
    (4, 1, NULL, 1.00, '2024-02-06 09:00:00');

-- == statements

-- rents a copy
INSERT INTO rental (rented_at, inventory_id, customer_id)
VALUES ('2024-02-10 15:00:00', 2, 2);

-- rents a copy only if it is in stock
INSERT INTO rental (rented_at, inventory_id, customer_id)
SELECT '2024-02-10 15:00:00', i.inventory_id, 2 FROM inventory i
WHERE i.inventory_id = 2 AND NOT EXISTS (
    SELECT 1 FROM rental r WHERE r.inventory_id = i.inventory_id AND r.returned_at IS NULL);

-- instead: locks the copy, looks for a rental, and writes the values
SELECT inventory_id FROM inventory WHERE inventory_id = 5 FOR UPDATE;
SELECT rental_id FROM rental WHERE inventory_id = 5 AND returned_at IS NULL FOR UPDATE;
INSERT INTO payment (customer_id, rental_id, amount, paid_at)
VALUES (2, 2, 0.99, '2024-02-10 15:00:00');

-- takes a copy back
UPDATE rental SET returned_at = '2024-02-11 09:00:00' WHERE rental_id = 2;

-- takes back whatever copies a customer has
UPDATE rental SET returned_at = NOW(6) WHERE customer_id = 1 AND returned_at IS NULL;

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

-- instead: reads the overdue rentals and books each
SELECT r.customer_id, r.rental_id, f.rental_rate
FROM rental r JOIN inventory i ON i.inventory_id = r.inventory_id
JOIN film f ON f.film_id = i.film_id WHERE r.returned_at IS NULL;
INSERT INTO payment (customer_id, rental_id, amount, paid_at)
VALUES (2, 2, 4.99, '2024-02-20 00:00:00'), (1, 3, 0.99, '2024-02-20 00:00:00');

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
INSERT IGNORE INTO customer (shop_id, first_name, last_name, email)
VALUES (1, 'KIM', 'GRANE', 'jon.elk@example.org'), (1, 'LEA', 'HEI', 'lea@example.org');

-- moves a customer to another shop
UPDATE customer SET shop_id = 2 WHERE customer_id = 1;

-- stops customers who have not rented since a day
UPDATE customer SET active = 0 WHERE active = 1 AND customer_id NOT IN (
    SELECT customer_id FROM rental WHERE rented_at >= '2024-02-03 00:00:00');

-- writes addresses in small letters
UPDATE customer SET email = CONCAT(LOWER(last_name), '@example.org') WHERE email IS NULL;

-- removes a customer who never rented
DELETE FROM customer WHERE customer_id = 3;

-- takes a new film
INSERT INTO film (title, description, release_year, rating)
VALUES ('BLUE FELL', 'A mountain', 2023, 'PG-13');

-- changes the price of a film
UPDATE film SET rental_rate = 1.99 WHERE film_id = 2;

-- changes prices of long films
UPDATE film SET rental_rate = rental_rate + 1, rental_days = rental_days + 1
WHERE length > 90 AND rating IN ('G', 'PG');

-- adds a feature to a film
UPDATE film SET special_features = CONCAT_WS(',', special_features, 'Commentaries')
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

-- instead: names the films
INSERT INTO film_actor (actor_id, film_id) VALUES (3, 1);

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

-- adds a country
INSERT INTO country (country) VALUES ('Iceland');

-- renames a country
UPDATE country SET country = 'Republic of Chile' WHERE country_id = 2;

-- removes a country without shops
DELETE FROM country WHERE country = 'Atlantis';

-- removes copies of a film with the rentals that have been returned
DELETE r FROM rental r JOIN inventory i ON i.inventory_id = r.inventory_id
WHERE i.film_id = 1 AND r.returned_at IS NOT NULL;

-- writes the text for searches of one film
REPLACE INTO film_text (film_id, title, description) VALUES (2, 'SALT MILL', 'A trade');
