//! One Redis server: its connection and its scripts. What its answers mean for a lock is not
//! decided here.

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

use super::gather::{Gathering, Scripts};
use super::script;
use crate::backend::{Ask, Hold, Leave, Place, Share, WAITER_ALIVE, WAITER_BEAT, Wake};
use crate::clock::Moment;
use crate::error::BackendError;
use crate::name::{LockName, Token};
use crate::shell::within;

/// How long a token stays barred: longer than any request of it can be under way.
pub(super) const BARRED: Duration = Duration::from_secs(60);

/// How long an answer is waited for before the request is sent again: longer than a busy server
/// thinks, and no longer than a waiter is silent. A majority does not wait for a server that hangs.
pub(super) const ANSWER_WITHIN: Duration = WAITER_BEAT;

/// How long a connection may carry nothing of what was sent, and how often a silent one is tried.
const SILENT_MAX: Duration = Duration::from_secs(5);
const TRIED_EVERY: Duration = Duration::from_secs(1);
/// How often the server is asked whether it still has those who listen.
const SIGN_EVERY: Duration = Duration::from_secs(5);

/// How many leases one call renews: the server does nothing else meanwhile.
const RENEWED_TOGETHER: usize = 256;

/// Before the name of the client whose waiter is woken.
const CHANNEL: &str = "handfast:lock-wake:";

/// Where the counter of fences is.
const FENCE: &str = ":fence";
/// Where those who hold parts are, and their labels.
const SHARES: &str = ":shares";
const LABELS: &str = ":labels";

/// The keys of a lock that is held as a whole: what it says, and its counter.
pub(super) const HOLDER: [&str; 2] = ["", FENCE];
/// All keys of a lock.
const PARTS: [&str; 8] =
    ["", FENCE, ":queue", ":alive", ":barred", SHARES, LABELS, ":shared-fence"];

/// What the scripts answer: a fence if granted or freed, else the holder; see `script.rs`.
pub(super) type Row = (i64, String, String, i64, i64, i64);

/// What several nodes have agreed on for an acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) fence: Option<i64>,
    pub(super) arrival: Option<i64>,
}

/// A server that answers when it is asked, or not.
#[derive(Debug)]
pub(super) struct Node {
    client: Client,
    /// Shared by all requests; none after it failed.
    link: Mutex<Option<Link>>,
    /// For how long after its start a server may have forgotten what it had granted.
    settling: Duration,
    /// A connection that says nothing for longer is of no use.
    answer_within: Duration,
    short: Scripts,
    ask: Script,
    renew: Script,
    leave: Script,
}

/// A connection to one run of the server: a restart ends it.
#[derive(Clone, Debug)]
struct Link {
    connection: MultiplexedConnection,
    gathering: Gathering,
    settled_at: Moment,
    /// Whether a script may touch locks in several slots: not in a cluster.
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
            link: Mutex::new(None),
            settling,
            answer_within,
            short: Scripts::new(),
            ask: Script::new(&[script::COMMON, script::ASK].concat()),
            renew: Script::new(script::RENEW),
            leave: Script::new(&[script::COMMON, script::LEAVE].concat()),
        })
    }

    /// Connects, and sees to it that the server does not throw fencing tokens away when memory is
    /// short. Answers since when the server has surely forgotten nothing that is still of use.
    pub(super) async fn check(&self) -> Result<Moment, BackendError> {
        Ok(self.link().await?.settled_at)
    }

    async fn link(&self) -> Result<Link, BackendError> {
        let mut kept = self.link.lock().await;
        if let Some(link) = &*kept {
            return Ok(link.clone());
        }
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(self.answer_within));
        let connect = self.client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connect.await.map_err(failed)?;
        let about: String =
            redis::cmd("INFO").query_async(&mut connection).await.map_err(failed)?;
        if field(&about, "maxmemory_policy").starts_with("allkeys") {
            return Err(BackendError::lasting(
                "maxmemory-policy evicts keys without expiry, and with them fencing tokens: set it \
                to noeviction or volatile-*",
            ));
        }
        let settled_at = Moment::now() + self.settling.saturating_sub(runs_for(&about));
        let crosses_slots = field(&about, "cluster_enabled") != "1";
        let gathering = Gathering::start(connection.clone(), self.short.clone(), crosses_slots);
        let link = Link { connection, gathering, settled_at, crosses_slots };
        Ok(kept.insert(link).clone())
    }

    /// The next request makes another one, unless that has happened already.
    async fn unlink(&self, failed: &Link) {
        let mut kept = self.link.lock().await;
        if kept.as_ref().is_some_and(|link| link.gathering.is(&failed.gathering)) {
            *kept = None;
        }
    }

    /// What a connection has answered; one that is of no use any more is left.
    async fn outcome<T>(
        &self,
        link: &Link,
        answer: Result<T, RedisError>,
    ) -> Result<T, BackendError> {
        if answer.as_ref().is_err_and(is_dead) {
            self.unlink(link).await;
        }
        answer.map_err(failed)
    }

    async fn call<T: FromRedisValue>(
        &self,
        script: &Script,
        call: &Cmd,
        limit: Duration,
    ) -> Result<(T, Moment), BackendError> {
        let link = self.link().await?;
        let mut connection = link.connection.clone();
        let answer = tokio::time::timeout(limit, run(&mut connection, script, call)).await;
        let answer = answer.unwrap_or_else(|elapsed| Err(std::io::Error::from(elapsed).into()));
        Ok((self.outcome(&link, answer).await?, link.settled_at))
    }

    /// Takes a lock that is free and of which there is nothing else; answers its fence. Otherwise
    /// nothing has happened, and the lock is to be asked for.
    pub(super) async fn take(&self, ask: &Ask) -> Result<Option<i64>, BackendError> {
        let link = self.link().await?;
        let fence = self.outcome(&link, link.gathering.take(ask).await).await?;
        Ok((fence > 0).then_some(fence))
    }

    /// Frees a lock of which there is nothing but its holder; answers whether it did. Otherwise
    /// nothing has happened, and the lock is to be left.
    pub(super) async fn free(&self, hold: &Hold) -> Result<bool, BackendError> {
        let link = self.link().await?;
        Ok(self.outcome(&link, link.gathering.free(hold).await).await? == 1)
    }

    /// Answers also since when what this server says of a free lock can be believed.
    pub(super) async fn ask(
        &self,
        ask: &Ask,
        agreed: Agreed,
    ) -> Result<(Row, Moment), BackendError> {
        let place = match ask.place {
            Place::None => 0,
            Place::Join | Place::Keep => 1,
        };
        let mut call = call_of(&self.ask, &ask.name, &PARTS);
        call.write_arg_fmt(ask.token);
        call.arg(milliseconds(ask.lease)).arg(&*ask.label).arg(place);
        call.arg(milliseconds(WAITER_ALIVE)).arg(milliseconds(WAITER_BEAT));
        for number in [agreed.fence, agreed.arrival] {
            call.arg(number.map(|number| number.to_string()).unwrap_or_default());
        }
        match ask.share {
            Share::All => call.arg(""),
            Share::One { of } => call.arg(of),
        };
        call.arg(CHANNEL);
        self.call(&self.ask, &call, noticed_within(ask.lease)).await
    }

    pub(super) async fn renew(
        &self,
        holds: &[Hold],
        lease: Duration,
    ) -> Result<Vec<bool>, BackendError> {
        let together = if self.link().await?.crosses_slots { RENEWED_TOGETHER } else { 1 };
        let renewed = holds.chunks(together).map(|holds| self.renew_some(holds, lease));
        Ok(try_join_all(renewed).await?.concat())
    }

    async fn renew_some(&self, holds: &[Hold], lease: Duration) -> Result<Vec<bool>, BackendError> {
        let parts = ["", SHARES, LABELS];
        let mut call = begin(&self.renew, holds.len() * parts.len());
        for hold in holds {
            keys(&mut call, &hold.name, &parts);
        }
        call.arg(milliseconds(lease));
        for hold in holds {
            call.write_arg_fmt(hold.token);
        }
        let (held, _): (Vec<i64>, _) = self.call(&self.renew, &call, noticed_within(lease)).await?;
        Ok(held.into_iter().map(|held| held == 1).collect())
    }

    pub(super) async fn leave(&self, leave: &Leave) -> Result<Row, BackendError> {
        let mut call = call_of(&self.leave, &leave.hold.name, &PARTS);
        call.write_arg_fmt(leave.hold.token);
        call.arg(i64::from(leave.is_doubtful)).arg(milliseconds(BARRED)).arg(CHANNEL);
        Ok(self.call(&self.leave, &call, ANSWER_WITHIN).await?.0)
    }

    pub(super) async fn listen(
        &self,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError> {
        let subscribe = async {
            let (mut sink, messages) = self.client.get_async_pubsub().await?.split();
            sink.subscribe(format!("{CHANNEL}{client:032x}")).await?;
            Ok((sink, messages))
        };
        let (sink, messages) =
            within(ANSWER_WITHIN, async { subscribe.await.map_err(failed) }).await?;
        // Whoever was next before may have been called already.
        let _ = wakes.send(Wake::All);
        tokio::select! {
            error = pass_on(messages, wakes) => Err(error),
            error = ask_for_signs(sink) => Err(error),
        }
    }
}

/// Passes on what a subscription hears, until its connection ends.
async fn pass_on(mut messages: PubSubStream, wakes: &mpsc::UnboundedSender<Wake>) -> BackendError {
    while let Some(message) = messages.next().await {
        let token: String = message.get_payload().unwrap_or_default();
        if let Some(token) = Token::parse(&token) {
            // The receiver ends with the one who called this.
            let _ = wakes.send(Wake::One(token));
        }
    }
    let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    BackendError::passing("the listening connection was lost", error)
}

/// Asks the server for signs of life, until there is none: nothing else is sent to it there, so a
/// connection that fell silent would be listened to for ever.
async fn ask_for_signs(mut sink: PubSubSink) -> BackendError {
    loop {
        tokio::time::sleep(SIGN_EVERY).await;
        match within(ANSWER_WITHIN, async { Ok(sink.ping::<Value>().await) }).await {
            Ok(Err(error)) if is_dead(&error) => return failed(error),
            // A refusal is a sign as well.
            Ok(_) => {}
            Err(silence) => return silence,
        }
    }
}

/// A host that is gone without a word is noticed by the system.
fn tcp_settings() -> TcpSettings {
    let keepalive = socket2::TcpKeepalive::new().with_time(SILENT_MAX).with_interval(TRIED_EVERY);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(SILENT_MAX);
    settings
}

/// Whether a connection is of no use after that. One that does not answer in time may never: it is
/// silent, and not broken, when a host or a firewall has forgotten it.
pub(super) fn is_dead(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_timeout()
}

/// When the silence about a lease is noticed here: before whoever waits gives up, after a third.
fn noticed_within(lease: Duration) -> Duration {
    ANSWER_WITHIN.min(lease / 4)
}

/// A line such as `name:value` of what a server says about itself.
fn field<'a>(about: &'a str, name: &str) -> &'a str {
    let mut lines = about.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| *key == name).map_or("", |(_, value)| value.trim())
}

/// Runs a script, which the server may have to be told first.
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

/// All keys of a lock are in one slot of a cluster.
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

/// How long a server has surely been running. It takes one clock's whole seconds from another's: of
/// what it says up to a second has not passed yet.
fn runs_for(about: &str) -> Duration {
    let says: u64 = field(about, "uptime_in_seconds").parse().unwrap_or(0);
    Duration::from_secs(says.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_about_itself_is_found_by_name() {
        let about = "# Server\r\nuptime_in_seconds:17\r\nuptime_in_days:0\r\n";
        assert_eq!(field(about, "uptime_in_seconds"), "17");
        assert_eq!(field(about, "uptime"), "");
        assert_eq!(runs_for(about), Duration::from_secs(16));
        assert_eq!(runs_for("uptime_in_seconds:0\r\n"), Duration::ZERO);
    }
}
