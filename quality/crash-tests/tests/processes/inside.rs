//! A client on the host of a coordinator, which asks again and again and notes what it was
//! answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use handfast::{Connect, Handfast, Xid};
use handfast_crash_tests::event::now;
use handfast_crash_tests::network::HostDoor;
use handfast_locks::Locks;
use tokio::sync::watch;
use tokio::time::sleep;

/// Short, so that a client asks several times while its host is cut off.
const ANSWER: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(3);
/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(20);

/// A request for something that is stored before it is answered.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) what: &'static str,
    /// When it was asked for.
    pub(crate) at: u64,
    /// When that ended.
    pub(crate) until: u64,
    /// Whether it was acknowledged.
    pub(crate) is_acknowledged: bool,
    /// The global that was to be committed, if it was that.
    pub(crate) xid: Option<Xid>,
}

/// The client.
#[derive(Debug)]
pub(crate) struct InsideClient {
    stop: Arc<AtomicBool>,
    /// When the newest request that was acknowledged was made.
    acknowledged: watch::Receiver<u64>,
    thread: JoinHandle<Result<Vec<Asked>>>,
}

impl InsideClient {
    /// Starts to ask on a host.
    pub(crate) fn start(host: HostDoor, endpoints: Vec<String>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let (newest, acknowledged) = watch::channel(0);
        // A thread of its own: only a thread can move to another host.
        let thread = std::thread::spawn(move || {
            host.enter()?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(ask(&endpoints, &is_over, &newest))
        });
        Self { stop, acknowledged, thread }
    }

    /// Waits until a request is acknowledged that was made after `moment`.
    pub(crate) async fn until_acknowledged_after(&self, moment: u64) -> Result<()> {
        let mut acknowledged = self.acknowledged.clone();
        acknowledged.wait_for(|at| *at > moment).await.context("the client asks no more")?;
        Ok(())
    }

    /// Stops asking, and returns what was asked.
    pub(crate) fn finish(self) -> Result<Vec<Asked>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the client panicked"))?
    }
}

async fn ask(
    endpoints: &[String],
    is_over: &AtomicBool,
    newest: &watch::Sender<u64>,
) -> Result<Vec<Asked>> {
    let (first, others) = endpoints.split_first().context("there is a coordinator")?;
    let connect = others.iter().fold(Handfast::connect(first), Connect::endpoint);
    let handfast = connect.application("inside").request_deadline(ANSWER).await?;
    let locks = Locks::over(handfast.locks()).lease(LEASE).start()?;
    let mut asked: Vec<Asked> = Vec::new();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        asked.extend(commit(&handfast).await);
        asked.push(lock(&locks, &format!("inside/{number}")).await);
        if let Some(at) = asked.iter().rev().find(|it| it.is_acknowledged).map(|it| it.at) {
            newest.send_replace(at);
        }
        sleep(PAUSE).await;
    }
    handfast.close().await;
    Ok(asked)
}

/// Returns `None` if no global was begun, which stores nothing.
async fn commit(handfast: &Handfast) -> Option<Asked> {
    let global = handfast.transaction("inside").begin().await.ok()?;
    let (at, xid) = (now(), Some(global.xid().clone()));
    let is_acknowledged = global.commit().await.is_ok();
    Some(Asked { what: "a commit", at, until: now(), is_acknowledged, xid })
}

async fn lock(locks: &Locks, name: &str) -> Asked {
    let at = now();
    let guard = locks.lock_timeout(name, ANSWER).await;
    let (until, is_acknowledged) = (now(), guard.is_ok());
    if let Ok(guard) = guard {
        // It may be lost already; its lease ends by itself.
        let _ = guard.release().await;
    }
    Asked { what: "a lock", at, until, is_acknowledged, xid: None }
}
