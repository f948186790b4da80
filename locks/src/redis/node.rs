//! One Redis server: its connection and its scripts. What its answers mean for a lock is decided
//! elsewhere.

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt;
use futures::future::try_join_all;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, IntoConnectionInfo, RedisError,
    RedisWrite, Script, ServerErrorKind, Value,
};
use tokio::sync::{Mutex, mpsc};

use super::batcher::{Batcher, Scripts};
use super::script;
use crate::backend::{
    AcquireRequest, LockMode, LockRef, QueueMode, ReleaseRequest, WAITER_HEARTBEAT, WAITER_TIMEOUT,
    WakeUp,
};
use crate::clock::Moment;
use crate::driver::within;
use crate::error::BackendError;
use crate::name::{AcquisitionId, LockName};

/// How long an id stays barred: longer than any request with it can be under way.
pub(super) const BARRED: Duration = Duration::from_secs(60);

/// How long to wait for an answer before a request is repeated: longer than a busy server takes,
/// and no longer than a waiter is silent. A majority does not wait for a server that hangs.
pub(super) const ANSWER_WITHIN: Duration = WAITER_HEARTBEAT;

/// How long data may stay unacknowledged on a connection, and how often a silent connection is
/// probed.
const SILENT_MAX: Duration = Duration::from_secs(5);
const TRIED_EVERY: Duration = Duration::from_secs(1);
/// How often a listening connection is pinged.
const SIGN_EVERY: Duration = Duration::from_secs(5);

/// How many leases one call renews: the server does nothing else meanwhile.
const RENEWED_TOGETHER: usize = 256;

/// The prefix of the channel of a client, followed by the client's number.
const CHANNEL: &str = "handfast:lock-wake:";

/// The code of the error with which a replica refuses a write.
const READ_ONLY: &str = "READONLY";

/// The suffix of the counter of fencing tokens.
const COUNTER: &str = ":fence";
/// The suffixes of the shared holders and of their labels.
const SHARES: &str = ":shares";
const LABELS: &str = ":labels";

/// The keys of an exclusive lock: its holder, and its counter.
pub(super) const HOLDER: [&str; 2] = ["", COUNTER];
/// All keys of a lock.
const PARTS: [&str; 8] =
    ["", COUNTER, ":queue", ":alive", ":barred", SHARES, LABELS, ":shared-fence"];

/// The reply of the scripts: a fencing token if granted or freed, else the holder. See `script.rs`.
pub(super) type ScriptReply = (i64, String, String, i64, i64, i64);

/// The values that several nodes have agreed on for an acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Agreement {
    pub(super) fencing_token: Option<i64>,
    pub(super) arrival: Option<i64>,
}

/// A server, which may not answer.
#[derive(Debug)]
pub(super) struct Node {
    client: Client,
    /// Shared by all requests. None after it failed.
    server: Mutex<Option<ServerConnection>>,
    /// For how long after its start a server may have forgotten what it had granted.
    settling: Duration,
    /// A connection that is silent for longer is not usable.
    answer_within: Duration,
    batch_scripts: Scripts,
    acquire: Script,
    renew: Script,
    release: Script,
}

/// A connection to one run of the server: a restart ends it.
#[derive(Clone, Debug)]
struct ServerConnection {
    connection: MultiplexedConnection,
    batcher: Batcher,
    settled_at: Moment,
    /// Whether a script may touch locks in several slots, which it may not in a cluster.
    crosses_slots: bool,
}

impl Node {
    pub(super) fn new(
        url: &str,
        settling: Duration,
        answer_within: Duration,
    ) -> Result<Self, BackendError> {
        let info = url.into_connection_info().map_err(failed)?;
        Ok(Self {
            client: Client::open(info.set_tcp_settings(tcp_settings())).map_err(failed)?,
            server: Mutex::new(None),
            settling,
            answer_within,
            batch_scripts: Scripts::new(),
            acquire: Script::new(&[script::COMMON, script::ACQUIRE].concat()),
            renew: Script::new(script::RENEW),
            release: Script::new(&[script::COMMON, script::RELEASE].concat()),
        })
    }

    /// Connects, and checks that the server evicts nothing when memory is short.
    /// Returns since when the server has surely forgotten nothing that still matters.
    pub(super) async fn check(&self) -> Result<Moment, BackendError> {
        Ok(self.server().await?.settled_at)
    }

    async fn server(&self) -> Result<ServerConnection, BackendError> {
        // The mutex is held while connecting: all requests wait for one connection, and none makes
        // another.
        let mut kept = self.server.lock().await;
        if let Some(server) = &*kept {
            return Ok(server.clone());
        }
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(self.answer_within));
        let connect = self.client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connect.await.map_err(failed)?;
        let about: String =
            redis::cmd("INFO").query_async(&mut connection).await.map_err(failed)?;
        check_eviction(&about)?;
        // The clock is read after the answer: the server has settled by then, or before.
        let settled_at = Moment::now() + self.settling.saturating_sub(runs_for(&about));
        let crosses_slots = field(&about, "cluster_enabled") != "1";
        let batcher = Batcher::start(connection.clone(), self.batch_scripts.clone(), crosses_slots);
        let server = ServerConnection { connection, batcher, settled_at, crosses_slots };
        Ok(kept.insert(server).clone())
    }

    /// Drops a failed connection, so that the next request makes another one, unless that has
    /// happened already.
    async fn disconnect(&self, failed: &ServerConnection) {
        let mut kept = self.server.lock().await;
        if kept.as_ref().is_some_and(|server| server.batcher.is(&failed.batcher)) {
            *kept = None;
        }
    }

    /// Passes an answer on, and drops the connection if it is no longer usable.
    async fn check_answer<T>(
        &self,
        server: &ServerConnection,
        answer: Result<T, RedisError>,
    ) -> Result<T, BackendError> {
        if answer.as_ref().is_err_and(is_dead) {
            self.disconnect(server).await;
        }
        answer.map_err(failed)
    }

    async fn call<T: FromRedisValue>(
        &self,
        script: &Script,
        call: &Cmd,
        limit: Duration,
    ) -> Result<(T, Moment), BackendError> {
        let server = self.server().await?;
        let mut connection = server.connection.clone();
        let answer = tokio::time::timeout(limit, run(&mut connection, script, call)).await;
        // A call that was cut off here counts as a silent connection, which is not used again.
        let answer = answer.unwrap_or_else(|elapsed| Err(std::io::Error::from(elapsed).into()));
        Ok((self.check_answer(&server, answer).await?, server.settled_at))
    }

    /// Takes a lock that is free and has no other state, and returns its fencing token. Otherwise
    /// nothing has happened, and the full request must follow.
    pub(super) async fn take(&self, request: &AcquireRequest) -> Result<Option<i64>, BackendError> {
        let server = self.server().await?;
        let fencing_token = self.check_answer(&server, server.batcher.take(request).await).await?;
        Ok((fencing_token > 0).then_some(fencing_token))
    }

    /// Frees a lock that has no state but its holder, and returns whether it did. Otherwise nothing
    /// has happened, and the full release must follow.
    pub(super) async fn free(&self, lock_ref: &LockRef) -> Result<bool, BackendError> {
        let server = self.server().await?;
        Ok(self.check_answer(&server, server.batcher.free(lock_ref).await).await? == 1)
    }

    /// Requests a lock. Also returns since when this server can be trusted about a free lock.
    pub(super) async fn acquire(
        &self,
        request: &AcquireRequest,
        agreed: Agreement,
    ) -> Result<(ScriptReply, Moment), BackendError> {
        let queue = match request.queue {
            QueueMode::NoWait => 0,
            QueueMode::Join | QueueMode::KeepPlace => 1,
        };
        let mut call = call_of(&self.acquire, &request.name, &PARTS);
        call.write_arg_fmt(request.id);
        call.arg(milliseconds(request.lease)).arg(&*request.label).arg(queue);
        call.arg(milliseconds(WAITER_TIMEOUT)).arg(milliseconds(WAITER_HEARTBEAT));
        for number in [agreed.fencing_token, agreed.arrival] {
            call.arg(number.map(|number| number.to_string()).unwrap_or_default());
        }
        match request.mode {
            LockMode::Exclusive => call.arg(""),
            LockMode::Shared { permits } => call.arg(permits),
        };
        call.arg(CHANNEL);
        self.call(&self.acquire, &call, noticed_within(request.lease)).await
    }

    pub(super) async fn renew(
        &self,
        lock_refs: &[LockRef],
        lease: Duration,
    ) -> Result<Vec<bool>, BackendError> {
        let together = if self.server().await?.crosses_slots { RENEWED_TOGETHER } else { 1 };
        let renewed = lock_refs.chunks(together).map(|lock_refs| self.renew_some(lock_refs, lease));
        Ok(try_join_all(renewed).await?.concat())
    }

    async fn renew_some(
        &self,
        lock_refs: &[LockRef],
        lease: Duration,
    ) -> Result<Vec<bool>, BackendError> {
        let parts = ["", SHARES, LABELS];
        let mut call = begin(&self.renew, lock_refs.len() * parts.len());
        for lock_ref in lock_refs {
            keys(&mut call, &lock_ref.name, &parts);
        }
        call.arg(milliseconds(lease));
        for lock_ref in lock_refs {
            call.write_arg_fmt(lock_ref.id);
        }
        let (held, _): (Vec<i64>, _) = self.call(&self.renew, &call, noticed_within(lease)).await?;
        Ok(held.into_iter().map(|held| held == 1).collect())
    }

    pub(super) async fn release(
        &self,
        request: &ReleaseRequest,
    ) -> Result<ScriptReply, BackendError> {
        let mut call = call_of(&self.release, &request.lock_ref.name, &PARTS);
        call.write_arg_fmt(request.lock_ref.id);
        call.arg(i64::from(request.refuse_late_requests)).arg(milliseconds(BARRED)).arg(CHANNEL);
        Ok(self.call(&self.release, &call, ANSWER_WITHIN).await?.0)
    }

    pub(super) async fn listen(
        &self,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError> {
        let subscribe = async {
            let (mut sink, messages) = self.client.get_async_pubsub().await?.split();
            sink.subscribe(format!("{CHANNEL}{client:032x}")).await?;
            Ok((sink, messages))
        };
        let (sink, messages) =
            within(ANSWER_WITHIN, async { subscribe.await.map_err(failed) }).await?;
        // A waiter may have missed a wake-up before this subscription.
        let _ = wake_ups.send(WakeUp::All);
        tokio::select! {
            error = pass_on(messages, wake_ups) => Err(error),
            error = ask_for_signs(sink) => Err(error),
        }
    }
}

/// Forwards what a subscription hears, until its connection ends.
async fn pass_on(
    mut messages: PubSubStream,
    wake_ups: &mpsc::UnboundedSender<WakeUp>,
) -> BackendError {
    while let Some(message) = messages.next().await {
        let id: String = message.get_payload().unwrap_or_default();
        if let Some(id) = AcquisitionId::parse(&id) {
            // The receiver ends with the caller of this function.
            let _ = wake_ups.send(WakeUp::One(id));
        }
    }
    let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    BackendError::passing("the listening connection was lost", error)
}

/// Pings the server until it does not answer. Nothing else is sent over this connection, so one
/// that fell silent would be listened to forever.
async fn ask_for_signs(mut sink: PubSubSink) -> BackendError {
    loop {
        tokio::time::sleep(SIGN_EVERY).await;
        match within(ANSWER_WITHIN, async { Ok(sink.ping::<Value>().await) }).await {
            Ok(Err(error)) if is_dead(&error) => return failed(error),
            // A refusal is a sign of life as well.
            Ok(_) => {}
            Err(silence) => return silence,
        }
    }
}

/// Settings by which the system notices a host that is gone without closing its connections.
fn tcp_settings() -> TcpSettings {
    let keepalive = socket2::TcpKeepalive::new().with_time(SILENT_MAX).with_interval(TRIED_EVERY);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(SILENT_MAX);
    settings
}

/// Returns whether a connection is unusable after this error. One that does not answer in time may
/// never answer again: it is silent, and not broken, when a host or a firewall has forgotten it. A
/// primary that was demoted keeps its connections and refuses every write: only another connection
/// can lead to its successor.
pub(super) fn is_dead(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_timeout() || is_read_only(error)
}

/// Returns whether the server is a replica. Before version 7, Redis reports the error of a script's
/// command within the text of another one.
fn is_read_only(error: &RedisError) -> bool {
    error.code() == Some(READ_ONLY) || error.detail().is_some_and(|text| text.contains(READ_ONLY))
}

/// When silence about a lease is noticed: before the caller gives up, which it does after a third
/// of the lease.
fn noticed_within(lease: Duration) -> Duration {
    ANSWER_WITHIN.min(lease / 4)
}

/// Finds the value of a line `name:value` in what a server reports about itself.
fn field<'a>(about: &'a str, name: &str) -> &'a str {
    let mut lines = about.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| *key == name).map_or("", |(_, value)| value.trim())
}

/// Refuses a server that may delete keys when memory is short: held locks, which have an expiry,
/// under the policies `volatile-*`, and fencing tokens too under `allkeys-*`.
fn check_eviction(about: &str) -> Result<(), BackendError> {
    match field(about, "maxmemory_policy") {
        "noeviction" => Ok(()),
        policy => Err(BackendError::lasting(format!(
            "maxmemory-policy is `{policy}`, which may evict held locks or fencing tokens: set it \
            to noeviction"
        ))),
    }
}

/// Runs a script, and loads it first if the server does not know it.
pub(super) async fn run<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    script: &Script,
    call: &Cmd,
) -> Result<T, RedisError> {
    let answer = call.query_async(connection).await;
    let unknown = ErrorKind::Server(ServerErrorKind::NoScript);
    if !answer.as_ref().is_err_and(|error: &RedisError| error.kind() == unknown) {
        return answer;
    }
    // The server has done nothing, so the call may be sent again.
    script.load_async(connection).await?;
    call.query_async(connection).await
}

pub(super) fn call_of(script: &Script, name: &LockName, parts: &[&str]) -> Cmd {
    let mut call = begin(script, parts.len());
    keys(&mut call, name, parts);
    call
}

pub(super) fn begin(script: &Script, keys: usize) -> Cmd {
    let mut call = redis::cmd("EVALSHA");
    call.arg(script.get_hash()).arg(keys);
    call
}

/// Adds keys of a lock. All of them are in one slot of a cluster.
pub(super) fn keys(call: &mut Cmd, name: &LockName, parts: &[&str]) {
    for part in parts {
        call.write_arg_fmt(format_args!("handfast:lock:{{{name}}}{part}"));
    }
}

pub(super) fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn failed(error: RedisError) -> BackendError {
    BackendError::passing("Redis failed", error)
}

/// How long a server has surely been running. The reported uptime is in whole seconds, and up to a
/// second of it may not have passed yet.
fn runs_for(about: &str) -> Duration {
    let says: u64 = field(about, "uptime_in_seconds").parse().unwrap_or(0);
    Duration::from_secs(says.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_fields_are_found_by_name() {
        let about = "# Server\r\nuptime_in_seconds:17\r\nuptime_in_days:0\r\n";
        assert_eq!(field(about, "uptime_in_seconds"), "17");
        assert_eq!(field(about, "uptime"), "");
        assert_eq!(runs_for(about), Duration::from_secs(16));
        assert_eq!(runs_for("uptime_in_seconds:0\r\n"), Duration::ZERO);
    }

    /// Regression: `volatile-*` was accepted, under which a held lock is evicted first.
    #[test]
    fn server_that_evicts_is_refused() {
        let of = |policy| format!("maxmemory:0\r\nmaxmemory_policy:{policy}\r\n");
        assert!(check_eviction(&of("noeviction")).is_ok());
        for policy in ["volatile-lru", "volatile-ttl", "allkeys-lru", "allkeys-random", ""] {
            let refused = check_eviction(&of(policy)).unwrap_err();
            assert!(refused.is_final() && refused.to_string().contains(policy), "{refused}");
        }
    }

    /// Regression: the connection to a demoted primary was kept, and every request over it failed.
    #[test]
    fn connection_to_a_replica_is_dead() {
        for (line, expected) in [
            ("-READONLY You can't write against a read only replica.", true),
            (
                "-READONLY You can't write against a read only replica. script: 5d33ab8, on \
                 @user_script:12.",
                true,
            ),
            (
                "-ERR Error running script (call to f_5d33ab8): @user_script:12: @user_script: 12: \
                 -READONLY You can't write against a read only replica.",
                true,
            ),
            ("-WRONGTYPE Operation against a key holding the wrong kind of value", false),
            ("-NOSCRIPT No matching script. Please use EVAL.", false),
        ] {
            let reply = redis::parse_redis_value(format!("{line}\r\n").as_bytes());
            let error = reply.and_then(Value::extract_error).unwrap_err();
            assert_eq!(is_dead(&error), expected, "{line}");
        }
    }
}
