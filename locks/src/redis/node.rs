//! One Redis server: its connection and its scripts. What its answers mean for a lock is not
//! decided here.

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt;
use futures::future::try_join_all;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisWrite, Script,
    ServerErrorKind,
};
use tokio::sync::{Mutex, mpsc};

use super::gather::Gathering;
use super::script;
use crate::backend::{Ask, Hold, Leave, Place, Share, WAITER_ALIVE, WAITER_BEAT, Wake};
use crate::clock::Moment;
use crate::error::BackendError;
use crate::name::{LockName, Token};

/// How long a token stays barred: longer than any request of it can be under way.
pub(super) const BARRED: Duration = Duration::from_secs(60);

/// How long an answer is waited for before the request is sent again: longer than a busy server
/// thinks, and no longer than a waiter is silent. A majority does not wait for a server that hangs.
const ANSWER_WITHIN: Duration = WAITER_BEAT;

/// How many leases one call renews: the server does nothing else meanwhile.
const RENEWED_TOGETHER: usize = 256;

/// Before the name of the client whose waiter is woken.
const CHANNEL: &str = "handfast:lock-wake:";

/// Where the counter of fences is.
const FENCE: &str = ":fence";
/// Where those who hold parts are, and their labels.
const SHARES: &str = ":shares";
const LABELS: &str = ":labels";

/// The keys of a lock that is held as a whole.
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
    short: Script,
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
    pub(super) fn new(url: &str, settling: Duration) -> Result<Self, BackendError> {
        Ok(Self {
            client: Client::open(url).map_err(failed)?,
            link: Mutex::new(None),
            settling,
            short: Script::new(script::SHORT),
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
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER_WITHIN));
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
        // Rounded down by the server, which is the safe direction.
        let runs_for = Duration::from_secs(field(&about, "uptime_in_seconds").parse().unwrap_or(0));
        let settled_at = Moment::now() + self.settling.saturating_sub(runs_for);
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
        if answer.as_ref().is_err_and(RedisError::is_unrecoverable_error) {
            self.unlink(link).await;
        }
        answer.map_err(failed)
    }

    async fn call<T: FromRedisValue>(
        &self,
        script: &Script,
        call: &Cmd,
    ) -> Result<(T, Moment), BackendError> {
        let link = self.link().await?;
        let answer = run(&mut link.connection.clone(), script, call).await;
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
        self.call(&self.ask, &call).await
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
        let (held, _): (Vec<i64>, _) = self.call(&self.renew, &call).await?;
        Ok(held.into_iter().map(|held| held == 1).collect())
    }

    pub(super) async fn leave(&self, leave: &Leave) -> Result<Row, BackendError> {
        let mut call = call_of(&self.leave, &leave.hold.name, &PARTS);
        call.write_arg_fmt(leave.hold.token);
        call.arg(i64::from(leave.is_doubtful)).arg(milliseconds(BARRED)).arg(CHANNEL);
        Ok(self.call(&self.leave, &call).await?.0)
    }

    pub(super) async fn listen(
        &self,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError> {
        let mut subscription = self.client.get_async_pubsub().await.map_err(failed)?;
        subscription.subscribe(format!("{CHANNEL}{client:032x}")).await.map_err(failed)?;
        // Whoever was next before may have been called already.
        let _ = wakes.send(Wake::All);
        let mut messages = subscription.on_message();
        while let Some(message) = messages.next().await {
            let token: String = message.get_payload().unwrap_or_default();
            if let Some(token) = Token::parse(&token) {
                // The receiver ends with the one who called this.
                let _ = wakes.send(Wake::One(token));
            }
        }
        let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        Err(BackendError::passing("the listening connection was lost", error))
    }
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

fn call_of(script: &Script, name: &LockName, parts: &[&str]) -> Cmd {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_about_itself_is_found_by_name() {
        let about = "# Server\r\nuptime_in_seconds:17\r\nuptime_in_days:0\r\n";
        assert_eq!(field(about, "uptime_in_seconds"), "17");
        assert_eq!(field(about, "uptime"), "");
    }
}
