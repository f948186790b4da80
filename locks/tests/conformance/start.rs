//! Clients and backends that refuse to start.

use std::sync::Arc;
use std::time::Duration;

use handfast_locks::{Guarantee, LockError, Locks, MySqlLocks, PostgresLocks, SqliteLocks};

use crate::setup::{TestBackend, server};

pub(crate) async fn weaker_guarantee_must_be_requested(setup: &TestBackend) {
    let started = Locks::over(Arc::clone(&setup.backend)).guarantee(Guarantee::Correctness).start();
    match setup.backend.guarantee() {
        Guarantee::Correctness => assert!(started.is_ok()),
        Guarantee::Efficiency => assert!(matches!(started, Err(LockError::Guarantee { .. }))),
    }
    // Correctness is the default.
    let started = Locks::over(Arc::clone(&setup.backend)).start();
    assert_eq!(started.is_ok(), setup.backend.guarantee() == Guarantee::Correctness);
}

pub(crate) async fn leases_have_limits(setup: &TestBackend) {
    for lease in [Duration::from_millis(199), Duration::from_secs(3601)] {
        let started = setup.settings().lease(lease).start();
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
