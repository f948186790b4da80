//! The child processes of these tests: clients of one global that die or stop at a named point.
//! See [`run_role`].

#![allow(dead_code, reason = "each test program uses its own part")]

use std::time::Duration;

use handfast::{Handfast, Xid};
use handfast_test_services::run_role;
pub(crate) use handfast_test_services::{RoleProcess as Child, report};
use serde::{Deserialize, Serialize};

use crate::client;

/// A test that waits for longer has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Timeouts of a global that only its timeout ends.
const TIMEOUTS: [Duration; 3] =
    [Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(45)];
/// The code of the error that a client gets when its global has timed out.
const TIMED_OUT: &str = "HF-TC-ALREADY-DECIDED";

/// Does `work` in a global that ends by its timeout.
///
/// The work must be done before the timeout, however busy the machine is: where it returns `None`,
/// because the global was decided first, it is done again in another global with a longer timeout.
pub(crate) async fn before_the_timeout<T>(work: impl AsyncFn(Duration) -> Option<T>) -> T {
    for timeout in TIMEOUTS {
        if let Some(done) = work(timeout).await {
            return done;
        }
    }
    panic!("the work is not done within any of {TIMEOUTS:?}");
}

/// The entry of a child process. Without a role there is nothing to do.
#[test]
fn runs_its_role() {
    run_role(async |role| match role.name() {
        "client" => Box::pin(client::play(role.input())).await,
        other => unreachable!("no role is called {other}"),
    });
}

/// The input of a client: a database, a coordinator, and the work of one branch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClientInput<Work> {
    /// The database product.
    pub(crate) database: String,
    /// The URL of the database.
    pub(crate) url: String,
    /// The endpoint of the coordinator.
    pub(crate) endpoint: String,
    /// The global to take part in; without one the client begins its own.
    pub(crate) xid: Option<String>,
    /// The timeout of a global that the client begins.
    pub(crate) timeout: Duration,
    pub(crate) work: Work,
}

impl<Work: Serialize> ClientInput<Work> {
    /// Sets the timeout of a global that the client begins.
    pub(crate) fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Starts a client that begins a global of its own, and waits until it has died at a crash
    /// point, and with it the TM. Returns the XID, or `None` if the global has timed out first.
    pub(crate) async fn crash_with_its_global_at(&self, point: &str) -> Option<String> {
        let mut child = self.crash_at(point);
        let xid = child.next_report::<String>().await;
        let reported = child.crashed_or_report::<String>().await;
        let timed_out = reported.as_deref() == Some(TIMED_OUT);
        assert!(reported.is_none() || timed_out, "{point}: {reported:?}");
        reported.is_none().then_some(xid)
    }

    /// Starts a client that dies at a crash point.
    pub(crate) fn crash_at(&self, point: &str) -> Child {
        Child::start("client", self, &[("HANDFAST_CRASH_POINT", point)])
    }

    /// Starts a client that stops at a stop point.
    pub(crate) fn stop_at(&self, point: &str) -> Child {
        Child::start("client", self, &[("HANDFAST_STOP_POINT", point)])
    }

    /// Starts a client.
    pub(crate) fn start(&self) -> Child {
        Child::start("client", self, &[])
    }

    /// In the child: connects to the coordinator.
    pub(crate) async fn connect(&self) -> Handfast {
        Handfast::connect(&self.endpoint).application("child").await.unwrap()
    }

    /// In the child: runs a branch in the global, reports the XID if the client begins the global,
    /// then `done` or the code of the error, and waits for phase two.
    pub(crate) async fn run(
        &self,
        handfast: &Handfast,
        branch: impl Future<Output = Result<(), String>>,
    ) {
        let result = if let Some(xid) = &self.xid {
            let xid: Xid = xid.parse().unwrap();
            Box::pin(xid.scope(branch)).await
        } else {
            let global = handfast.transaction("child").timeout(self.timeout);
            let global = global.begin().await.unwrap();
            report(global.xid().as_str());
            let result = Box::pin(global.scope(branch)).await;
            // Dropping the global would roll it back.
            std::mem::forget(global);
            result
        };
        report(&result.map_or_else(|code| code, |()| "done".to_owned()));
        std::future::pending::<()>().await;
    }
}
