//! What does not start.

use std::sync::Arc;
use std::time::Duration;

use handfast_locks::{Grade, LockError, Locks, MySqlLocks, PostgresLocks, SqliteLocks};

use crate::stage::{Stage, server};

pub(crate) async fn the_grade_is_asked_for(stage: &Stage) {
    let started = Locks::over(Arc::clone(&stage.backend)).grade(Grade::Correctness).start();
    match stage.backend.grade() {
        Grade::Correctness => assert!(started.is_ok()),
        Grade::Efficiency => assert!(matches!(started, Err(LockError::Grade { .. }))),
    }
    // Correctness is the default.
    let started = Locks::over(Arc::clone(&stage.backend)).start();
    assert_eq!(started.is_ok(), stage.backend.grade() == Grade::Correctness);
}

pub(crate) async fn leases_have_limits(stage: &Stage) {
    for lease in [Duration::from_millis(199), Duration::from_secs(3601)] {
        let started = stage.settings().lease(lease).start();
        assert!(matches!(started, Err(LockError::Settings { .. })));
    }
}

#[tokio::test]
async fn a_database_without_the_tables_is_refused() {
    let postgres = PostgresLocks::connect(&server("HANDFAST_TEST_POSTGRES")).await.map(drop);
    let mysql = format!("{}/mysql", server("HANDFAST_TEST_MYSQL").trim_end_matches('/'));
    let mysql = MySqlLocks::connect(&mysql).await.map(drop);
    let sqlite = SqliteLocks::connect("sqlite::memory:").await.map(drop);
    for refused in [postgres, mysql, sqlite] {
        let Err(LockError::Refused { source }) = refused else { panic!("{refused:?}") };
        assert!(source.is_final(), "{source}");
        assert!(source.to_string().contains("apply the client migrations"), "{source}");
    }
}
