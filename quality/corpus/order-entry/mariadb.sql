-- An order entry desk of a wholesaler: warehouses, districts, customers, orders and their lines,
-- in the manner of benchmarks for transaction processing.

-- == schema

CREATE TABLE warehouse (
    w_no integer PRIMARY KEY,
    title varchar(20) NOT NULL,
    tax decimal(4, 4) NOT NULL,
    year_to_date decimal(12, 2) NOT NULL
);

CREATE TABLE district (
    w_no integer NOT NULL REFERENCES warehouse (w_no),
    d_no integer NOT NULL,
    title varchar(20) NOT NULL,
    tax decimal(4, 4) NOT NULL,
    year_to_date decimal(12, 2) NOT NULL,
    next_order integer NOT NULL,
    PRIMARY KEY (w_no, d_no)
);

CREATE TABLE client (
    w_no integer NOT NULL,
    d_no integer NOT NULL,
    c_no integer NOT NULL,
    first_name varchar(20) NOT NULL,
    last_name varchar(20) NOT NULL,
    credit char(2) NOT NULL,
    balance decimal(12, 2) NOT NULL,
    paid decimal(12, 2) NOT NULL,
    payments integer NOT NULL,
    deliveries integer NOT NULL,
    notes varchar(500) NOT NULL,
    PRIMARY KEY (w_no, d_no, c_no),
    FOREIGN KEY (w_no, d_no) REFERENCES district (w_no, d_no)
);

CREATE INDEX client_name ON client (w_no, d_no, last_name, first_name);

CREATE TABLE payment_history (
    w_no integer NOT NULL,
    d_no integer NOT NULL,
    c_no integer NOT NULL,
    paid_at datetime(6) NOT NULL,
    amount decimal(8, 2) NOT NULL,
    note varchar(40)
);

CREATE TABLE payment_journal (
    p_no bigint AUTO_INCREMENT PRIMARY KEY,
    w_no integer NOT NULL,
    d_no integer NOT NULL,
    c_no integer NOT NULL,
    paid_at datetime(6) NOT NULL,
    amount decimal(8, 2) NOT NULL,
    note varchar(40)
);

CREATE TABLE article (
    a_no integer PRIMARY KEY,
    title varchar(30) NOT NULL,
    price decimal(6, 2) NOT NULL,
    picture integer
);

CREATE TABLE stock (
    w_no integer NOT NULL REFERENCES warehouse (w_no),
    a_no integer NOT NULL REFERENCES article (a_no),
    quantity integer NOT NULL,
    year_to_date integer NOT NULL,
    orders integer NOT NULL,
    remote_orders integer NOT NULL,
    PRIMARY KEY (w_no, a_no)
);

CREATE TABLE sales_order (
    w_no integer NOT NULL,
    d_no integer NOT NULL,
    o_no integer NOT NULL,
    c_no integer NOT NULL,
    entered_at datetime(6) NOT NULL,
    carrier integer,
    line_count integer NOT NULL,
    all_local integer NOT NULL,
    PRIMARY KEY (w_no, d_no, o_no),
    UNIQUE (w_no, d_no, c_no, o_no)
);

CREATE TABLE open_order (
    w_no integer NOT NULL,
    d_no integer NOT NULL,
    o_no integer NOT NULL,
    PRIMARY KEY (w_no, d_no, o_no),
    FOREIGN KEY (w_no, d_no, o_no) REFERENCES sales_order (w_no, d_no, o_no)
);

CREATE TABLE order_line (
    w_no integer NOT NULL,
    d_no integer NOT NULL,
    o_no integer NOT NULL,
    l_no integer NOT NULL,
    a_no integer NOT NULL,
    supply_w_no integer NOT NULL,
    delivered_at datetime(6),
    quantity integer NOT NULL,
    amount decimal(8, 2) NOT NULL,
    PRIMARY KEY (w_no, d_no, o_no, l_no),
    FOREIGN KEY (w_no, d_no, o_no) REFERENCES sales_order (w_no, d_no, o_no)
);

CREATE TABLE line_staging (
    o_no integer NOT NULL,
    l_no integer NOT NULL,
    a_no integer NOT NULL,
    quantity integer NOT NULL,
    PRIMARY KEY (o_no, l_no)
);

-- == rows

INSERT INTO warehouse VALUES (1, 'North', 0.0750, 1000.00), (2, 'South', 0.0500, 800.00);
INSERT INTO district VALUES (1, 1, 'Harbour', 0.0100, 600.00, 104),
    (1, 2, 'Hill', 0.0200, 400.00, 52), (2, 1, 'Plain', 0.0150, 800.00, 12);
INSERT INTO client VALUES (1, 1, 1, 'Ada', 'BARBAROUGHT', 'GC', -10.00, 10.00, 1, 0, ''),
    (1, 1, 2, 'Ben', 'BARBAROUGHT', 'BC', -20.50, 20.50, 2, 1, 'late payer'),
    (1, 2, 1, 'Cleo', 'OUGHTABLE', 'GC', 0.00, 0.00, 0, 0, ''),
    (2, 1, 1, 'Dan', 'PRESESE', 'GC', 130.00, 5.00, 1, 3, '');
INSERT INTO payment_history VALUES (1, 1, 1, '2024-03-01 09:00:00', 10.00, 'North Harbour'),
    (1, 1, 2, '2024-03-02 09:30:00', 20.50, 'North Harbour');
INSERT INTO article VALUES (1, 'bolt M8', 0.12, 7), (2, 'nut M8', 0.08, NULL),
    (3, 'saw', 24.90, 9), (4, 'hammer', 18.00, NULL);
INSERT INTO stock VALUES (1, 1, 400, 90, 9, 0), (1, 2, 12, 30, 3, 1), (1, 3, 8, 2, 2, 0),
    (2, 1, 55, 10, 1, 1), (2, 3, 0, 4, 4, 2);
INSERT INTO sales_order VALUES (1, 1, 101, 1, '2024-03-01 10:00:00', 5, 2, 1),
    (1, 1, 102, 2, '2024-03-02 11:00:00', NULL, 2, 1),
    (1, 1, 103, 1, '2024-03-03 12:00:00', NULL, 1, 0),
    (2, 1, 11, 1, '2024-03-03 13:00:00', NULL, 1, 1);
INSERT INTO open_order VALUES (1, 1, 102), (1, 1, 103), (2, 1, 11);
INSERT INTO order_line VALUES (1, 1, 101, 1, 1, 1, '2024-03-01 18:00:00', 10, 1.20),
    (1, 1, 101, 2, 3, 1, '2024-03-01 18:00:00', 1, 24.90),
    (1, 1, 102, 1, 2, 1, NULL, 5, 0.40), (1, 1, 102, 2, 1, 1, NULL, 20, 2.40),
    (1, 1, 103, 1, 3, 2, NULL, 2, 49.80), (2, 1, 11, 1, 1, 2, NULL, 3, 0.36);
INSERT INTO line_staging VALUES (104, 1, 1, 10), (104, 2, 4, 1);

-- == statements

-- new order: locks the district and reads its next number
SELECT tax, next_order FROM district WHERE w_no = 1 AND d_no = 1 FOR UPDATE;

-- new order: takes the next number
UPDATE district SET next_order = next_order + 1 WHERE w_no = 1 AND d_no = 1;

-- new order: takes the next number through the connection's last number
UPDATE district SET next_order = LAST_INSERT_ID(next_order) + 1 WHERE w_no = 1 AND d_no = 1;

-- new order: writes the head
-- bound: 1, 1, 104, 2, '2024-03-04 08:00:00', 2, 1
INSERT INTO sales_order (w_no, d_no, o_no, c_no, entered_at, line_count, all_local)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- new order: puts it in the queue of open orders, where it is already
-- changes nothing
INSERT INTO open_order (w_no, d_no, o_no) VALUES (2, 1, 11)
ON DUPLICATE KEY UPDATE o_no = o_no;

-- new order: locks the stock of one article
SELECT quantity, year_to_date, orders, remote_orders FROM stock
WHERE w_no = 1 AND a_no = 3 FOR UPDATE;

-- new order: locks the stock of all its articles in the order of their numbers
SELECT a_no, quantity FROM stock WHERE w_no = 1 AND a_no IN (3, 1, 2) ORDER BY a_no FOR UPDATE;

-- new order: takes from the stock and refills it below ten
UPDATE stock
SET quantity = CASE WHEN quantity - 5 >= 10 THEN quantity - 5 ELSE quantity - 5 + 91 END,
    year_to_date = year_to_date + 5, orders = orders + 1
WHERE w_no = 1 AND a_no = 2;

-- new order: takes from another warehouse
-- bound: 2, 2, 1, 2
UPDATE stock SET quantity = quantity - ?, year_to_date = year_to_date + ?,
    orders = orders + 1, remote_orders = remote_orders + 1
WHERE a_no = ? AND w_no = ?;

-- new order: writes one line
INSERT INTO order_line (w_no, d_no, o_no, l_no, a_no, supply_w_no, quantity, amount)
VALUES (1, 1, 103, 2, 4, 1, 2, 36.00);

-- new order: writes several lines at once
INSERT INTO order_line (w_no, d_no, o_no, l_no, a_no, supply_w_no, quantity, amount)
VALUES (1, 1, 103, 2, 1, 1, 10, 1.20), (1, 1, 103, 3, 2, 1, 10, 0.80),
    (1, 1, 103, 4, 3, 2, 1, 24.90);

-- new order: writes lines with prices from the list of articles
INSERT INTO order_line (w_no, d_no, o_no, l_no, a_no, supply_w_no, quantity, amount)
SELECT 1, 1, 103, s.l_no + 1, s.a_no, 1, s.quantity, s.quantity * a.price
FROM line_staging s JOIN article a ON a.a_no = s.a_no WHERE s.o_no = 104;

-- instead: reads the lines first and writes them as values
SELECT s.l_no, s.a_no, s.quantity, s.quantity * a.price AS amount
FROM line_staging s JOIN article a ON a.a_no = s.a_no WHERE s.o_no = 104;
INSERT INTO order_line (w_no, d_no, o_no, l_no, a_no, supply_w_no, quantity, amount)
VALUES (1, 1, 103, 2, 1, 1, 10, 1.20), (1, 1, 103, 3, 4, 1, 1, 18.00);

-- new order: takes all staged quantities from the stock
UPDATE stock JOIN line_staging s ON s.a_no = stock.a_no
SET stock.quantity = stock.quantity - s.quantity WHERE stock.w_no = 1 AND s.o_no = 104;

-- payment: adds to the warehouse
UPDATE warehouse SET year_to_date = year_to_date + 42.50 WHERE w_no = 1;

-- payment: adds to the district
-- bound: '42.50', 1, 2
UPDATE district SET year_to_date = year_to_date + ? WHERE w_no = ? AND d_no = ?;

-- payment: locks clients of one name
SELECT c_no, first_name, balance FROM client
WHERE w_no = 1 AND d_no = 1 AND last_name = 'BARBAROUGHT' ORDER BY first_name FOR UPDATE;

-- payment: books it for a client with good credit
UPDATE client SET balance = balance - 42.50, paid = paid + 42.50, payments = payments + 1
WHERE w_no = 1 AND d_no = 1 AND c_no = 1;

-- payment: books it for a client with bad credit and keeps a note
UPDATE client SET balance = balance - 7.00, paid = paid + 7.00, payments = payments + 1,
    notes = LEFT(CONCAT('2 1 1 7.00 | ', notes), 500)
WHERE w_no = 1 AND d_no = 1 AND c_no = 2;

-- payment: books it for the client in the middle of those of one name
UPDATE client SET balance = balance - 1.00
WHERE w_no = 1 AND d_no = 1 AND c_no = (SELECT MIN(p.c_no) FROM (
    SELECT c_no FROM client WHERE w_no = 1 AND d_no = 1 AND last_name = 'BARBAROUGHT') AS p);

-- payment: writes the history, which has no key
INSERT INTO payment_history (w_no, d_no, c_no, paid_at, amount, note)
VALUES (1, 1, 1, '2024-03-04 10:00:00', 42.50, 'North Harbour');

-- instead: writes a history whose rows are numbered
INSERT INTO payment_journal (w_no, d_no, c_no, paid_at, amount, note)
VALUES (1, 1, 1, '2024-03-04 10:00:00', 42.50, 'North Harbour');

-- delivery: locks the oldest open order of a district
SELECT o_no FROM open_order WHERE w_no = 1 AND d_no = 1 ORDER BY o_no LIMIT 1 FOR UPDATE;

-- delivery: locks an open order that no other carrier has
SELECT o_no FROM open_order WHERE w_no = 1 AND d_no = 1
ORDER BY o_no LIMIT 1 FOR UPDATE SKIP LOCKED;

-- delivery: reads the lowest number under a lock
SELECT MIN(o_no) FROM open_order WHERE w_no = 1 AND d_no = 1 FOR UPDATE;

-- delivery: takes it off the queue
DELETE FROM open_order WHERE w_no = 1 AND d_no = 1 AND o_no = 102;

-- delivery: takes the oldest off the queue in one statement
DELETE FROM open_order WHERE w_no = 1 AND d_no = 1 ORDER BY o_no LIMIT 1;

-- delivery: names the carrier
UPDATE sales_order SET carrier = 7 WHERE w_no = 1 AND d_no = 1 AND o_no = 102;

-- delivery: dates the lines
UPDATE order_line SET delivered_at = NOW(6) WHERE w_no = 1 AND d_no = 1 AND o_no = 102;

-- delivery: adds the sum of the lines to the client's balance
UPDATE client SET deliveries = deliveries + 1, balance = balance + (
    SELECT SUM(amount) FROM order_line l WHERE l.w_no = 1 AND l.d_no = 1 AND l.o_no = 102)
WHERE w_no = 1 AND d_no = 1 AND c_no = 2;

-- delivery: adds the sums of all open orders to the balances of their clients
UPDATE client JOIN (SELECT o.w_no, o.d_no, o.c_no, SUM(l.amount) AS total
    FROM open_order q JOIN sales_order o USING (w_no, d_no, o_no)
    JOIN order_line l USING (w_no, d_no, o_no)
    GROUP BY o.w_no, o.d_no, o.c_no) AS due
ON due.w_no = client.w_no AND due.d_no = client.d_no AND due.c_no = client.c_no
SET client.balance = client.balance + due.total;

-- back office: raises prices of articles without a picture
UPDATE article SET price = ROUND(price * 1.05, 2) WHERE picture IS NULL;

-- back office: loads an article or its changed price
INSERT INTO article (a_no, title, price) VALUES (3, 'saw', 26.00), (5, 'file', 6.40)
ON DUPLICATE KEY UPDATE title = VALUES(title), price = VALUES(price);

-- back office: adds a delivery to the stock, or a first one
INSERT INTO stock (w_no, a_no, quantity, year_to_date, orders, remote_orders)
VALUES (2, 4, 25, 0, 0, 0)
ON DUPLICATE KEY UPDATE quantity = quantity + VALUES(quantity);

-- back office: gives every warehouse a stock of a new article
INSERT INTO stock (w_no, a_no, quantity, year_to_date, orders, remote_orders)
SELECT w_no, 4, 0, 0, 0, 0 FROM warehouse;

-- instead: names the warehouses
INSERT INTO stock (w_no, a_no, quantity, year_to_date, orders, remote_orders)
VALUES (1, 4, 0, 0, 0, 0), (2, 4, 0, 0, 0, 0);

-- back office: cancels an order with its lines, lines first
DELETE FROM order_line WHERE w_no = 1 AND d_no = 1 AND o_no = 103;

-- back office: cancels the lines of open orders of a client
DELETE l FROM order_line l JOIN sales_order o USING (w_no, d_no, o_no)
WHERE o.w_no = 1 AND o.d_no = 1 AND o.c_no = 2;

-- back office: writes off what no order wants
UPDATE stock SET quantity = 0 WHERE orders > 0 AND quantity < 10 AND NOT EXISTS (
    SELECT 1 FROM order_line l WHERE l.a_no = stock.a_no AND l.w_no = 2);

-- back office: removes old history by its date
DELETE FROM payment_history WHERE paid_at < '2024-03-02 00:00:00';

-- back office: empties the staging table
DELETE FROM line_staging;

-- back office: empties the staging table for the night
TRUNCATE TABLE line_staging;
