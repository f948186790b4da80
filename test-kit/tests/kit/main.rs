//! The kit, seen from a test that uses it: for each fault, each assertion and the saga runner a
//! service that is sound and passes, and one that has the bug it is for and is found out.

mod assertions;
mod databases;
mod faults;
mod sagas;
mod shop;
mod time;

use std::panic::AssertUnwindSafe;

use futures::FutureExt;

/// Returns the message with which an assertion fails.
async fn complaint(assertion: impl Future<Output = ()>) -> String {
    let failed = AssertUnwindSafe(assertion).catch_unwind().await;
    let panic = failed.expect_err("the assertion fails");
    panic.downcast_ref::<String>().expect("it has a message").clone()
}
