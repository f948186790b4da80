//! The ends of branches when no process dies.

use std::time::Duration;

use handfast::{Global, GlobalStatus, RollbackReason};
use handfast_test_services::until;
use sqlx::pool::PoolOptions;
use sqlx::{Executor, MySql, Postgres, Sqlite};

use crate::at::TestDatabase;
use crate::child::before_the_timeout;
use crate::database::{XaTestDatabase, lone, on_both};
use crate::scene::{DEBIT, OTHER_DEBIT, Scene, branch, code};

on_both!(
    a_commit_commits_the_prepared_branch,
    a_rollback_rolls_the_branch_back,
    a_timeout_rolls_the_branch_back,
    a_late_branch_is_refused_without_a_trace,
    a_branch_that_only_reads_is_not_prepared,
    a_failed_statement_fails_the_branch_alone,
    a_dropped_transaction_is_rolled_back,
    a_transaction_outside_a_global_is_plain,
    all_executor_forms_work_as_in_at_mode,
    a_text_cannot_end_the_branch,
    a_refused_text_keeps_its_connection,
    pooled_sessions_are_left_in_no_branch,
    a_decision_needs_no_connection_of_waiting_sessions,
);

async fn a_commit_commits_the_prepared_branch<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    branch(&resource, &global, DEBIT).await.unwrap();
    branch(&resource, &global, OTHER_DEBIT).await.unwrap();
    let prepared = scene.prepared().await;
    assert_eq!(prepared.len(), 2);
    assert!(prepared.iter().all(|name| name.ends_with(global.xid().as_str())), "{prepared:?}");
    assert_eq!(scene.bank.cents(1).await, 1000, "nothing is to be seen before the decision");
    let xid = global.xid().clone();
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    scene.assert_clean([990, 990]).await;
}

async fn a_rollback_rolls_the_branch_back<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    branch(&resource, &global, DEBIT).await.unwrap();
    branch(&resource, &global, OTHER_DEBIT).await.unwrap();
    global.rollback("test").await.unwrap();
    scene.assert_clean([1000, 1000]).await;
}

async fn a_timeout_rolls_the_branch_back<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = before_the_timeout(async |timeout| {
        let global = scene.handfast.transaction("test").timeout(timeout);
        let global = global.begin().await.unwrap();
        branch(&resource, &global, DEBIT).await.is_ok().then_some(global)
    });
    let global = global.await;
    scene.until_rolled_back(global.xid()).await;
    let status = scene.handfast.outcome(global.xid()).await.unwrap();
    assert_eq!(status, GlobalStatus::RolledBack(RollbackReason::Timeout));
    scene.assert_clean([1000, 1000]).await;
}

async fn a_late_branch_is_refused_without_a_trace<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    // One branch makes the coordinator store the global.
    branch(&resource, &global, OTHER_DEBIT).await.unwrap();
    let xid = global.xid().clone();
    global.rollback("test").await.unwrap();
    let late = xid.scope(async {
        let mut local = resource.begin().await?;
        DB::run_xa(&mut local, DEBIT).await?;
        local.commit().await
    });
    assert_eq!(code(&late.await.unwrap_err()), "HF-TC-ALREADY-DECIDED");
    scene.assert_clean([1000, 1000]).await;
}

async fn a_branch_that_only_reads_is_not_prepared<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    for commits in [true, false] {
        let global = scene.begin().await;
        branch(&resource, &global, "SELECT * FROM account").await.unwrap();
        branch(&resource, &global, DEBIT).await.unwrap();
        let detail = scene.coordinator.show(global.xid().as_str()).await;
        assert_eq!(detail.branches.len(), 1, "what only reads ends at prepare");
        let xid = global.xid().clone();
        if commits {
            global.commit().await.unwrap();
            scene.until_committed(&xid).await;
        } else {
            global.rollback("test").await.unwrap();
        }
        scene.assert_clean([990, 1000]).await;
    }
}

async fn a_failed_statement_fails_the_branch_alone<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let failed = async {
        let mut local = resource.begin().await?;
        DB::run_xa(&mut local, DEBIT).await?;
        DB::run_xa(&mut local, "INSERT INTO account VALUES (1, 7)").await?;
        local.commit().await
    };
    global.scope(failed).await.unwrap_err();
    branch(&resource, &global, OTHER_DEBIT).await.unwrap();
    let xid = global.xid().clone();
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    scene.assert_clean([1000, 990]).await;
}

async fn a_dropped_transaction_is_rolled_back<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let dropped = async {
        let mut local = resource.begin().await.unwrap();
        DB::run_xa(&mut local, DEBIT).await.unwrap();
        drop(local);
    };
    global.scope(dropped).await;
    // The branch waits for the row until the server has noticed the end of the session.
    branch(&resource, &global, DEBIT).await.unwrap();
    let xid = global.xid().clone();
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    scene.assert_clean([990, 1000]).await;
}

async fn a_transaction_outside_a_global_is_plain<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    for commits in [true, false] {
        let mut local = resource.begin().await.unwrap();
        assert!(local.xid().is_none());
        DB::run_xa(&mut local, DEBIT).await.unwrap();
        if commits {
            local.commit().await.unwrap();
        } else {
            local.rollback().await.unwrap();
        }
    }
    DB::run_xa_alone(&resource, OTHER_DEBIT).await.unwrap();
    scene.assert_clean([990, 990]).await;
}

async fn all_executor_forms_work_as_in_at_mode<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let amount = DEBIT.to_owned();
    let work = async |_tx: &_| {
        let changed = resource.transaction(async |mut local| DB::run_xa(&mut local, &amount).await);
        assert_eq!(changed.await?, 1);
        DB::run_xa_alone(&resource, OTHER_DEBIT).await
    };
    let name = scene.handfast.transaction("forms");
    name.run(async |tx| work(&tx).await).await.unwrap();
    let refused = scene.handfast.transaction("forms").run(async |_tx| {
        let work = resource.transaction(async |mut local| {
            DB::run_xa(&mut local, DEBIT).await?;
            Err::<(), _>(sqlx::Error::RowNotFound)
        });
        work.await
    });
    refused.await.unwrap_err();
    scene.until_prepared(0).await;
    scene.assert_clean([990, 990]).await;
}

/// As in AT mode (`at_shapes.rs`), a statement passed to a scope was committed at once.
#[tokio::test]
async fn a_statement_runs_in_the_scope_that_awaits_it() {
    let scene = Scene::<Postgres>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    global.scope(resource.execute(DEBIT)).await.unwrap();
    let (made,) = global.scope(async { (resource.fetch_optional(OTHER_DEBIT),) }).await;
    made.await.unwrap();
    assert_eq!(scene.prepared().await.len(), 2);
    global.rollback("test").await.unwrap();
    scene.assert_clean([1000, 1000]).await;
}

async fn a_text_cannot_end_the_branch<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let work = async {
        let mut local = resource.begin().await.unwrap();
        DB::run_xa(&mut local, DEBIT).await.unwrap();
        for sql in ["COMMIT", "ROLLBACK", "SELECT 1; COMMIT"] {
            let error = DB::run_xa(&mut local, sql).await.unwrap_err();
            assert_eq!(code(&error), "HF-XA-TRANSACTION-CONTROL", "{sql}");
        }
        // Savepoints stay within the branch.
        DB::run_xa(&mut local, "SAVEPOINT a").await.unwrap();
        DB::run_xa(&mut local, OTHER_DEBIT).await.unwrap();
        DB::run_xa(&mut local, "ROLLBACK TO SAVEPOINT a").await.unwrap();
        local.commit().await.unwrap();
    };
    global.scope(work).await;
    let xid = global.xid().clone();
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    scene.assert_clean([990, 1000]).await;
}

/// Regression: a text that was refused as a branch of its own closed the connection.
async fn a_refused_text_keeps_its_connection<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let narrow = lone(&scene.bank.pool).await;
    let resource = scene.handfast.xa(narrow.clone()).node(&scene.node).await.unwrap();
    let own_id = if DB::NAME_IN_TESTS == "postgres" {
        "SELECT CAST(pg_backend_pid() AS text)"
    } else {
        "SELECT CAST(CONNECTION_ID() AS char)"
    };
    let before = DB::raw_rows(&narrow, own_id).await.unwrap();
    let global = scene.begin().await;
    let refused = global.scope(DB::run_xa_alone(&resource, "COMMIT")).await.unwrap_err();
    assert_eq!(code(&refused), "HF-XA-TRANSACTION-CONTROL");
    assert_eq!(DB::raw_rows(&narrow, own_id).await.unwrap(), before);
    global.commit().await.unwrap();
    scene.assert_clean([1000, 1000]).await;
}

async fn pooled_sessions_are_left_in_no_branch<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let options = scene.bank.pool.connect_options().as_ref().clone();
    let narrow = PoolOptions::new().max_connections(2).connect_with(options).await.unwrap();
    let resource = scene.handfast.xa(narrow.clone()).node(&scene.node).await.unwrap();
    // Twice as many prepared branches as there are connections.
    let mut globals = Vec::new();
    for id in 1..=3 {
        let global = scene.begin().await;
        let sql = format!("UPDATE account SET cents = cents - 10 WHERE id = {id}");
        branch(&resource, &global, &sql).await.unwrap();
        // The pool still serves other users.
        DB::raw(&narrow, "SELECT 1").await.unwrap();
        globals.push(global);
    }
    scene.until_prepared(3).await;
    for global in globals {
        let xid = global.xid().clone();
        global.commit().await.unwrap();
        scene.until_committed(&xid).await;
    }
    scene.assert_clean([990, 990]).await;
    // The pool's sessions are in no branch.
    for _ in 0..4 {
        DB::raw(&narrow, "BEGIN").await.unwrap();
        DB::raw(&narrow, "ROLLBACK").await.unwrap();
    }
}

/// The waiting sessions need the row that the decision releases, so the decision must not need one
/// of their connections.
async fn a_decision_needs_no_connection_of_waiting_sessions<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let options = scene.bank.pool.connect_options().as_ref().clone();
    let narrow = PoolOptions::<DB>::new().max_connections(2).connect_with(options).await.unwrap();
    let resource = scene.handfast.xa(narrow.clone()).node(&scene.node);
    let resource = resource.hold_limit(Duration::ZERO).await.unwrap();
    let (first, second, third) = (scene.begin().await, scene.begin().await, scene.begin().await);
    branch(&resource, &first, DEBIT).await.unwrap();
    let waits = async |global: Global| {
        branch(&resource, &global, DEBIT).await.unwrap();
        let xid = global.xid().clone();
        global.commit().await.unwrap();
        scene.until_committed(&xid).await;
    };
    let decides = async {
        let is_taken = async || narrow.size() == 2 && narrow.num_idle() == 0;
        until("the pool's last connection is taken", is_taken).await;
        let xid = first.xid().clone();
        first.commit().await.unwrap();
        scene.until_committed(&xid).await;
    };
    tokio::join!(waits(second), waits(third), decides);
    scene.assert_clean([970, 1000]).await;
}

#[tokio::test]
async fn sqlite_is_refused() {
    let scene = Scene::<Postgres>::new().await;
    let (pool, _directory) = Sqlite::create().await;
    let error = scene.handfast.xa(pool).await.unwrap_err();
    assert_eq!(error.code(), "HF-XA-UNSUPPORTED");
    assert!(error.to_string().contains("AT mode"), "{error}");
}

#[tokio::test]
async fn a_node_id_is_checked_and_mysql_needs_its_table() {
    let scene = Scene::<Postgres>::new().await;
    let error = scene.handfast.xa(scene.bank.pool.clone()).node("a b").await.unwrap_err();
    assert_eq!(error.code(), "HF-XA-NODE");
    let (pool, _) = MySql::create().await;
    let error = scene.handfast.xa(pool).await.unwrap_err();
    assert_eq!(error.code(), "HF-AT-CLIENT-TABLE-MISSING");
}
