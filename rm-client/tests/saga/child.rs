//! Child processes: this test program, started again with a part to play. They end with the test.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use handfast::Handfast;
use nix::sys::signal::Signal;
use sqlx::{ConnectOptions, MySql, Pool, Postgres, Sqlite};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::at::{Stage, TestDatabase};
use crate::scene::{Behaviour, PATIENCE, Writes, five_steps, take_part};

const PART: &str = "HANDFAST_TEST_PART";
const ENDPOINT: &str = "HANDFAST_TEST_ENDPOINT";
const DATABASE: &str = "HANDFAST_TEST_DATABASE";
const MARK: &str = "told: ";

/// The door of a child. Without a part there is nothing to do.
#[test]
fn plays_its_part() {
    let Ok(part) = std::env::var(PART) else { return };
    std::thread::spawn(|| {
        // Ends with the parent, whichever way that ends.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint = std::env::var(ENDPOINT).unwrap();
        let handfast = Handfast::connect(endpoint).application(&part).await.unwrap();
        match part.as_str() {
            "caller" => call_and_die(&handfast).await,
            Postgres::NAME_IN_TESTS => take_part(&handfast, &pool::<Postgres>().await),
            MySql::NAME_IN_TESTS => take_part(&handfast, &pool::<MySql>().await),
            Sqlite::NAME_IN_TESTS => take_part(&handfast, &pool::<Sqlite>().await),
            other => unreachable!("no part is called {other}"),
        }
        tell("ready");
        std::future::pending::<()>().await;
    });
}

async fn pool<DB: Writes>() -> Pool<DB> {
    Pool::<DB>::connect(&std::env::var(DATABASE).unwrap()).await.unwrap()
}

/// Dies with the answer that the saga is started.
async fn call_and_die(handfast: &Handfast) {
    handfast.start_saga("orphan", five_steps("", Behaviour::Good)).await.unwrap();
    std::process::abort();
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{line}").unwrap();
    out.flush().unwrap();
}

/// A running child. Dropped, it is killed.
pub(crate) struct Child {
    process: tokio::process::Child,
    _stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// A process that takes part, and dies when it passes a point for the so-manieth time.
    pub(crate) async fn participant<DB: Writes>(stage: &Stage<DB>, crash_point: &str) -> Self {
        let database = stage.pool.connect_options().to_url_lossy().to_string();
        let variables = [(DATABASE, database.as_str()), ("HANDFAST_CRASH_POINT", crash_point)];
        let mut child = Self::start(DB::NAME_IN_TESTS, &stage.tc.endpoint(), &variables);
        child.ready().await;
        child
    }

    pub(crate) fn start(part: &str, endpoint: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child::plays_its_part", "--nocapture"]);
        command.env(PART, part).env(ENDPOINT, endpoint).envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { _stdin: process.stdin.take(), process, lines }
    }

    async fn ready(&mut self) {
        let told = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.contains(MARK) {
                    return;
                }
            }
            panic!("the child ended without a word");
        };
        tokio::time::timeout(PATIENCE, told).await.expect("the child is ready");
    }

    /// Waits until the child has died at its crash point.
    pub(crate) async fn crashed(&mut self) {
        let ended = tokio::time::timeout(PATIENCE, self.process.wait()).await;
        let status = ended.expect("the child ends").unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGABRT as i32), "the crash point is reached");
    }
}
