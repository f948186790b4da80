//! The log line about a transaction that needs an operator.

use std::io::Write;
use std::sync::{Arc, Mutex};

use handfast_server::admin::model::Status;
use handfast_server::config::StoreKind;
use handfast_test_services::until;

use crate::port::{roomy, start_with};

/// Captures the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Returns the lines of a level that mention an operator.
    fn of_operators(&self, level: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let wanted = |line: &&str| line.contains(level) && line.contains("need");
        text.lines().filter(wanted).map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Regression: an operator learned of a dirty write from the participant's log, or not at all.
///
/// The runtime has one thread, so everything that the coordinator logs passes this subscriber.
#[tokio::test]
async fn transactions_that_need_an_operator_are_logged() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _logged = tracing::subscriber::set_default(subscriber);
    let directory = tempfile::tempdir().unwrap();
    let mut config = roomy();
    config.store = StoreKind::Embedded;
    config.data_dir = directory.path().to_owned();

    let (server, admin, mut application) = start_with(config.clone()).await;
    let xid = application.refuse().await;
    admin.until(&xid, Status::NeedsOperator).await;
    let retry = format!("/api/v1/transactions/{xid}/retry");
    admin.post(&retry, None).await;
    application.refuse_again().await;
    until("it is tried again", async || admin.show(&xid).await.branches[0].attempts >= 2).await;
    let told = log.of_operators("WARN");
    let [line] = told.as_slice() else { panic!("{told:?}") };
    for part in [
        &*format!("handfast tx show {xid}"),
        &format!("xid={xid}"),
        "branch=7",
        "resource=\"sqlite:stock\"",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    drop((admin, application));
    server.shutdown().await.unwrap();

    let (server, admin, _application) = start_with(config).await;
    admin.until(&xid, Status::NeedsOperator).await;
    let told = log.of_operators("WARN");
    let [_, line] = told.as_slice() else { panic!("{told:?}") };
    assert!(line.contains("handfast tx ls --status needs_operator"), "{line}");
    assert!(line.contains("transactions=1"), "{line}");
    server.shutdown().await.unwrap();
}
