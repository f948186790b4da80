//! A proxy between a client and its database server that breaks when COMMIT passes, or is down.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use sqlx::{ConnectOptions, MySql, Pool, Postgres};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::at::TestDatabase;

/// The fault of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The wire carries everything.
    None,
    /// The wire breaks at the next COMMIT, before it arrives.
    LoseCommit,
    /// The wire breaks after the next COMMIT, before its answer arrives.
    LoseAnswer,
    /// The next COMMIT takes effect and is answered as interrupted. MariaDB does so if the
    /// interruption comes between COMMIT and the end of its call.
    Interrupt,
    /// The next COMMIT takes effect and is answered by the loss of the server, as PgBouncer does.
    LoseServer,
    /// The wire keeps the next COMMIT until it is down.
    Hold,
    /// The wire accepts connections and drops them.
    Down,
}

/// A database that can be reached through a wire.
pub(crate) trait Wired: TestDatabase {
    /// Bytes that occur only in the call that commits a branch: COMMIT as the driver sends it,
    /// which "READ COMMITTED" does not contain, or a value of the undo row in the same call.
    const COMMIT: &'static [u8];
    /// The option that turns encryption off, so that the wire can read the bytes.
    const NO_TLS: (&'static str, &'static str);
    /// The server's port if its URL has none.
    const PORT: u16;

    fn open(url: String) -> BoxFuture<'static, Pool<Self>>;
}

impl Wired for Postgres {
    const COMMIT: &'static [u8] = b"Q\0\0\0\x0bCOMMIT\0";
    const NO_TLS: (&'static str, &'static str) = ("sslmode", "disable");
    const PORT: u16 = 5432;

    fn open(url: String) -> BoxFuture<'static, Pool<Self>> {
        async move { Pool::connect(&url).await.unwrap() }.boxed()
    }
}

impl Wired for MySql {
    const COMMIT: &'static [u8] = b"format=json";
    const NO_TLS: (&'static str, &'static str) = ("ssl-mode", "DISABLED");
    const PORT: u16 = 3306;

    fn open(url: String) -> BoxFuture<'static, Pool<Self>> {
        async move { Pool::connect(&url).await.unwrap() }.boxed()
    }
}

/// The wire to one server.
pub(crate) struct CommitWire {
    address: SocketAddr,
    fault: Arc<Mutex<Fault>>,
    cuts: watch::Sender<()>,
}

impl CommitWire {
    /// Returns a wire to the server of a pool, and the URL of the same database through it.
    pub(crate) async fn to<DB: Wired>(pool: &Pool<DB>) -> (Self, String) {
        Self::breaking_at(pool, DB::COMMIT).await
    }

    /// As [`Self::to`], with a wire that breaks where these bytes pass.
    pub(crate) async fn breaking_at<DB: Wired>(
        pool: &Pool<DB>,
        commit: &'static [u8],
    ) -> (Self, String) {
        let mut url = pool.connect_options().to_url_lossy();
        let host = url.host_str().expect("the test servers are reached by TCP").to_owned();
        let server = (host, url.port().unwrap_or(DB::PORT));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cuts, cut) = watch::channel(());
        let fault = Arc::new(Mutex::new(Fault::None));
        let carried = Arc::clone(&fault);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *carried.lock().unwrap() == Fault::Down {
                    continue;
                }
                let server = TcpStream::connect(server.clone()).await.unwrap();
                let fault = Arc::clone(&carried);
                tokio::spawn(carry(client, server, fault, cut.clone(), commit));
            }
        });
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(address.port())).unwrap();
        url.query_pairs_mut().append_pair(DB::NO_TLS.0, DB::NO_TLS.1);
        (Self { address, fault, cuts }, url.to_string())
    }

    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
        if fault == Fault::Down {
            self.cuts.send_replace(());
        }
    }

    /// Returns whether the fault that was set has happened.
    pub(crate) fn has_broken(&self) -> bool {
        *self.fault.lock().unwrap() == Fault::None
    }
}

impl std::fmt::Debug for CommitWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommitWire").field("address", &self.address).finish_non_exhaustive()
    }
}

/// An error of MariaDB: length, packet number, packet type, code 1317, SQLSTATE.
const INTERRUPTED: &[u8] = b"\x12\0\0\x01\xff\x25\x05#70100interrupt";

/// An error of PostgreSQL's protocol: length, severity, SQLSTATE, text.
const SERVER_LOST: &[u8] = b"E\0\0\0\x30SFATAL\0VFATAL\0C08P01\0Mserver conn crashed?\0\0";

async fn carry(
    client: TcpStream,
    server: TcpStream,
    fault: Arc<Mutex<Fault>>,
    mut cut: watch::Receiver<()>,
    commit: &'static [u8],
) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (mut asked, mut answered) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    cut.mark_unchanged();
    loop {
        let carried = tokio::select! {
            Ok(read @ 1..) = from_client.read(&mut asked) => {
                let request = &asked[..read];
                match due(&fault, request, commit) {
                    Fault::LoseCommit => return,
                    Fault::Hold => {
                        let _down = cut.changed().await;
                        return;
                    }
                    fault @ (Fault::LoseAnswer | Fault::Interrupt | Fault::LoseServer) => {
                        to_server.write_all(request).await.unwrap();
                        // The server has answered, so it has committed.
                        let _answer_bytes = from_server.read(&mut answered).await.unwrap();
                        match fault {
                            Fault::Interrupt => to_client.write_all(INTERRUPTED).await,
                            Fault::LoseServer => {
                                to_client.write_all(SERVER_LOST).await.unwrap();
                                return;
                            }
                            Fault::LoseAnswer
                            | Fault::None
                            | Fault::LoseCommit
                            | Fault::Hold
                            | Fault::Down => return,
                        }
                    }
                    Fault::None | Fault::Down => to_server.write_all(request).await,
                }
            }
            Ok(read @ 1..) = from_server.read(&mut answered) => {
                to_client.write_all(&answered[..read]).await
            }
            _ = cut.changed() => return,
            else => return,
        };
        if carried.is_err() {
            return;
        }
    }
}

/// Returns the fault that this request meets. A fault happens once.
fn due(fault: &Mutex<Fault>, request: &[u8], commit: &[u8]) -> Fault {
    let mut fault = fault.lock().unwrap();
    let waits = !matches!(*fault, Fault::None | Fault::Down);
    let meets = waits && request.windows(commit.len()).any(|window| window == commit);
    if meets { std::mem::replace(&mut *fault, Fault::None) } else { Fault::None }
}
