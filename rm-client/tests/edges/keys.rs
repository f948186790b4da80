//! Statements that assign columns of the key: to what they hold, to another spelling, to another
//! value.

use std::time::Duration;

use handfast::GlobalStatus;
use sqlx::{MySql, Postgres, Sqlite};

use crate::at::{Stage, TestDatabase, code, on_every_database};

const MEMBER: &[&str] = &[
    "CREATE TABLE member (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(32), age INT, UNIQUE (name))",
    "INSERT INTO member VALUES (1, 'Jack', 20), (2, 'Ann', 30)",
];
const MEMBERS: &[&str] = &["id", "name", "age"];

const LINES: &[&str] = &[
    "CREATE TABLE line (shard BIGINT NOT NULL, no VARCHAR(16) NOT NULL, qty INT, \
     PRIMARY KEY (shard, no))",
    "INSERT INTO line VALUES (7, 'a', 1), (7, 'b', 2), (8, 'a', 3)",
];
const LINE: &[&str] = &["shard", "no", "qty"];

on_every_database!(
    a_key_assigned_to_itself_is_no_change,
    an_upsert_leaves_the_key_that_it_met,
    another_key_is_undone,
    another_spelling_of_a_key_is_undone,
    rows_under_other_keys_are_locked_under_both,
    a_row_changed_under_its_other_key_is_dirty,
    a_key_that_rows_refer_to_stays,
    a_key_is_not_changed_past_an_insert_trigger,
);

async fn a_key_assigned_to_itself_is_no_change<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(MEMBER).await;
    for sql in [
        "UPDATE member SET id = id, age = 1",
        "UPDATE member SET id = member.id, age = age + 1 WHERE age > 20",
        "UPDATE member SET id = (id), age = 7 WHERE id IN (1, 2)",
        "UPDATE member SET id = 1, age = 5 WHERE id = 1",
        "UPDATE member SET id = id + 0, age = 5",
    ] {
        stage.check_undone("member", MEMBERS, &[sql]).await;
    }
    let stage = Stage::<DB>::new(LINES).await;
    for sql in [
        "UPDATE line SET shard = 7, no = 'a', qty = 9 WHERE shard = 7 AND no = 'a'",
        "UPDATE line SET shard = 7, qty = qty + 1 WHERE shard = 7",
    ] {
        stage.check_undone("line", LINE, &[sql]).await;
    }
}

async fn an_upsert_leaves_the_key_that_it_met<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[MEMBER, LINES].concat()).await;
    let insert = "INSERT INTO member VALUES (1, 'Jack', 81), (3, 'Tom', 1)";
    let lines = "INSERT INTO line VALUES (7, 'a', 81), (9, 'n', 82)";
    let [member, line] = match DB::NAME_IN_TESTS {
        "mysql" => [
            [
                "id = id, age = 1",
                "id = `id`, age = VALUES(age)",
                "id = LAST_INSERT_ID(id), age = 2",
            ],
            [
                "shard = VALUES(shard), no = VALUES(no), qty = VALUES(qty)",
                "no = VALUES(no), qty = 5",
                "shard = shard, qty = 5",
            ],
        ]
        .map(|all| all.map(|set| format!("ON DUPLICATE KEY UPDATE {set}"))),
        _ => [
            [
                "(id) DO UPDATE SET id = excluded.id, age = excluded.age",
                "(id) DO UPDATE SET id = member.id, age = excluded.age",
                "(id) DO UPDATE SET (id, age) = (excluded.id, 5)",
            ],
            [
                "(shard, no) DO UPDATE SET (shard, no, qty) = (excluded.shard, excluded.no, 5)",
                "(no, shard) DO UPDATE SET no = excluded.no, qty = 5",
                "(shard, no) DO UPDATE SET shard = line.shard, qty = 5",
            ],
        ]
        .map(|all| all.map(|rest| format!("ON CONFLICT {rest}"))),
    };
    for rest in member {
        stage.check_undone("member", MEMBERS, &[&format!("{insert} {rest}")]).await;
    }
    for rest in line {
        stage.check_undone("line", LINE, &[&format!("{lines} {rest}")]).await;
    }
}

async fn another_key_is_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[MEMBER, LINES].concat()).await;
    let of_one = [
        "UPDATE member SET id = id + 1000 WHERE id = 1",
        "UPDATE member SET age = 5, id = 9 WHERE name = 'Ann'",
        "UPDATE member SET id = 9, name = 'Jill' WHERE id = 1",
    ];
    let of_several =
        ["UPDATE member SET id = id + 1000", "UPDATE member SET id = id + 1000, age = 0"];
    let lines = [
        "UPDATE line SET shard = 9 WHERE shard = 7 AND no = 'b'",
        "UPDATE line SET qty = 0, no = 'zz' WHERE qty = 3",
    ];
    for sql in of_one {
        stage.check_undone("member", MEMBERS, &[sql]).await;
    }
    for sql in lines {
        stage.check_undone("line", LINE, &[sql]).await;
    }
    // A row may take the key that another has left, and be changed further.
    let chain = [
        "UPDATE member SET id = 3 WHERE id = 1",
        "UPDATE member SET id = 1 WHERE id = 2",
        "UPDATE member SET age = 99 WHERE id = 1",
        "DELETE FROM member WHERE id = 3",
    ];
    stage.check_undone("member", MEMBERS, &chain).await;
    if DB::NAME_IN_TESTS != "mysql" {
        for sql in of_several {
            stage.check_undone("member", MEMBERS, &[sql]).await;
        }
        let sql = "UPDATE line SET shard = 9 WHERE shard = 7";
        stage.check_undone("line", LINE, &[sql]).await;
        let sql = "UPDATE member SET id = id + 50 WHERE id IN (SELECT id FROM member)";
        stage.check_undone("member", MEMBERS, &[sql]).await;
        // Rows that take each other's keys go out of the way first.
        let sql = ["UPDATE member SET id = -id", "UPDATE member SET id = 1 - id"];
        stage.check_undone("member", MEMBERS, &sql).await;
    }
}

/// MySQL does not tell which of several rows has got which key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_rows_keep_their_keys_on_mysql() {
    let stage = Stage::<MySql>::new(MEMBER).await;
    let before = stage.dump("member", MEMBERS).await;
    for sql in [
        "UPDATE member SET id = id + 1000",
        "UPDATE member SET id = id + 1 ORDER BY id DESC",
        "UPDATE member SET age = id + 7, id = age WHERE id = 1",
        "UPDATE member SET id = 5 + RAND() WHERE id = 1",
    ] {
        let global = stage.begin().await;
        let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-KEY-CHANGED", "{sql}");
        stage.roll_back(global).await;
        assert_eq!(stage.dump("member", MEMBERS).await, before, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_time_in_a_key_is_undone_on_mysql() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE timer (shard INT, at DATETIME(6), due DATE, span TIME, v INT, \
         PRIMARY KEY (shard, at, due, span))",
        "INSERT INTO timer VALUES (1, '2026-01-02 03:04:05.5', '2026-01-02', '01:00:00', 7), \
         (1, '2026-01-02 00:00:00', '2026-01-02', '-30:00:00', 8)",
    ])
    .await;
    let columns = &["shard", "at", "due", "span", "v"];
    for sql in [
        "UPDATE timer SET at = '2026-03-04 00:00:00' WHERE v = 7",
        "UPDATE timer SET at = at + INTERVAL 1 SECOND, v = 9 WHERE v = 7",
        "UPDATE timer SET due = '2026-12-31', span = '838:59:59', shard = 2 WHERE v = 8",
        // It is stored as another time than the text says.
        "UPDATE timer SET due = '2026-05-06 07:08:09' WHERE v = 8",
    ] {
        stage.check_undone("timer", columns, &[sql]).await;
    }
}

/// MySQL: the row that an upsert meets may have another key than the one offered. That shows when
/// it has run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upsert_that_assigns_a_key_keeps_it_on_mysql() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE account (id CHAR(36) PRIMARY KEY, email VARCHAR(40) UNIQUE, n INT)",
        "INSERT INTO account VALUES ('a', 'ann@x', 1), ('b', 'bob@x', 2)",
    ])
    .await;
    let columns = &["id", "email", "n"];
    for rows in ["('a', 'ann@x', 5)", "('c', 'cid@x', 5)", "('a', 'new@x', 5)", "('A', 'ann@x', 5)"]
    {
        let sql = format!(
            "INSERT INTO account VALUES {rows} ON DUPLICATE KEY UPDATE id = VALUES(id), \
             n = VALUES(n)"
        );
        stage.check_undone("account", columns, &[&sql]).await;
    }
    let before = stage.dump("account", columns).await;
    let global = stage.begin().await;
    let other = "INSERT INTO account VALUES ('z', 'ann@x', 5) \
                 ON DUPLICATE KEY UPDATE id = VALUES(id), n = 5";
    let refused = stage.try_branch(&global, &[other]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-KEY-CHANGED");
    stage.roll_back(global).await;
    assert_eq!(stage.dump("account", columns).await, before);
}

/// The undo was an UPDATE of the other columns, and the key would have kept its other spelling.
async fn another_spelling_of_a_key_is_undone<DB: TestDatabase>() {
    let (key, old, new) = match DB::NAME_IN_TESTS {
        "postgres" => ("NUMERIC", "1.0", "1.00"),
        "mysql" => ("VARCHAR(9)", "'a'", "'A'"),
        _ => ("TEXT COLLATE NOCASE", "'a'", "'A'"),
    };
    let stage = Stage::<DB>::new(&[
        &format!("CREATE TABLE tag (k {key} NOT NULL PRIMARY KEY, v INT)"),
        &format!("INSERT INTO tag VALUES ({old}, 1)"),
    ])
    .await;
    let columns = ["k", "v"];
    stage.check_undone("tag", &columns, &[&format!("UPDATE tag SET k = {new}, v = 2")]).await;
    stage.check_undone("tag", &columns, &[&format!("UPDATE tag SET k = {new}")]).await;
    let rest = match DB::NAME_IN_TESTS {
        "mysql" => "ON DUPLICATE KEY UPDATE k = VALUES(k), v = 3",
        _ => "ON CONFLICT (k) DO UPDATE SET k = excluded.k, v = 3",
    };
    let upsert = format!("INSERT INTO tag VALUES ({new}, 2) {rest}");
    stage.check_undone("tag", &columns, &[&upsert]).await;
}

/// SQLite finds a conflict by an index that holds more values for equal than the key does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_without_case_does_not_keep_the_key() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE tag (k TEXT NOT NULL PRIMARY KEY, v INT)",
        "CREATE UNIQUE INDEX caseless ON tag (k COLLATE NOCASE)",
        "INSERT INTO tag VALUES ('a', 1)",
    ])
    .await;
    let upsert = "INSERT INTO tag VALUES ('A', 2) ON CONFLICT (k) DO UPDATE SET k = excluded.k";
    let global = stage.begin().await;
    let refused = stage.try_branch(&global, &[upsert]).await.unwrap_err();
    stage.roll_back(global).await;
    assert_eq!(code(&refused), "HF-AT-KEY-CHANGED");
}

async fn rows_under_other_keys_are_locked_under_both<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(MEMBER).await;
    let impatient = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::from_millis(1));
    let impatient = impatient.await.unwrap();
    let holder = stage.begin().await;
    stage.branch(&holder, &["UPDATE member SET id = 9 WHERE id = 1"]).await;
    for sql in ["UPDATE member SET age = 7 WHERE id = 9", "INSERT INTO member VALUES (1, 'x', 2)"] {
        let other = stage.begin().await;
        let error = other.scope(DB::run_alone(&impatient, sql)).await.unwrap_err();
        assert_eq!(code(&error), "HF-TC-ROW-LOCKED", "{sql}");
        stage.roll_back(other).await;
    }
    stage.roll_back(holder).await;
}

async fn a_row_changed_under_its_other_key_is_dirty<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(MEMBER).await;
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE member SET id = 9 WHERE id = 1"]).await;
    DB::raw(&stage.pool, "UPDATE member SET age = 77 WHERE id = 9").await.unwrap();
    let left = stage.dump("member", MEMBERS).await;
    let xid = global.xid().clone();
    // It returns an error, since it needs an operator.
    let _ = global.rollback("test").await;
    stage.await_status(&xid, |status| matches!(status, GlobalStatus::NeedsOperator(_))).await;
    assert_eq!(stage.dump("member", MEMBERS).await, left);
}

async fn a_key_that_rows_refer_to_stays<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(
        &[
            MEMBER,
            &["CREATE TABLE pet (id BIGINT PRIMARY KEY, owner BIGINT, \
               FOREIGN KEY (owner) REFERENCES member (id))"],
        ]
        .concat(),
    )
    .await;
    let before = stage.dump("member", MEMBERS).await;
    let global = stage.begin().await;
    let sql = "UPDATE member SET id = 9 WHERE id = 1";
    let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-KEY-CHANGED");
    stage.roll_back(global).await;
    assert_eq!(stage.dump("member", MEMBERS).await, before);
    let sql = "UPDATE member SET id = 1, age = 7 WHERE id = 1";
    stage.check_undone("member", MEMBERS, &[sql]).await;
    // As the refusal advises.
    let advised = ["INSERT INTO member VALUES (9, 'new', 20)", "DELETE FROM member WHERE id = 1"];
    stage.check_undone("member", MEMBERS, &advised).await;
}

async fn a_key_is_not_changed_past_an_insert_trigger<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(MEMBER).await;
    let (row, statement) = ("AFTER INSERT ON member", "DELETE FROM member WHERE id < 0");
    let setup = match DB::NAME_IN_TESTS {
        "postgres" => vec![
            format!(
                "CREATE FUNCTION hear() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN {statement}; RETURN NULL; END $$"
            ),
            format!("CREATE TRIGGER hears {row} FOR EACH ROW EXECUTE FUNCTION hear()"),
        ],
        "mysql" => vec![format!("CREATE TRIGGER hears {row} FOR EACH ROW SET @heard = 1")],
        _ => vec![format!("CREATE TRIGGER hears {row} BEGIN {statement}; END")],
    };
    for sql in setup {
        DB::raw(&stage.pool, &sql).await.unwrap();
    }
    let global = stage.begin().await;
    let sql = "UPDATE member SET id = 9 WHERE id = 1";
    let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-TRIGGER");
    stage.roll_back(global).await;
    let sql = "UPDATE member SET id = 1, age = 7 WHERE id = 1";
    stage.check_undone("member", MEMBERS, &[sql]).await;
}

/// The driver reports the number of the row that was met.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_insert_id_tells_the_row_that_was_met() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE word (id BIGINT AUTO_INCREMENT PRIMARY KEY, w VARCHAR(9) UNIQUE, n INT)",
        "INSERT INTO word VALUES (41, 'met', 1), (-5, 'below', 1)",
    ])
    .await;
    let columns = ["id", "w", "n"];
    let before = stage.dump("word", &columns).await;
    let sql = "INSERT INTO word (w, n) VALUES (?, 1) \
               ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id), n = n + 1";
    let global = stage.begin().await;
    let branch = async {
        let mut local = stage.resource.begin().await?;
        for word in ["met", "new", "met", "new"] {
            let done = sqlx::query(sql).bind(word).execute(&mut local).await?;
            let id = sqlx::query_scalar("SELECT CAST(id AS UNSIGNED) FROM word WHERE w = ?");
            let id: u64 = id.bind(word).fetch_one(&mut local).await?;
            assert_eq!(done.last_insert_id(), id, "{word}");
        }
        let update = "UPDATE word SET id = LAST_INSERT_ID(id), n = 9 WHERE w = 'met'";
        let done = sqlx::query(update).execute(&mut local).await?;
        assert_eq!(done.last_insert_id(), 41);
        local.commit().await
    };
    global.scope(branch).await.unwrap();
    stage.roll_back(global).await;
    assert_eq!(stage.dump("word", &columns).await, before);
    // The function makes a huge number of a negative one.
    let global = stage.begin().await;
    let lenient = "INSERT INTO word (w, n) VALUES ('below', 1) \
                   ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id)";
    let written = stage.try_branch(&global, &[lenient]).await;
    stage.roll_back(global).await;
    assert_eq!(stage.dump("word", &columns).await, before);
    assert!(written.is_err(), "it is out of range, or changes the key");
}

/// Two rows may have one key until COMMIT, so that a key names no row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deferrable_key_is_not_changed() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE place (id INT PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v INT)",
        "INSERT INTO place VALUES (1, 1), (2, 2)",
    ])
    .await;
    let global = stage.begin().await;
    let sql = "UPDATE place SET id = 9 WHERE id = 1";
    let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-KEY-CHANGED");
    stage.roll_back(global).await;
    // Rows that change places leave no key and take none.
    for sql in ["UPDATE place SET id = id, v = 5", "UPDATE place SET id = 3 - id"] {
        stage.check_undone("place", &["id", "v"], &[sql]).await;
    }
}

/// Diesel assigns every column of an upsert, the key with the values that the row offered has:
/// those of the row met, or others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upsert_may_assign_the_key() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE pair (a INT, b INT, n INT UNIQUE, PRIMARY KEY (a, b))",
        "INSERT INTO pair VALUES (1, 2, 3), (4, 5, 6)",
    ])
    .await;
    let columns = &["a", "b", "n"];
    for sql in [
        "INSERT INTO pair VALUES (1, 2, 9) ON CONFLICT (a, b) DO UPDATE SET a = 1, b = 2, n = 9",
        "INSERT INTO pair VALUES (7, 2, 9) ON CONFLICT (a, b) DO UPDATE SET a = 1, b = 2, n = 9",
        "INSERT INTO pair VALUES (7, 8, 6) ON CONFLICT (n) DO UPDATE SET a = 4, b = 5, n = 9",
    ] {
        stage.check_undone("pair", columns, &[sql]).await;
    }
    // Each of these rows gets another key.
    for sql in [
        "INSERT INTO pair VALUES (1, 2, 9) ON CONFLICT (a, b) DO UPDATE SET b = 3",
        "INSERT INTO pair VALUES (7, 8, 6) ON CONFLICT (n) DO UPDATE SET a = excluded.a",
        "INSERT INTO pair VALUES (4, 5, 3), (8, 8, 8), (9, 9, 6) \
         ON CONFLICT (n) DO UPDATE SET a = pair.a + 30, b = pair.b + 3, n = pair.n + 10",
        "INSERT INTO pair SELECT b, a, n FROM pair \
         ON CONFLICT (n) DO UPDATE SET a = excluded.a, b = excluded.b WHERE pair.a = 1",
    ] {
        stage.check_undone("pair", columns, &[sql]).await;
    }
    let global = stage.begin().await;
    let moved = "INSERT INTO pair VALUES (7, 8, 6) ON CONFLICT (n) DO UPDATE SET a = excluded.a";
    stage.branch(&global, &[moved]).await;
    let pool = Postgres::again(&stage.pool).await;
    let other = stage.handfast.at(pool).lock_timeout(Duration::from_millis(1)).await.unwrap();
    // Both keys are locked.
    for sql in ["INSERT INTO pair VALUES (4, 5, 60)", "UPDATE pair SET n = 61 WHERE a = 7"] {
        let waiting = stage.begin().await;
        let locked = waiting.scope(Postgres::run_alone(&other, sql)).await.unwrap_err();
        assert_eq!(code(&locked), "HF-TC-ROW-LOCKED", "{sql}");
        stage.roll_back(waiting).await;
    }
    stage.roll_back(global).await;
    // Rows that refer to the row would keep the undo from deleting it.
    let before = stage.dump("pair", columns).await;
    let child = "CREATE TABLE child (n INT REFERENCES pair (n))";
    Postgres::raw(&stage.pool, child).await.unwrap();
    let again = stage.handfast.at(stage.pool.clone()).await.unwrap();
    let global = stage.begin().await;
    let refused = global.scope(Postgres::run_alone(&again, moved)).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-KEY-CHANGED");
    stage.roll_back(global).await;
    assert_eq!(stage.dump("pair", columns).await, before);
}
