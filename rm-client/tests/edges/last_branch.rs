//! The last branch of a global, whose local commit decides it.

use handfast::{AtResource, GlobalStatus, Propagation, RollbackCause, TransactionError, Xid};
use handfast_test_services::until;

use crate::at::operator::number;
use crate::at::{Stage, TestDatabase, code, on_every_database};

on_every_database!(
    its_commit_commits_the_global,
    an_error_behind_it_comes_too_late,
    no_branch_joins_after_it,
    it_decides_for_its_own_closure_alone,
    it_decides_nothing_that_may_not_commit,
    it_decides_nothing_beside_an_open_branch,
    a_branch_that_writes_nothing_decides_nothing,
    a_refused_statement_leaves_the_global_undecided,
);

const ACCOUNT: &[&str] = &[
    "CREATE TABLE account (id BIGINT NOT NULL PRIMARY KEY, n INT NOT NULL)",
    "INSERT INTO account VALUES (1, 10), (2, 20)",
];
const TAKE: &str = "UPDATE account SET n = n - 1 WHERE id = 1";
const GIVE: &str = "UPDATE account SET n = n + 1 WHERE id = 2";

async fn numbers<DB: TestDatabase>(stage: &Stage<DB>) -> (String, String) {
    let of = async |id| stage.value(&format!("SELECT n FROM account WHERE id = {id}")).await;
    (of(1).await.unwrap(), of(2).await.unwrap())
}

fn pair(one: &str, other: &str) -> (String, String) {
    (one.to_owned(), other.to_owned())
}

/// Runs a statement as a branch in explicit form.
async fn begun<DB: TestDatabase>(resource: &AtResource<DB>, sql: &str) -> Result<(), sqlx::Error> {
    let mut local = resource.begin().await?;
    DB::run(&mut local, sql).await?;
    local.commit().await
}

/// Waits until the global is committed and its undo rows are gone, and returns its timeline.
async fn committed<DB: TestDatabase>(stage: &Stage<DB>, xid: &Xid) -> String {
    stage.await_status(xid, |status| status == GlobalStatus::Committed).await;
    assert_eq!(stage.undo_rows().await, 0);
    let id = number(xid);
    let view = stage.tc.engine().view(move |coordinator| coordinator.global(id)).await.unwrap();
    view.unwrap().record.events.iter().map(|event| format!("{}\n", event.what)).collect()
}

/// Neither form asks the coordinator to decide: the report of the branch is the decision.
async fn its_commit_commits_the_global<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    for (form, left) in [("begun", pair("9", "21")), ("alone", pair("8", "22"))] {
        let done = stage.handfast.transaction("move").run(async |tx| {
            DB::run_alone(&stage.resource, TAKE).await?;
            let last = stage.resource.last();
            match form {
                "begun" => begun(&last, GIVE).await?,
                _ => DB::run_alone(&last, GIVE).await.map(drop)?,
            }
            Ok::<_, sqlx::Error>(tx.xid().cloned().unwrap())
        });
        let xid = done.await.unwrap();
        assert_eq!(numbers(&stage).await, left, "{form}");
        let timeline = committed(&stage, &xid).await;
        assert!(timeline.contains("its last branch has committed"), "{form}: {timeline}");
    }
}

async fn an_error_behind_it_comes_too_late<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let done = stage.handfast.transaction("move").run(async |_tx| {
        DB::run_alone(&stage.resource.last(), TAKE).await?;
        Err::<(), _>(sqlx::Error::RowNotFound)
    });
    let failure = done.await.unwrap_err();
    assert_eq!(failure.code(), "HF-TM-COMMITTED");
    let TransactionError::Committed { xid, by } = failure else { panic!("{failure}") };
    assert!(matches!(by, RollbackCause::Application(sqlx::Error::RowNotFound)), "{by}");
    committed(&stage, &xid).await;

    let done = stage.handfast.transaction("move").run(async |tx| {
        DB::run_alone(&stage.resource.last(), TAKE).await?;
        tx.set_rollback_only().unwrap();
        Ok::<_, sqlx::Error>(())
    });
    assert_eq!(done.await.unwrap_err().code(), "HF-TM-COMMITTED");

    // Dropped, it is committed too.
    let global = stage.begin().await;
    let xid = global.xid().clone();
    global.scope(begun(&stage.resource.last(), TAKE)).await.unwrap();
    drop(global);
    committed(&stage, &xid).await;
    assert_eq!(numbers(&stage).await, pair("7", "20"));
}

async fn no_branch_joins_after_it<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let done = stage.handfast.transaction("move").run(async |_tx| {
        DB::run_alone(&stage.resource.last(), TAKE).await?;
        DB::run_alone(&stage.resource, GIVE).await
    });
    let failure = done.await.unwrap_err();
    let TransactionError::Committed { xid, by: RollbackCause::Application(error) } = failure else {
        panic!("{failure}");
    };
    // The report is on its way, or has arrived.
    let told = code(&error);
    assert!(["HF-TC-VOTING", "HF-TC-ALREADY-DECIDED"].contains(&told.as_str()), "{told}");
    committed(&stage, &xid).await;
    assert_eq!(numbers(&stage).await, pair("9", "20"));
}

/// Code that joins a global does not know what is left to do in it, nor does another process.
async fn it_decides_for_its_own_closure_alone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let done = stage.handfast.transaction("outer").run(async |_tx| {
        let inner = stage.handfast.transaction("inner").propagation(Propagation::Required);
        let joined = inner.run(async |_tx| DB::run_alone(&stage.resource.last(), TAKE).await);
        joined.await.unwrap();
        DB::run_alone(&stage.resource, GIVE).await?;
        Err::<(), _>(sqlx::Error::RowNotFound)
    });
    assert_eq!(done.await.unwrap_err().code(), "HF-TM-ROLLED-BACK");

    let global = stage.begin().await;
    let elsewhere: Xid = global.xid().as_str().parse().unwrap();
    elsewhere.scope(begun(&stage.resource.last(), TAKE)).await.unwrap();
    stage.roll_back(global).await;
    assert_eq!(numbers(&stage).await, pair("10", "20"));
    assert_eq!(stage.undo_rows().await, 0);
}

async fn it_decides_nothing_that_may_not_commit<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let done = stage.handfast.transaction("move").run(async |tx| {
        tx.set_rollback_only().unwrap();
        DB::run_alone(&stage.resource.last(), TAKE).await
    });
    assert_eq!(done.await.unwrap_err().code(), "HF-TM-ROLLED-BACK");
    // Participants would be asked first.
    let global = stage.handfast.transaction("move").can_commit_first().begin().await.unwrap();
    global.scope(begun(&stage.resource.last(), TAKE)).await.unwrap();
    stage.roll_back(global).await;
    assert_eq!(numbers(&stage).await, pair("10", "20"));
}

/// Regression: the other branch was refused, or its failure came too late, and the global was
/// committed without it.
async fn it_decides_nothing_beside_an_open_branch<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let (resource, last) = (&stage.resource, stage.resource.last());
    let together = stage.handfast.transaction("move").run(async |_tx| {
        let (one, other) = tokio::join!(DB::run_alone(&last, TAKE), DB::run_alone(&last, GIVE));
        one?;
        other
    });
    together.await.unwrap();
    assert_eq!(numbers(&stage).await, pair("9", "21"));
    // SQLite has one writer.
    if DB::NAME_IN_TESTS != "sqlite" {
        let fails = stage.handfast.transaction("move").run(async |_tx| {
            let mut open = resource.begin().await?;
            DB::run(&mut open, TAKE).await?;
            DB::run_alone(&last, GIVE).await?;
            open.commit().await?;
            Err::<(), _>(sqlx::Error::RowNotFound)
        });
        assert_eq!(fails.await.unwrap_err().code(), "HF-TM-ROLLED-BACK");
        assert_eq!(numbers(&stage).await, pair("9", "21"));
    }
    until("undo rows are gone", async || stage.undo_rows().await == 0).await;
}

/// Without an undo row the coordinator could not learn whether it has committed.
async fn a_branch_that_writes_nothing_decides_nothing<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let done = stage.handfast.transaction("move").run(async |tx| {
        DB::run_alone(&stage.resource, TAKE).await?;
        DB::run_alone(&stage.resource.last(), "UPDATE account SET n = n WHERE id = 2").await?;
        Ok::<_, sqlx::Error>(tx.xid().cloned().unwrap())
    });
    let timeline = committed(&stage, &done.await.unwrap()).await;
    assert!(!timeline.contains("last branch"), "{timeline}");
    assert_eq!(numbers(&stage).await, pair("9", "20"));
}

async fn a_refused_statement_leaves_the_global_undecided<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let done = stage.handfast.transaction("move").run(async |_tx| {
        DB::run_alone(&stage.resource, TAKE).await?;
        DB::run_alone(&stage.resource.last(), "INSERT INTO account VALUES (1, 1)").await
    });
    let failure = done.await.unwrap_err();
    assert_eq!(failure.code(), "HF-TM-ROLLED-BACK", "{failure}");
    assert_eq!(numbers(&stage).await, pair("10", "20"));
    assert_eq!(stage.undo_rows().await, 0);
}
