//! seata-go.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use handfast_interop::{built, sources};
use handfast_test_services::ServerKind;

use crate::client::Wanted;
use crate::scenarios::Scenario;

/// The release that `go/go.mod` names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Go;

/// The scenarios that this client cannot play with any coordinator.
const MISSING: &[&str] = &[
    // It reports a rollback that did not happen.
    "at dirty-write",
    // It gives up at the first conflict, and leaves what it did in an open local transaction, which
    // the next statement on that connection commits.
    "at lock-wait",
    "at lock-conflict",
    "at lock-conflict-of-open-transaction",
    "at 64-clients",
    // The same, where a registration fails with its leader. It also leaves connections to the
    // database open with each statement, until the database has no more.
    "at leader-changes",
    // The same, where Seata Server refuses the branch of a global that it does not know.
    "at moves-there-and-back",
    "at moves-with-shared-rows",
    // Rows written through its driver for XA are visible before the decision.
    "xa commit",
    "xa rollback",
    "xa timeout",
    "xa four-services",
    "xa two-replicas",
    // It cannot decode the request to delete them.
    "at old-undo-logs",
    // After a reconnect it registers as a TM but not its resources, so no call of phase two
    // reaches it until it registers another branch.
    "at killed-before-rollback",
    "at killed-before-commit",
    "at killed-after-rollback",
    "at killed-after-commit",
    "at reconnect",
    "tcc killed-before-commit",
    // It has nothing like `@GlobalLock`.
    "at global-lock-read",
];

impl Go {
    pub(crate) const VERSION: &str = "1.1.0";

    /// It knows MySQL alone.
    pub(crate) fn can_play(self, database: ServerKind, scenario: &Scenario) -> bool {
        let name = format!("{} {}", scenario.mode, scenario.name);
        database == ServerKind::MariaDb && !MISSING.contains(&name.as_str())
    }

    pub(crate) fn build(self) -> Result<()> {
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(self.worker()?).arg(".").current_dir(sources("go"));
        let status = go.status().context("running go")?;
        ensure!(status.success(), "go build: {status}");
        Ok(())
    }

    pub(crate) fn service(self, wanted: &Wanted<'_>) -> Result<Command> {
        fs::create_dir_all(wanted.folder)?;
        let settings = wanted.folder.join("seatago.yml");
        let text = SETTINGS.replace("{addresses}", &wanted.endpoints.coordinators(","));
        fs::write(&settings, text.replace("{application}", wanted.application))?;
        let mut worker = Command::new(self.worker()?);
        worker.env("SEATA_GO_CONFIG_PATH", settings).arg(wanted.database.dsn(wanted.name));
        Ok(worker)
    }

    fn worker(self) -> Result<PathBuf> {
        Ok(built(&format!("go-{}", Self::VERSION))?.join("worker"))
    }
}

/// As the client's sample has it.
const SETTINGS: &str = r"seata:
  enabled: true
  application-id: {application}
  tx-service-group: default_tx_group
  enable-auto-data-source-proxy: true
  data-source-proxy-mode: AT
  client:
    rm:
      async-commit-buffer-limit: 10000
      report-retry-count: 5
      lock:
        retry-interval: 30ms
        retry-times: 10
        retry-policy-branch-rollback-on-conflict: true
    tm:
      commit-retry-count: 5
      rollback-retry-count: 5
      default-global-transaction-timeout: 60s
    undo:
      data-validation: true
      log-serialization: json
      log-table: undo_log
      only-care-update-columns: true
      compress:
        enable: false
        type: zip
        threshold: 64k
  service:
    vgroup-mapping:
      default_tx_group: default
    grouplist:
      default: {addresses}
  transport:
    type: TCP
    heartbeat: true
    serialization: seata
    compressor: none
    rpc-rm-request-timeout: 30s
    rpc-tm-request-timeout: 30s
  config:
    type: file
  registry:
    type: file
  tcc:
    fence:
      log-table-name: tcc_fence_log
      clean-period: 60s
  getty:
    reconnect-interval: 0
    connection-num: 1
    session:
      tcp-no-delay: true
      tcp-keep-alive: true
      keep-alive-period: 120s
      tcp-r-buf-size: 262144
      tcp-w-buf-size: 65536
      tcp-read-timeout: 1s
      tcp-write-timeout: 5s
      wait-timeout: 1s
      max-msg-len: 16498688
      session-name: interop
      cron-period: 1s
";
