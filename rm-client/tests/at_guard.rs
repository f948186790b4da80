//! Guarded tables: the database refuses writes from outside to rows of an undecided global, and
//! nothing else.

#![expect(
    clippy::unwrap_used,
    reason = "in a test a panic is the report, also in shared functions"
)]

mod at;

use at::{Stage, TestDatabase, read_committed};
use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::guarded::{self, GuardMode, GuardStart};
use handfast::{Counter, Global, GlobalStatus, Handfast, Xid};
use handfast_core::{
    BranchState, Command, Coordinator, LockFilter, OperatorAction, PageBounds, Resolution,
};
use handfast_test_services::until;
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, MySql, MySqlConnection, Pool, Postgres};

const STOCK: &[&str] = &[
    "CREATE TABLE stock (id BIGINT NOT NULL PRIMARY KEY, units INT NOT NULL)",
    "INSERT INTO stock VALUES (1, 10), (2, 10), (3, 10)",
];

/// A database whose tables can be guarded.
trait GuardDatabase: TestDatabase {
    /// Makes a database on a server whose sessions begin at READ COMMITTED.
    fn guardable() -> BoxFuture<'static, Pool<Self>>;
    /// Opens a connection of its own at an isolation level, runs one statement, and returns what
    /// the database says.
    fn outside(
        pool: &Pool<Self>,
        level: &'static str,
        sql: String,
    ) -> BoxFuture<'static, Result<u64, sqlx::Error>>;
    /// Counts the sessions that wait for a row of this database.
    fn waiting(pool: &Pool<Self>) -> BoxFuture<'_, u64>;
}

impl GuardDatabase for Postgres {
    fn guardable() -> BoxFuture<'static, Pool<Self>> {
        async { Self::create().await.0 }.boxed()
    }

    fn outside(
        pool: &Pool<Self>,
        level: &'static str,
        sql: String,
    ) -> BoxFuture<'static, Result<u64, sqlx::Error>> {
        let options = pool.connect_options();
        async move {
            let mut connection = sqlx::PgConnection::connect_with(&options).await?;
            connection.execute(AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}"))).await?;
            let changed = connection.execute(AssertSqlSafe(sql)).await?.rows_affected();
            connection.execute("COMMIT").await?;
            Ok(changed)
        }
        .boxed()
    }

    fn waiting(pool: &Pool<Self>) -> BoxFuture<'_, u64> {
        async {
            let query = "SELECT count(*)::text FROM pg_stat_activity \
                         WHERE datname = current_database() AND wait_event_type = 'Lock'";
            Self::raw_rows(pool, query).await.unwrap().remove(0).remove(0).unwrap().parse().unwrap()
        }
        .boxed()
    }
}

impl GuardDatabase for MySql {
    fn guardable() -> BoxFuture<'static, Pool<Self>> {
        read_committed::database().boxed()
    }

    fn outside(
        pool: &Pool<Self>,
        level: &'static str,
        sql: String,
    ) -> BoxFuture<'static, Result<u64, sqlx::Error>> {
        let options = pool.connect_options();
        async move {
            let mut connection = MySqlConnection::connect_with(&options).await?;
            let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
            connection.execute(AssertSqlSafe(set)).await?;
            Ok(connection.execute(AssertSqlSafe(sql)).await?.rows_affected())
        }
        .boxed()
    }

    fn waiting(pool: &Pool<Self>) -> BoxFuture<'_, u64> {
        async {
            // `innodb_trx` is not brought up to date while it is asked every few milliseconds.
            let query = "SELECT CAST(COUNT(*) AS CHAR) FROM information_schema.processlist \
                         WHERE db = DATABASE() AND command IN ('Query', 'Execute') AND time_ms > 300";
            Self::raw_rows(pool, query).await.unwrap().remove(0).remove(0).unwrap().parse().unwrap()
        }
        .boxed()
    }
}

macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod postgres { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name::<sqlx::Postgres>().await })* }
        mod mysql { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name::<sqlx::MySql>().await })* }
    };
}

on_both!(
    writes_from_outside_are_refused,
    keys_that_come_and_go_are_guarded,
    a_writer_that_waits_sees_the_guard,
    an_insert_that_waits_sees_the_guard,
    keys_of_several_columns_and_of_texts,
    a_watched_table_tells_who_wrote,
    rows_that_an_operator_leaves_are_free,
    a_guard_waits_until_all_know_of_it,
    a_guard_that_is_taken_away_refuses_nothing,
    what_an_ended_branch_leaves_refuses_nothing,
    a_mark_ends_with_its_local_transaction,
    a_savepoint_takes_the_mark_back,
    checked_transactions_wait_for_the_holder,
    without_compound_statements,
    unsuitable_tables,
);

async fn stage<DB: GuardDatabase>(setup: &[&str]) -> Stage<DB> {
    Stage::on((DB::guardable().await, None), setup).await
}

/// A stage whose table `stock` is guarded.
async fn guarded<DB: GuardDatabase>(mode: GuardMode) -> Stage<DB> {
    let stage = stage::<DB>(STOCK).await;
    guarded::enable(&stage.pool, "stock", mode, GuardStart::AtOnce).await.unwrap();
    stage
}

/// Requires that a write is refused, by the guard and in favour of this global.
async fn refused<DB: GuardDatabase>(stage: &Stage<DB>, xid: &Xid, sql: &str) {
    let error = DB::raw(&stage.pool, sql).await.expect_err(sql).to_string();
    assert!(error.contains("HF-GUARD-ROW") && error.contains(xid.as_str()), "{sql}: {error}");
    assert!(error.contains("handfast tx show") || error.contains("is undecided"), "{error}");
}

async fn passes<DB: GuardDatabase>(stage: &Stage<DB>, sql: &str) {
    DB::raw(&stage.pool, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Waits until nothing is kept of any branch.
async fn nothing_is_kept<DB: GuardDatabase>(stage: &Stage<DB>) {
    until("guarded rows and notes are gone", async || {
        let count = "SELECT (SELECT COUNT(*) FROM guarded_row) \
                     + (SELECT COUNT(*) FROM guarded_note)";
        stage.value(count).await.as_deref() == Some("0")
    })
    .await;
}

async fn writes_from_outside_are_refused<DB: GuardDatabase>() {
    let stage = guarded::<DB>(GuardMode::Refuse).await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    stage.branch(&global, &["UPDATE stock SET units = 7 WHERE id = 1"]).await;
    refused(&stage, &xid, "UPDATE stock SET units = units - 4 WHERE id = 1").await;
    refused(&stage, &xid, "UPDATE stock SET units = units - 4").await;
    refused(&stage, &xid, "UPDATE stock SET id = 5 WHERE id = 1").await;
    refused(&stage, &xid, "DELETE FROM stock WHERE id = 1").await;
    // Work outside of any global is outside of this one, whatever it goes through.
    let error = DB::run_alone(&stage.resource, "DELETE FROM stock WHERE id = 1").await;
    assert!(error.unwrap_err().to_string().contains("HF-GUARD-ROW"));
    passes(&stage, "UPDATE stock SET units = units - 4 WHERE id = 2").await;
    // Another branch of the same global, also from another process.
    stage.branch(&global, &["UPDATE stock SET units = 6 WHERE id = 1"]).await;
    stage.commit(global).await;
    passes(&stage, "UPDATE stock SET units = units - 1 WHERE id = 1").await;

    let global = stage.begin().await;
    let xid = global.xid().clone();
    // Both branches wrote the row. While the first is undone, the second one's guard is there.
    stage.branch(&global, &["UPDATE stock SET units = 1 WHERE id = 1"]).await;
    stage.branch(&global, &["UPDATE stock SET units = 2 WHERE id = 1"]).await;
    refused(&stage, &xid, "UPDATE stock SET units = 0 WHERE id = 1").await;
    stage.roll_back(global).await;
    passes(&stage, "UPDATE stock SET units = units WHERE id = 1").await;
    let expected = [("1", "5"), ("2", "6"), ("3", "10")]
        .map(|(id, units)| vec![Some(id.to_owned()), Some(units.to_owned())]);
    assert_eq!(stage.dump("stock", &["id", "units"]).await, expected);
    nothing_is_kept(&stage).await;
}

async fn keys_that_come_and_go_are_guarded<DB: GuardDatabase>() {
    let stage = guarded::<DB>(GuardMode::Refuse).await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    let statements = [
        "DELETE FROM stock WHERE id = 1",
        "INSERT INTO stock VALUES (9, 1)",
        "UPDATE stock SET id = 8 WHERE id = 2",
    ];
    stage.branch(&global, &statements).await;
    refused(&stage, &xid, "INSERT INTO stock VALUES (1, 99)").await;
    refused(&stage, &xid, "INSERT INTO stock VALUES (77, 1), (2, 99)").await;
    refused(&stage, &xid, "UPDATE stock SET id = 1 WHERE id = 3").await;
    refused(&stage, &xid, "UPDATE stock SET units = 0 WHERE id = 8").await;
    refused(&stage, &xid, "DELETE FROM stock WHERE id = 9").await;
    passes(&stage, "INSERT INTO stock VALUES (10, 1)").await;
    stage.roll_back(global).await;
    passes(&stage, "DELETE FROM stock WHERE id IN (1, 2)").await;
    passes(&stage, "INSERT INTO stock VALUES (8, 1), (9, 1)").await;
    nothing_is_kept(&stage).await;
}

/// Runs a write from outside that has to wait for an open branch, then commits the branch.
async fn wait_behind<DB: GuardDatabase>(
    stage: &Stage<DB>,
    ours: &str,
    level: &'static str,
    theirs: &str,
) -> (Global, sqlx::Error) {
    let global = stage.begin().await;
    let scope = global.xid().clone();
    let written = scope
        .scope(async {
            let mut local = stage.resource.begin().await.unwrap();
            DB::run(&mut local, ours).await.unwrap();
            let outside = tokio::spawn(DB::outside(&stage.pool, level, theirs.to_owned()));
            until("the writer waits", async || {
                DB::waiting(&stage.pool).await > 0 || outside.is_finished()
            })
            .await;
            assert!(!outside.is_finished(), "{level}: {theirs} does not wait");
            local.commit().await.unwrap();
            outside.await.unwrap()
        })
        .await;
    let error = written.map(|rows| panic!("{level}: {theirs} changed {rows} rows"));
    (global, error.unwrap_err())
}

/// The first row of the writer is free, so that it has looked for a guard before it waits: InnoDB
/// keeps the snapshot of that moment for the whole statement, in which the branch is not there.
async fn a_writer_that_waits_sees_the_guard<DB: GuardDatabase>() {
    let stage = guarded::<DB>(GuardMode::Refuse).await;
    let ours = "UPDATE stock SET units = 7 WHERE id = 2";
    for theirs in [
        "UPDATE stock SET units = units - 4 WHERE id IN (1, 2)",
        "UPDATE stock SET units = units - 4 WHERE id = 2",
        "DELETE FROM stock WHERE id = 2",
    ] {
        for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            let (global, error) = wait_behind(&stage, ours, level, theirs).await;
            let text = error.to_string();
            let guarded = text.contains("HF-GUARD-ROW") && text.contains(global.xid().as_str());
            // PostgreSQL itself refuses a row that is newer than the snapshot.
            let newer = text.contains("could not serialize access");
            assert!(guarded || newer && level != "READ COMMITTED", "{level}, {theirs}: {text}");
            stage.roll_back(global).await;
        }
    }
    let units = stage.value("SELECT SUM(units) FROM stock").await;
    assert_eq!(units.as_deref(), Some("30"), "no write from outside has been carried out");
}

async fn an_insert_that_waits_sees_the_guard<DB: GuardDatabase>() {
    let stage = guarded::<DB>(GuardMode::Refuse).await;
    let ours = "DELETE FROM stock WHERE id = 2";
    let theirs = "INSERT INTO stock VALUES (50, 1), (2, 99)";
    let (global, error) = wait_behind(&stage, ours, "READ COMMITTED", theirs).await;
    assert!(error.to_string().contains("HF-GUARD-ROW"), "{error}");
    stage.roll_back(global).await;
    let units = stage.value("SELECT SUM(units) FROM stock").await;
    assert_eq!(units.as_deref(), Some("30"));
}

async fn keys_of_several_columns_and_of_texts<DB: GuardDatabase>() {
    let (collation, other_case) = match DB::NAME_IN_TESTS {
        "mysql" => ("COLLATE utf8mb4_general_ci", "äB "),
        _ => ("", "ÄB"),
    };
    let create = format!(
        "CREATE TABLE place (shelf VARCHAR(20) {collation} NOT NULL, slot INT NOT NULL, n INT, \
         PRIMARY KEY (shelf, slot))"
    );
    let rows = "INSERT INTO place VALUES ('ÄB', 1, 1), ('ÄB1', 1, 1), ('c', 11, 1), ('c', 1, 1)";
    let stage = stage::<DB>(&[&create, rows]).await;
    guarded::enable(&stage.pool, "place", GuardMode::Refuse, GuardStart::AtOnce).await.unwrap();
    let global = stage.begin().await;
    let xid = global.xid().clone();
    let ours = [
        "DELETE FROM place WHERE shelf = 'ÄB' AND slot = 1",
        "UPDATE place SET n = 2 WHERE shelf = 'c' AND slot = 11",
    ];
    stage.branch(&global, &ours).await;
    refused(&stage, &xid, &format!("INSERT INTO place VALUES ('{other_case}', 1, 9)")).await;
    refused(&stage, &xid, "UPDATE place SET n = 9 WHERE shelf = 'c' AND slot = 11").await;
    refused(&stage, &xid, "UPDATE place SET shelf = 'ÄB' WHERE shelf = 'ÄB1'").await;
    passes(&stage, "UPDATE place SET n = 9 WHERE shelf = 'ÄB1' AND slot = 1").await;
    passes(&stage, "UPDATE place SET n = 9 WHERE shelf = 'c' AND slot = 1").await;
    stage.roll_back(global).await;
    passes(&stage, "UPDATE place SET n = 9 WHERE shelf = 'ÄB'").await;
}

/// Rolls a global back and returns why its only branch needs an operator.
async fn refusal<DB: GuardDatabase>(stage: &Stage<DB>, global: Global) -> String {
    let xid = global.xid().clone();
    // The rollback returns an error, since it needs an operator. That is expected here.
    let _ = global.rollback("test").await;
    stage.await_status(&xid, |status| matches!(status, GlobalStatus::NeedsOperator(_))).await;
    let number = handfast_core::Xid(number(&xid));
    let view = stage.tc.engine().view(move |coordinator| coordinator.global(number)).await.unwrap();
    let branch = view.unwrap().branches.remove(0);
    let BranchState::Refused(error, _) = branch.state else { unreachable!("{branch:?}") };
    error.to_string()
}

fn number(xid: &Xid) -> u64 {
    xid.as_str().rsplit_once(':').unwrap().1.parse().unwrap()
}

async fn a_watched_table_tells_who_wrote<DB: GuardDatabase>() {
    let stage = guarded::<DB>(GuardMode::Watch).await;
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE stock SET units = 7 WHERE id = 1"]).await;
    for _ in 0..30 {
        passes(&stage, "UPDATE stock SET units = units - 1 WHERE id = 1").await;
    }
    let notes = stage.value("SELECT COUNT(*) FROM guarded_note").await;
    assert_eq!(notes.as_deref(), Some("20"), "notes are bounded");
    let text = refusal(&stage, global).await;
    assert!(text.starts_with("dirty write"), "{text}");
    assert!(text.contains("the guard has seen UPDATE of"), "{text}");
    assert!(text.contains("stock 1 by handfast") && text.contains("from 127.0.0.1 at"), "{text}");
    assert!(text.ends_with("and 17 more"), "{text}");
}

async fn rows_that_an_operator_leaves_are_free<DB: GuardDatabase>() {
    for resolution in [Resolution::AcceptCurrent, Resolution::RestoreClean] {
        let stage = guarded::<DB>(GuardMode::Watch).await;
        let global = stage.begin().await;
        let xid = global.xid().clone();
        stage.branch(&global, &["UPDATE stock SET units = 7 WHERE id = 1"]).await;
        passes(&stage, "UPDATE stock SET units = 3 WHERE id = 1").await;
        let refused_for = refusal(&stage, global).await;
        assert!(refused_for.contains("the guard has seen"), "{refused_for}");
        let number = handfast_core::Xid(number(&xid));
        let view = stage.tc.engine().view(move |coordinator| coordinator.global(number)).await;
        let branch = view.unwrap().unwrap().branches.remove(0).id;
        let action = OperatorAction::Resolve { branch, resolution };
        let command = Command::Operate { xid: number, action, operator: "tester".into() };
        stage.tc.engine().call(command).await.unwrap();
        stage.await_status(&xid, |status| matches!(status, GlobalStatus::RolledBack(_))).await;
        nothing_is_kept(&stage).await;
    }
}

/// A process that described the table before the guard was there does not mark its branches. Its
/// writes are refused no more than before, until it must have read the description again.
async fn a_guard_waits_until_all_know_of_it<DB: GuardDatabase>() {
    let stage = stage::<DB>(STOCK).await;
    let old = stage.begin().await;
    stage.branch(&old, &["UPDATE stock SET units = 9 WHERE id = 3"]).await;
    let enabled = guarded::enable(&stage.pool, "stock", GuardMode::Refuse, GuardStart::WhenKnown);
    assert!(!enabled.await.unwrap().in_force);
    // Another process, which describes the table now.
    let handfast = Handfast::connect(stage.tc.endpoint()).application("late").await.unwrap();
    let late = handfast.at(DB::again(&stage.pool).await).await.unwrap();
    let update = "UPDATE stock SET units = units - 1 WHERE id = 1";
    old.xid().scope(async { DB::run_alone(&late, update).await }).await.unwrap();
    assert_eq!(stage.value("SELECT COUNT(*) FROM guarded_row").await.as_deref(), Some("1"));
    stage.branch(&old, &["UPDATE stock SET units = units - 1 WHERE id = 1"]).await;
    passes(&stage, "UPDATE stock SET units = units WHERE id = 1").await;
    // In force too early, it would take that process for a writer from outside.
    guarded::enable(&stage.pool, "stock", GuardMode::Refuse, GuardStart::AtOnce).await.unwrap();
    let early = stage.try_branch(&old, &["UPDATE stock SET units = 0 WHERE id = 1"]).await;
    assert!(early.unwrap_err().to_string().contains("HF-GUARD-ROW"));
    stage.roll_back(old).await;
    nothing_is_kept(&stage).await;
}

async fn a_guard_that_is_taken_away_refuses_nothing<DB: GuardDatabase>() {
    let stage = guarded::<DB>(GuardMode::Refuse).await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    stage.branch(&global, &["UPDATE stock SET units = 7 WHERE id = 1"]).await;
    guarded::disable(&stage.pool, "stock").await.unwrap();
    passes(&stage, "UPDATE stock SET units = 7 WHERE id = 1").await;
    assert_eq!(guarded::list(&stage.pool).await.unwrap(), []);
    // Marked as before, since the description is trusted for a minute.
    stage.branch(&global, &["UPDATE stock SET units = 8 WHERE id = 2"]).await;
    passes(&stage, "UPDATE stock SET units = 8 WHERE id = 2").await;
    let again = guarded::disable(&stage.pool, "stock").await.unwrap_err();
    assert_eq!(again.code(), "HF-GUARD-NOT-GUARDED");
    // What was kept counts again with a new guard.
    guarded::enable(&stage.pool, "stock", GuardMode::Refuse, GuardStart::AtOnce).await.unwrap();
    refused(&stage, &xid, "UPDATE stock SET units = 7 WHERE id = 1").await;
    stage.roll_back(global).await;
    nothing_is_kept(&stage).await;
}

/// A process that dies in phase two behind the deletion of the undo row leaves guarded rows.
async fn what_an_ended_branch_leaves_refuses_nothing<DB: GuardDatabase>() {
    let stage = guarded::<DB>(GuardMode::Refuse).await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    stage.branch(&global, &["UPDATE stock SET units = 7 WHERE id = 1"]).await;
    let [holder] = &guarded::holders(&stage.pool, 10).await.unwrap()[..] else { unreachable!() };
    assert_eq!((holder.xid.as_str(), holder.rows, holder.in_force), (xid.as_str(), 1, true));
    let undo = format!("DELETE FROM undo_log WHERE xid = '{xid}'");
    passes(&stage, &undo).await;
    passes(&stage, "UPDATE stock SET units = 5 WHERE id = 1").await;
    let holders = guarded::holders(&stage.pool, 10).await.unwrap();
    assert!(!holders[0].in_force, "{holders:?}");
    assert_eq!(guarded::clean(&stage.pool, None).await.unwrap(), 1);
    nothing_is_kept(&stage).await;
    drop(global);
}

/// A writer that locks guarded rows in its own order may be in a deadlock with their removal, which
/// is the lighter one of the two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guarded_rows_are_removed_after_a_deadlock() {
    let stage = guarded::<MySql>(GuardMode::Refuse).await;
    passes(&stage, "CREATE TABLE weight (id INT AUTO_INCREMENT PRIMARY KEY, n INT)").await;
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE stock SET units = 7"]).await;
    let mut writer = MySqlConnection::connect_with(&stage.pool.connect_options()).await.unwrap();
    let lock = |order: &str| {
        let text = format!("SELECT 1 FROM guarded_row ORDER BY row_digest {order} LIMIT 1");
        AssertSqlSafe(format!("{text} LOCK IN SHARE MODE"))
    };
    writer.execute("BEGIN").await.unwrap();
    writer.execute("INSERT INTO weight (n) SELECT seq FROM seq_1_to_1000").await.unwrap();
    writer.execute(lock("DESC")).await.unwrap();
    stage.roll_back(global).await;
    until("the removal waits", async || MySql::waiting(&stage.pool).await > 0).await;
    writer.execute(lock("ASC")).await.unwrap();
    writer.execute("COMMIT").await.unwrap();
    nothing_is_kept(&stage).await;
}

/// A mark that outlasted its local transaction would let pass what follows on the connection: the
/// pool has only one.
async fn a_mark_ends_with_its_local_transaction<DB: GuardDatabase>() {
    let stage = guarded::<DB>(GuardMode::Refuse).await;
    let held = stage.begin().await;
    stage.branch(&held, &["UPDATE stock SET units = 7 WHERE id = 1"]).await;
    for compounds in [true, false] {
        let options = stage.pool.connect_options().as_ref().clone();
        let pool = PoolOptions::<DB>::new().max_connections(1).connect_with(options).await.unwrap();
        let resource = stage.handfast.at(pool.clone()).compound_statements(compounds);
        let resource = resource.await.unwrap();
        let global = stage.begin().await;
        for end in ["commit", "commit", "rollback", "drop"] {
            let branch = global.scope(async {
                let mut local = resource.begin().await.unwrap();
                DB::run(&mut local, "UPDATE stock SET units = units + 1 WHERE id = 3")
                    .await
                    .unwrap();
                match end {
                    "commit" => local.commit().await.unwrap(),
                    "rollback" => local.rollback().await.unwrap(),
                    _ => drop(local),
                }
            });
            branch.await;
            let outside = DB::raw(&pool, "UPDATE stock SET units = 0 WHERE id = 1").await;
            let error = outside.expect_err(end).to_string();
            assert!(error.contains("HF-GUARD-ROW"), "{end}: {error}");
        }
        stage.roll_back(global).await;
    }
    stage.commit(held).await;
    nothing_is_kept(&stage).await;
}

async fn a_savepoint_takes_the_mark_back<DB: GuardDatabase>() {
    let stage = guarded::<DB>(GuardMode::Refuse).await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    let worked = xid.scope(async {
        let mut local = stage.resource.begin().await?;
        local.savepoint("before").await?;
        DB::run(&mut local, "UPDATE stock SET units = 1 WHERE id = 1").await?;
        local.rollback_to("before").await?;
        DB::run(&mut local, "UPDATE stock SET units = 2 WHERE id = 2").await?;
        local.commit().await
    });
    worked.await.unwrap();
    refused(&stage, &xid, "UPDATE stock SET units = 0 WHERE id = 2").await;
    passes(&stage, "UPDATE stock SET units = 5 WHERE id = 1").await;
    stage.roll_back(global).await;
    nothing_is_kept(&stage).await;
}

async fn checked_transactions_wait_for_the_holder<DB: GuardDatabase>() {
    let stage = guarded::<DB>(GuardMode::Refuse).await;
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE stock SET units = 7 WHERE id = 1"]).await;
    let mut local = stage.resource.begin_checked().await.unwrap();
    DB::run(&mut local, "UPDATE stock SET units = units - 1 WHERE id = 1").await.unwrap();
    let waiting = tokio::spawn(local.commit());
    stage.commit(global).await;
    waiting.await.unwrap().unwrap();
    let units = stage.value("SELECT units FROM stock WHERE id = 1").await;
    assert_eq!(units.as_deref(), Some("6"));
    nothing_is_kept(&stage).await;
}

/// As on MySQL, whose server takes no compound statements.
async fn without_compound_statements<DB: GuardDatabase>() {
    let stage = guarded::<DB>(GuardMode::Refuse).await;
    let plain = stage.handfast.at(stage.pool.clone()).compound_statements(false).await.unwrap();
    let global = stage.begin().await;
    let xid = global.xid().clone();
    let sql = "UPDATE stock SET units = 7 WHERE id = 1";
    xid.scope(async { DB::run_alone(&plain, sql).await }).await.unwrap();
    xid.scope(async { DB::run_alone(&plain, "INSERT INTO stock VALUES (9, 9)").await })
        .await
        .unwrap();
    for sql in ["UPDATE stock SET units = 0 WHERE id = 1", "DELETE FROM stock WHERE id = 9"] {
        refused(&stage, &xid, sql).await;
    }
    stage.roll_back(global).await;
    nothing_is_kept(&stage).await;
}

async fn unsuitable_tables<DB: GuardDatabase>() {
    let stage = stage::<DB>(&[
        "CREATE TABLE nameless (n INT)",
        "CREATE TABLE stock (id BIGINT NOT NULL PRIMARY KEY, units INT NOT NULL)",
        "CREATE VIEW seen AS SELECT id, units FROM stock",
    ])
    .await;
    for (table, expected) in [
        ("nameless", "HF-GUARD-TABLE"),
        ("seen", "HF-GUARD-TABLE"),
        ("absent", "HF-AT-UNKNOWN-TABLE"),
    ] {
        let enabled = guarded::enable(&stage.pool, table, GuardMode::Refuse, GuardStart::AtOnce);
        assert_eq!(enabled.await.unwrap_err().code(), expected, "{table}");
    }
    // A long transaction on the table is not waited for without end.
    DB::raw(&stage.pool, "INSERT INTO stock VALUES (1, 1)").await.unwrap();
    let mut busy = stage.resource.begin().await.unwrap();
    DB::run(&mut busy, "UPDATE stock SET units = 2").await.unwrap();
    let enabled = guarded::enable(&stage.pool, "stock", GuardMode::Refuse, GuardStart::AtOnce);
    assert_eq!(enabled.await.unwrap_err().code(), "HF-GUARD-BUSY");
    drop(busy);
}

/// Sessions begin at REPEATABLE READ there, as on every server that is not told otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatable_read_is_refused_on_mariadb() {
    let stage = Stage::<MySql>::new(STOCK).await;
    let enabled =
        guarded::enable(&stage.pool, "stock", GuardMode::Refuse, GuardStart::AtOnce).await;
    let error = enabled.unwrap_err();
    assert_eq!(error.code(), "HF-GUARD-ISOLATION", "{error}");
    assert!(error.to_string().contains("REPEATABLE-READ"), "{error}");
    let triggers = "SELECT COUNT(*) FROM information_schema.triggers \
                    WHERE event_object_schema = DATABASE()";
    assert_eq!(stage.value(triggers).await.as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_has_no_guards() {
    let stage = Stage::<sqlx::Sqlite>::new(STOCK).await;
    let enabled =
        guarded::enable(&stage.pool, "stock", GuardMode::Refuse, GuardStart::AtOnce).await;
    assert_eq!(enabled.unwrap_err().code(), "HF-GUARD-DATABASE");
}

/// PostgreSQL fires the triggers of rows that a DELETE takes along, in the session of the branch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_go_along_are_guarded_on_postgresql() {
    let stage = stage::<Postgres>(&[
        "CREATE TABLE parent (id BIGINT PRIMARY KEY)",
        "CREATE TABLE child (id BIGINT PRIMARY KEY, \
         parent_id BIGINT REFERENCES parent ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1), (2)",
        "INSERT INTO child VALUES (10, 1), (20, 2)",
    ])
    .await;
    guarded::enable(&stage.pool, "child", GuardMode::Refuse, GuardStart::AtOnce).await.unwrap();
    let global = stage.begin().await;
    let xid = global.xid().clone();
    stage.branch(&global, &["DELETE FROM parent WHERE id = 1"]).await;
    refused(&stage, &xid, "INSERT INTO child VALUES (10, 2)").await;
    stage.branch(&global, &["UPDATE child SET parent_id = NULL WHERE id = 20"]).await;
    // The same global, by way of the parent alone.
    stage.branch(&global, &["UPDATE child SET parent_id = 2 WHERE id = 20"]).await;
    stage.branch(&global, &["DELETE FROM parent WHERE id = 2"]).await;
    refused(&stage, &xid, "INSERT INTO child VALUES (20, NULL)").await;
    refused(&stage, &xid, "TRUNCATE child").await;
    stage.roll_back(global).await;
    passes(&stage, "TRUNCATE child").await;
    nothing_is_kept(&stage).await;
}

/// A writer needs no right on the tables of the library.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_without_rights_on_the_tables_of_guards_is_judged_too() {
    let stage = guarded::<Postgres>(GuardMode::Watch).await;
    let role = format!("job_{}", uuid::Uuid::new_v4().simple());
    for sql in
        [format!("CREATE ROLE {role} LOGIN"), format!("GRANT SELECT, UPDATE ON stock TO {role}")]
    {
        passes(&stage, &sql).await;
    }
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE stock SET units = 7 WHERE id = 1"]).await;
    let options = stage.pool.connect_options().as_ref().clone();
    let options = options.username(&role).application_name("nightly");
    let mut job = sqlx::PgConnection::connect_with(&options).await.unwrap();
    job.execute("UPDATE stock SET units = 3 WHERE id = 1").await.unwrap();
    let text = refusal(&stage, global).await;
    assert!(text.contains(&format!("stock 1 by {role} (nightly) from 127.0.0.1 at")), "{text}");
    let closed = job.close();
    closed.await.unwrap();
    passes(&stage, &format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// Regression: the local transaction that branches shared was marked as the first one's, as whose
/// rows those of all were kept: they were free when that one had ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn branches_that_hear_of_a_guard_in_a_crowd_keep_rows_of_their_own() {
    let other = "CREATE TABLE other (id BIGINT NOT NULL PRIMARY KEY)";
    let stage = stage::<Postgres>(&[STOCK, &[other]].concat()).await;
    let at = stage.handfast.at(stage.pool.clone());
    let resource = at.counter("stock", "units", Counter::at_least(0)).await.unwrap();
    let take = "UPDATE stock SET units = units - 1 WHERE id = 1 AND units >= 1";
    // From here on the process takes the table for one without a guard.
    let first = stage.begin().await;
    first.scope(Postgres::run_alone(&resource, take)).await.unwrap();
    stage.commit(first).await;
    for table in ["stock", "other"] {
        guarded::enable(&stage.pool, table, GuardMode::Refuse, GuardStart::AtOnce).await.unwrap();
    }
    let mut outside = stage.pool.begin().await.unwrap();
    outside.execute("SELECT FROM stock WHERE id = 1 FOR UPDATE").await.unwrap();
    let globals = futures::future::join_all((0..8).map(|_| stage.begin())).await;
    let taken = globals.iter().map(|global| global.scope(Postgres::run_alone(&resource, take)));
    let let_go = async {
        until("all but the first are registered", async || {
            let locks = |coordinator: &Coordinator| {
                coordinator.locks(&LockFilter::default(), None, PageBounds::NONE).items
            };
            let locks = stage.tc.engine().view(locks).await.unwrap();
            locks.iter().map(|lock| lock.holders.len()).sum::<usize>() >= 7
        })
        .await;
        let hears = stage.begin().await;
        let insert = "INSERT INTO other VALUES (1)";
        hears.scope(Postgres::run_alone(&resource, insert)).await.unwrap();
        stage.commit(hears).await;
        outside.rollback().await.unwrap();
    };
    let (taken, ()) = tokio::join!(futures::future::join_all(taken), let_go);
    assert!(taken.iter().all(|taken| matches!(taken, Ok(1))), "{taken:?}");
    // Before that one branch had begun by itself, and up to four together. At least three are left,
    // each with rows of its own.
    let kept = "SELECT COUNT(DISTINCT branch_id) FROM guarded_row WHERE table_name LIKE '%stock'";
    let kept: usize = stage.value(kept).await.unwrap().parse().unwrap();
    assert!(kept >= 3, "{kept}");
    for global in globals {
        stage.commit(global).await;
    }
}
