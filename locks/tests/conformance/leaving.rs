//! A caller that goes away leaves nothing behind, in whichever way it goes.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use crate::setup::{TestBackend, fresh};
use crate::waiting::eventually_free;

pub(crate) async fn a_dropped_guard_frees(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    drop(locks.lock(&name).await.unwrap());
    locks.settle().await.unwrap();
    assert!(setup.locks().try_lock(&name).await.is_ok());
}

pub(crate) async fn a_guard_dropped_outside_of_a_runtime_frees(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let guard = locks.lock(&name).await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    locks.settle().await.unwrap();
    assert!(setup.locks().try_lock(&name).await.is_ok());
}

pub(crate) async fn a_task_that_panics_frees(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let (held, panicking) = (name.clone(), locks.clone());
    let task = tokio::spawn(async move {
        let _guard = panicking.lock(&held).await.unwrap();
        panic!("on purpose");
    });
    assert!(task.await.unwrap_err().is_panic());
    locks.settle().await.unwrap();
    assert!(setup.locks().try_lock(&name).await.is_ok());
}

pub(crate) async fn a_task_that_is_aborted_frees(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let (held, aborted) = (name.clone(), locks.clone());
    let (sender, is_held) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(async move {
        let _guard = aborted.lock(&held).await.unwrap();
        sender.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    is_held.await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    locks.settle().await.unwrap();
    assert!(setup.locks().try_lock(&name).await.is_ok());
}

/// The future is dropped after every number of polls, with the lock free and with the lock held.
pub(crate) async fn a_cancelled_wait_leaves_nothing(setup: &TestBackend) {
    let (locks, other) = (setup.locks(), setup.locks());
    for is_held in [false, true] {
        for polls in 0..6 {
            let name = fresh();
            let guard = if is_held { Some(other.lock(&name).await.unwrap()) } else { None };
            let mut waiting = Box::pin(locks.lock(&name));
            for _ in 0..polls {
                let once = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context)));
                if pin!(once).await.is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(waiting);
            locks.settle().await.unwrap();
            drop(guard);
            eventually_free(&other, &name).await;
        }
    }
}
