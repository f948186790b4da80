//! The metrics of a client. This is alone in its program, because metrics are counted per process.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/faults.rs"]
mod faults;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use handfast_locks::{
    Backend, Guard, LockError, LockRef, Locks, LossReason, MemoryLocks, ReleaseOutcome,
    ReleaseRequest,
};
use handfast_test_services::until;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use faults::Faulty;

/// Renewed after a third, which is long before its end also on a busy machine.
const LEASE: Duration = Duration::from_secs(9);
/// A lease that ends within the test.
const SHORT: Duration = Duration::from_secs(3);

/// Returns the value of a line such as `name{labels}`.
fn value(shown: &PrometheusHandle, line: &str) -> u64 {
    let text = shown.render();
    let found = text.lines().find_map(|shown| shown.strip_prefix(line));
    found.map_or(0, |value| value.trim().parse().unwrap())
}

async fn until_counted(shown: &PrometheusHandle, line: &str) {
    until(line, async || value(shown, line) > 0).await;
}

fn lock_ref_of(guard: &Guard) -> LockRef {
    LockRef { name: guard.name().clone(), id: guard.id() }
}

#[tokio::test]
async fn client_counts_its_locks() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let shown = recorder.handle();
    metrics::set_global_recorder(recorder).unwrap();
    let memory: Arc<dyn Backend> = Arc::new(MemoryLocks::new());
    let faulty = Arc::new(Faulty::over(&memory));
    let locks = Locks::over(Arc::clone(&faulty)).lease(LEASE).start().unwrap();
    let counts = |line: &str| value(&shown, &line.replace("{", "{backend=\"memory\","));
    let count = |name: &str| value(&shown, &format!("{name}{{backend=\"memory\"}}"));
    let renewals = |result: &str| {
        format!("handfast_client_lock_renewals_total{{backend=\"memory\",result=\"{result}\"}}")
    };

    let guard = locks.lock("orders/1").await.unwrap();
    let taken = locks.lock("orders/2").await.unwrap();
    assert!(matches!(locks.try_lock("orders/1").await, Err(LockError::Busy { .. })));
    let waited = locks.lock_timeout("orders/1", Duration::from_millis(1)).await;
    assert!(matches!(waited, Err(LockError::TimedOut { .. })));
    memory
        .release(&ReleaseRequest {
            lock_ref: lock_ref_of(&taken),
            refuse_late_requests: false,
            is_uncontended: false,
        })
        .await
        .unwrap();
    until_counted(&shown, &renewals("held")).await;
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(taken.lost().await, LossReason::Taken);
    until_counted(&shown, &renewals("lost")).await;
    assert_eq!(count("handfast_client_lock_acquired_total"), 2);
    assert_eq!(count("handfast_client_lock_wait_seconds_count"), 2);
    assert_eq!(count("handfast_client_lock_hold_seconds_count"), 2);
    assert_eq!(counts("handfast_client_lock_lost_total{reason=\"taken\"}"), 1);
    assert_eq!(counts("handfast_client_lock_refused_total{code=\"HF-LOCK-BUSY\"}"), 1);
    assert_eq!(counts("handfast_client_lock_refused_total{code=\"HF-LOCK-TIMED-OUT\"}"), 1);

    let short = Locks::over(Arc::clone(&faulty)).lease(SHORT).start().unwrap();
    let cut_off = short.lock("orders/3").await.unwrap();
    faulty.is_cut.store(true, Ordering::SeqCst);
    assert_eq!(cut_off.lost().await, LossReason::Deadline);
    assert!(matches!(short.try_lock("orders/4").await, Err(LockError::Unavailable { .. })));
    drop((taken, cut_off));
    until_counted(
        &shown,
        "handfast_client_lock_errors_total{backend=\"memory\",request=\"leave\"}",
    )
    .await;
    faulty.is_cut.store(false, Ordering::SeqCst);
    locks.settle().await.unwrap();
    short.settle().await.unwrap();
    until_counted(&shown, &renewals("unknown")).await;
    assert_eq!(counts("handfast_client_lock_lost_total{reason=\"deadline\"}"), 1);
    assert_eq!(counts("handfast_client_lock_errors_total{request=\"ask\"}"), 1);
    assert!(counts("handfast_client_lock_errors_total{request=\"renew\"}") > 0);
    assert_eq!(counts("handfast_client_lock_refused_total{code=\"HF-LOCK-UNAVAILABLE\"}"), 1);
    // Each ended once, whether it was released or lost.
    assert_eq!(count("handfast_client_lock_acquired_total"), 3);
    assert_eq!(count("handfast_client_lock_hold_seconds_count"), 3);
}
