//! INSERT of the rows of a query, which MySQL and MariaDB do not tell, and upserts of them on
//! SQLite and PostgreSQL.

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, MySql, Postgres, Sqlite};

use crate::at::{Stage, TestDatabase, code};

const TABLES: &[&str] = &[
    "CREATE TABLE item (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, \
     name VARCHAR(20) NOT NULL UNIQUE, price DECIMAL(10, 2), made DATETIME(6), seen TIMESTAMP NULL, \
     kind ENUM('a', 'b'), weight FLOAT, note BLOB, flag TINYINT(1))",
    "CREATE TABLE archive (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, name VARCHAR(20), \
     price DECIMAL(10, 2), made DATETIME(6), seen TIMESTAMP NULL, kind ENUM('b', 'a'), \
     weight FLOAT, note BLOB, flag TINYINT(1))",
    "CREATE TABLE line (doc INT NOT NULL, number INT NOT NULL, amount INT, PRIMARY KEY (doc, number))",
    "INSERT INTO item VALUES \
     (18446744073709551000, 'one', 1.50, '2026-01-02 03:04:05.678901', '2026-10-25 00:30:00', 'a', \
      0.1, x'00FF', 1), \
     (2, 'two', NULL, '0001-01-01 00:00:00', NULL, 'b', NULL, '', 0), \
     (3, 'three', -2, NULL, NULL, NULL, 1e30, NULL, -1)",
    "INSERT INTO line VALUES (1, 1, 10), (1, 2, 20), (2, 1, 5)",
];
const LINE: &[&str] = &["doc", "number", "amount"];
const ARCHIVE: &[&str] =
    &["id", "name", "price", "made", "seen", "kind", "weight", "HEX(note)", "flag"];

async fn stage() -> Stage<MySql> {
    Stage::<MySql>::new(TABLES).await
}

/// Runs a statement in a branch, compares its rows with those of plain SQL, and rolls back.
async fn like_plain(stage: &Stage<MySql>, table: &str, columns: &[&str], sql: &str) {
    let before = stage.dump(table, columns).await;
    let mut plain = stage.pool.begin().await.unwrap();
    let counted = sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&mut *plain).await.unwrap();
    let list: Vec<String> = columns.iter().map(|name| format!("CAST({name} AS CHAR)")).collect();
    let read = format!("SELECT CONCAT_WS('|', {}) FROM {table} ORDER BY 1", list.join(", "));
    let rows = |sql: String| sqlx::query_scalar::<_, String>(AssertSqlSafe(sql));
    let expected = rows(read.clone()).fetch_all(&mut *plain).await.unwrap();
    plain.rollback().await.unwrap();

    let global = stage.begin().await;
    let ours = global.scope(MySql::run_alone(&stage.resource, sql)).await;
    assert_eq!(ours.unwrap_or_else(|error| panic!("{sql}: {error}")), counted.rows_affected());
    assert_eq!(rows(read).fetch_all(&stage.pool).await.unwrap(), expected, "{sql}");
    stage.roll_back(global).await;
    assert_eq!(stage.dump(table, columns).await, before, "{sql} is undone");
    assert_eq!(stage.undo_rows().await, 0);
}

/// The driver calls a text binary if its collation compares bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_that_compare_by_bytes_are_inserted_in_their_character_set() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE word (id INT PRIMARY KEY, \
         l VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_bin, \
         m TEXT CHARACTER SET latin1 COLLATE latin1_bin, u CHAR(3) COLLATE utf8mb4_bin, \
         b VARBINARY(9))",
        "INSERT INTO word VALUES (1, 'Ä', 'ÄÖ', 'Ä', x'C4FF')",
    ])
    .await;
    let columns = &["id", "HEX(l)", "HEX(m)", "HEX(u)", "HEX(b)"];
    like_plain(&stage, "word", columns, "INSERT INTO word SELECT id + 1, l, m, u, b FROM word")
        .await;
}

/// A session without strict mode leaves an empty geometry, which no session can write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_geometries_are_refused() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE plot (id INT PRIMARY KEY, area POLYGON NOT NULL)",
        "INSERT IGNORE INTO plot (id) VALUES (1)",
        "INSERT INTO plot VALUES (2, ST_GeomFromText('POLYGON((0 0, 1 0, 1 1, 0 0))'))",
    ])
    .await;
    let global = stage.begin().await;
    let copy = "INSERT INTO plot SELECT id + 5, area FROM plot";
    let refused = stage.try_branch(&global, &[copy]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-INSERT-SELECT");
    assert!(refused.to_string().contains("empty geometry"), "{refused}");
    stage.roll_back(global).await;
    let copy = format!("{copy} WHERE id = 2");
    like_plain(&stage, "plot", &["id", "HEX(area)"], &copy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selected_rows_are_inserted_and_undone() {
    let stage = stage().await;
    for sql in [
        "INSERT INTO archive SELECT * FROM item WHERE flag >= 0",
        "INSERT INTO archive (id, price, name) SELECT i.id + 1, i.price * 2, CONCAT(i.name, l.doc) \
         FROM item i JOIN line l ON l.number = i.id WHERE i.id < 100",
        "INSERT INTO archive (id, kind, made) SELECT COUNT(*), MAX(kind), '2026-01-01' FROM item",
        "INSERT INTO archive (id) WITH w AS (SELECT id FROM item ORDER BY id LIMIT 2) SELECT id FROM w",
        "REPLACE INTO archive (id, name) SELECT id, name FROM item FOR UPDATE",
        "INSERT INTO archive (id) SELECT id FROM item WHERE id < 0",
    ] {
        like_plain(&stage, "archive", ARCHIVE, sql).await;
    }
    for sql in [
        "INSERT INTO line (doc, number, amount) SELECT 3, number + 10, -amount FROM line WHERE doc = 1",
        "INSERT INTO line SELECT 1, MAX(number) + 1, 0 FROM line WHERE doc = 1",
        "INSERT INTO line (doc, number) SELECT 2, number FROM line WHERE doc = 1 \
         ON DUPLICATE KEY UPDATE amount = VALUES(number) + 100",
        "INSERT IGNORE INTO line (doc, number, amount) SELECT 2, number, 7 FROM line WHERE doc = 1",
    ] {
        like_plain(&stage, "line", LINE, sql).await;
    }
    // Generated keys, and the arguments of the query.
    let global = stage.begin().await;
    let inserted = global
        .scope(async {
            let mut local = stage.resource.begin().await?;
            let sql = "INSERT INTO item (name, price) \
                       SELECT CONCAT(?, number), amount FROM line WHERE doc = ? ORDER BY number";
            let inserted = sqlx::query(sql).bind("new").bind(1).execute(&mut local).await?;
            local.commit().await?;
            Ok::<_, sqlx::Error>(inserted)
        })
        .await
        .unwrap();
    assert_eq!(inserted.rows_affected(), 2);
    let first = inserted.last_insert_id();
    let named = format!(
        "SELECT GROUP_CONCAT(name ORDER BY id) FROM item WHERE id IN ({first}, {first} + 1)"
    );
    assert_eq!(stage.value(&named).await.as_deref(), Some("new1,new2"));
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT COUNT(*) FROM item").await.as_deref(), Some("3"));
}

/// A query whose rows the values would not repeat exactly is refused, and nothing is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_values_do_not_repeat_are_refused() {
    let stage = stage().await;
    let global = stage.begin().await;
    for sql in [
        "INSERT INTO line (doc, number) SELECT 8, 1 FROM item UNION SELECT 8, 2",
        "INSERT INTO line (doc, number, amount) SELECT 8, id, kind FROM item WHERE id < 3",
        "INSERT INTO archive (id, name) SELECT id, weight FROM item",
        "INSERT INTO archive (id, flag) SELECT id, flag FROM item WHERE flag < 0",
        "INSERT INTO line (doc, number) SELECT 1, i.id FROM item i WHERE i.id < 3 \
         ON DUPLICATE KEY UPDATE amount = i.price",
    ] {
        let error = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&error), "HF-AT-INSERT-SELECT", "{sql}: {error}");
    }
    let many = "INSERT INTO line SELECT 9, a.seq, b.seq FROM seq_1_to_300 a, seq_1_to_100 b";
    let error = stage.try_branch(&global, &[many]).await.unwrap_err();
    assert_eq!(code(&error), "HF-AT-TOO-MANY-ROWS");
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT COUNT(*) FROM line").await.as_deref(), Some("3"));
}

/// An hour of the night comes twice where clocks are put back: as text it is one of both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instants_are_copied_under_one_offset_only() {
    let stage = stage().await;
    let copy = "INSERT INTO archive (id, seen) SELECT id, seen FROM item WHERE seen IS NOT NULL";
    like_plain(&stage, "archive", ARCHIVE, copy).await;
    let options = MySqlConnectOptions::clone(&stage.pool.connect_options()).timezone(None);
    let pool = sqlx::mysql::MySqlPoolOptions::new().connect_with(options).await.unwrap();
    let elsewhere = stage.handfast.at(pool).await.unwrap();
    let global = stage.begin().await;
    let error = global.scope(MySql::run_alone(&elsewhere, copy)).await.unwrap_err();
    assert_eq!(code(&error), "HF-AT-INSERT-SELECT", "{error}");
    stage.roll_back(global).await;
}

const TOTALS: &[&str] = &[
    "CREATE TABLE account (id INTEGER PRIMARY KEY, owner TEXT, cents, conflict INT)",
    "CREATE TABLE total (owner TEXT PRIMARY KEY, cents REAL, n INT NOT NULL DEFAULT 1, note BLOB)",
    "INSERT INTO account VALUES (1, 'a', 5, 1), (2, 'a', 2.5, 2), (3, 'b', '7', 3), (4, 'c', x'00ff', 4)",
    "INSERT INTO total VALUES ('a', 1, 9, NULL), ('z', 0, 1, 'n')",
];
const TOTAL: &[&str] = &["owner", "quote(cents)", "n", "quote(note)"];

/// The tables that the statement leaves, and its answer, are those of plain SQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upserts_of_selected_rows_are_undone() {
    let stage = Stage::<Sqlite>::new(TOTALS).await;
    let twin = Stage::<Sqlite>::new(TOTALS).await;
    let before = stage.dump("total", TOTAL).await;
    for sql in [
        "INSERT INTO total (owner, cents) SELECT owner, SUM(cents) FROM account WHERE true \
         GROUP BY owner ON CONFLICT (owner) DO UPDATE SET cents = excluded.cents, n = n + 1",
        "INSERT INTO total (owner, cents, note) WITH w AS (SELECT * FROM account) \
         SELECT w.owner, w.id, o.cents FROM w JOIN account o ON o.id = w.conflict \
         WHERE w.id <> 2 ON CONFLICT DO UPDATE SET note = excluded.note WHERE n > 1",
        "REPLACE INTO total (owner, cents) SELECT o.owner, o.cents FROM account o \
         JOIN (SELECT id AS other FROM account) ON conflict = other WHERE o.id > 1 ORDER BY o.id",
        "INSERT OR REPLACE INTO total SELECT owner, cents, id, cents FROM account WHERE id > 2",
        "INSERT INTO total (owner) SELECT 'none' FROM account WHERE id > 9 \
         ON CONFLICT (owner) DO UPDATE SET n = 0",
    ] {
        let plain = sqlx::query(AssertSqlSafe(sql)).execute(&twin.pool).await.unwrap();
        let global = stage.begin().await;
        let ours = global.scope(Sqlite::run_alone(&stage.resource, sql)).await;
        assert_eq!(ours.unwrap_or_else(|error| panic!("{sql}: {error}")), plain.rows_affected());
        let rows = stage.dump("total", TOTAL).await;
        assert_eq!(rows, twin.dump("total", TOTAL).await, "{sql}");
        stage.roll_back(global).await;
        assert_eq!(stage.dump("total", TOTAL).await, before, "{sql} is undone");
        for text in ["DELETE FROM total", TOTALS[3]] {
            Sqlite::raw(&twin.pool, text).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upserts_of_selected_rows_on_sqlite_that_stay_refused() {
    let stage = Stage::<Sqlite>::new(TOTALS).await;
    let before = stage.dump("total", TOTAL).await;
    for sql in [
        "INSERT INTO total (owner) SELECT owner FROM account WHERE true \
         ON CONFLICT DO UPDATE SET n = 0 RETURNING owner",
        "WITH w AS (SELECT owner FROM account) INSERT INTO total (owner) SELECT owner FROM w \
         WHERE true ON CONFLICT DO UPDATE SET n = 0",
        "REPLACE INTO total (owner) SELECT owner FROM account UNION SELECT 'y'",
    ] {
        let global = stage.begin().await;
        let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-INSERT-SELECT", "{sql}");
        stage.roll_back(global).await;
    }
    assert_eq!(stage.dump("total", TOTAL).await, before);
}

const MEMBERS: &[&str] = &[
    "CREATE TABLE member (id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, \
     email VARCHAR(40) COLLATE \"POSIX\" NOT NULL, n INT, price NUMERIC(8, 2))",
    "CREATE UNIQUE INDEX by_email ON member (lower(email), (n / 10))",
    "CREATE TABLE seat (doc INT, number INT, amount INT, PRIMARY KEY (doc, number))",
    "INSERT INTO member (email, n, price) VALUES ('Ann@a', 1, 1.5), ('bob@b', 2, NULL)",
    "CREATE TABLE other (name TEXT COLLATE \"C\")",
    "INSERT INTO other VALUES ('ann@A')",
    "INSERT INTO seat VALUES (1, 1, 10), (1, 2, 20), (2, 1, 5)",
];
const MEMBER: &[&str] = &["id", "email", "n", "price"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upserts_of_selected_rows_are_undone_on_postgres() {
    let stage = Stage::<Postgres>::new(MEMBERS).await;
    for sql in [
        "INSERT INTO seat SELECT 2, number, amount * 2 FROM seat WHERE doc = 1 \
         ON CONFLICT (doc, number) DO UPDATE SET amount = excluded.amount + seat.amount",
        "WITH w AS (SELECT 1 AS doc, max(number) AS number FROM seat) \
         INSERT INTO seat AS s (number, doc) SELECT number + i, doc FROM w, generate_series(0, 1) i \
         ON CONFLICT ON CONSTRAINT seat_pkey DO UPDATE SET amount = -1 WHERE s.amount > 0 \
         RETURNING doc",
    ] {
        stage.check_undone("seat", &["doc", "number", "amount"], &[sql]).await;
    }
    for sql in [
        "INSERT INTO member (email, n) VALUES ('ANN@A', 9), ('new@n', 3) \
         ON CONFLICT (lower(email), (n / 10)) DO UPDATE SET email = excluded.email",
        "INSERT INTO member (price, n, email) SELECT price, n, upper(email) FROM member \
         ON CONFLICT (lower(email), (n / 10)) DO UPDATE SET price = 7 RETURNING id",
        "INSERT INTO member (n, email) SELECT 1, name COLLATE \"C\" FROM other \
         ON CONFLICT (lower(email), (n / 10)) DO UPDATE SET price = 8",
    ] {
        stage.check_undone("member", MEMBER, &[sql]).await;
    }
    // The same arguments for the read and for the upsert.
    let global = stage.begin().await;
    let changed = global
        .scope(async {
            let mut local = stage.resource.begin().await?;
            let sql = "INSERT INTO member (email, n) SELECT $1, $2 WHERE $3 \
                       ON CONFLICT (lower(email), (n / 10)) DO UPDATE SET price = $4";
            let query = sqlx::query(sql).bind("BOB@b").bind(0_i32).bind(true);
            let changed = query.bind(3_i32).execute(&mut local).await?;
            local.commit().await?;
            Ok::<_, sqlx::Error>(changed.rows_affected())
        })
        .await
        .unwrap();
    assert_eq!(changed, 1);
    assert_eq!(stage.value("SELECT price FROM member WHERE id = 2").await.as_deref(), Some("3.00"));
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT count(price) FROM member").await.as_deref(), Some("1"));
}

/// The query runs twice, so one that gives other rows then, or does more than read, is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_chooses_by_chance_is_refused() {
    let stage = Stage::<Postgres>::new(MEMBERS).await;
    let rest = "ON CONFLICT (doc, number) DO UPDATE SET amount = 0";
    for source in [
        "INSERT INTO seat SELECT 1, nextval('turn') FROM seat",
        "INSERT INTO seat SELECT pop, 0 FROM pop()",
        "WITH w AS (SELECT pop() AS n FROM seat) INSERT INTO seat SELECT n, n FROM w",
        "INSERT INTO seat SELECT doc, number FROM seat LIMIT 1",
        "INSERT INTO seat SELECT 1, 1 FROM (SELECT random()) r",
    ] {
        let global = stage.begin().await;
        let refused = stage.try_branch(&global, &[&format!("{source} {rest}")]).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-UPSERT", "{source}");
        stage.roll_back(global).await;
    }
}

/// As a row does that another transaction has put in the way after the read: the row met has other
/// values than those offered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_was_not_read_is_noticed() {
    let stage = Stage::<Postgres>::new(MEMBERS).await;
    for sql in [
        "CREATE FUNCTION next() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN NEW.number = 2; RETURN NEW; END $$",
        "CREATE TRIGGER nexts BEFORE INSERT ON seat FOR EACH ROW EXECUTE FUNCTION next()",
    ] {
        Postgres::raw(&stage.pool, sql).await.unwrap();
    }
    let trusted = stage.handfast.at(stage.pool.clone()).trust_trigger("nexts").await.unwrap();
    let before = stage.dump("seat", &["doc", "number", "amount"]).await;
    for assigned in ["amount = 0", "doc = 9"] {
        let sql = format!(
            "INSERT INTO seat SELECT doc, 1 FROM seat WHERE number = 2 \
             ON CONFLICT (doc, number) DO UPDATE SET {assigned}"
        );
        let global = stage.begin().await;
        let refused = global.scope(Postgres::run_alone(&trusted, &sql)).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-ROWS-DIFFER", "{assigned}");
        stage.roll_back(global).await;
    }
    assert_eq!(stage.dump("seat", &["doc", "number", "amount"]).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_by_what_is_not_given_is_refused() {
    let stage = Stage::<Postgres>::new(MEMBERS).await;
    for sql in [
        "INSERT INTO member (email) SELECT 'x' FROM seat \
         ON CONFLICT (lower(email), (n / 10)) DO UPDATE SET price = 7",
        "INSERT INTO member (email, n) VALUES ('x', 1) ON CONFLICT (id) DO UPDATE SET price = 7",
    ] {
        let global = stage.begin().await;
        let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-KEY-UNKNOWN", "{sql}");
        stage.roll_back(global).await;
    }
}
