//! The way from one process to the store: a proxy that can be stopped, as if the process slept, and
//! that can break a connection or answer in the server's place.
//!
//! What was sent before the gate is stopped arrives when it goes on, also if its sender has given
//! up meanwhile. That is how a late statement of a former leader reaches the database.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long the tests wait for an event that must come.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The event at which something happens on the way, once.
#[derive(Clone, Debug)]
pub(crate) enum Trap {
    /// The gate stops before these bytes pass for the n-th time.
    Stop(&'static [u8], usize),
    /// The connection breaks before these bytes arrive.
    LoseRequest(&'static [u8]),
    /// The connection breaks after these bytes have arrived and were answered.
    LoseAnswer(&'static [u8]),
    /// These bytes do not arrive, and are answered by others.
    Answer(&'static [u8], Vec<u8>),
}

impl Trap {
    fn bytes(&self) -> &'static [u8] {
        match self {
            Self::Stop(bytes, _)
            | Self::LoseRequest(bytes)
            | Self::LoseAnswer(bytes)
            | Self::Answer(bytes, _) => bytes,
        }
    }
}

/// The gate of one process.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Where connections lead that are made from here on.
    server: Mutex<(String, u16)>,
    is_stopped: watch::Sender<bool>,
    trap: Mutex<Option<Trap>>,
    /// Connections that are open.
    open: watch::Sender<BTreeSet<u64>>,
    /// How many pieces have come from clients; a small request is one.
    requests: AtomicU64,
    /// The connection whose request stopped the gate.
    stopped_by: Mutex<Option<u64>>,
}

impl Shared {
    fn trap(&self) -> MutexGuard<'_, Option<Trap>> {
        self.trap.lock().unwrap()
    }

    async fn pass(&self) {
        self.is_stopped.subscribe().wait_for(|is_stopped| !is_stopped).await.unwrap();
    }

    /// Returns the trap that a request springs.
    fn sprung(&self, request: &[u8]) -> Option<Trap> {
        let mut trap = self.trap();
        let bytes = trap.as_ref()?.bytes();
        if !request.windows(bytes.len()).any(|window| window == bytes) {
            return None;
        }
        if let Some(Trap::Stop(_, times @ 2..)) = trap.as_mut() {
            *times -= 1;
            return None;
        }
        trap.take()
    }
}

impl Gate {
    /// Makes a gate to a server.
    pub(crate) async fn to(server: (String, u16)) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server: Mutex::new(server),
            is_stopped: watch::Sender::new(false),
            trap: Mutex::new(None),
            open: watch::Sender::default(),
            requests: AtomicU64::new(0),
            stopped_by: Mutex::default(),
        });
        let accepted = Arc::clone(&shared);
        tokio::spawn(async move {
            for id in 0.. {
                let (client, _) = listener.accept().await.unwrap();
                let server = accepted.server.lock().unwrap().clone();
                tokio::spawn(carry(id, client, server, Arc::clone(&accepted)));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads connections that are made from here on to another server.
    pub(crate) fn lead_to(&self, server: SocketAddr) {
        *self.shared.server.lock().unwrap() = (server.ip().to_string(), server.port());
    }

    /// Lets nothing pass from here on.
    pub(crate) fn stop(&self) {
        self.shared.is_stopped.send_replace(true);
    }

    /// Sets a trap.
    pub(crate) fn set(&self, trap: Trap) {
        *self.shared.trap() = Some(trap);
    }

    /// Returns whether the trap was sprung.
    pub(crate) fn is_sprung(&self) -> bool {
        self.shared.trap().is_none()
    }

    /// Returns how many small requests have come.
    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Waits until a trap has stopped the gate.
    pub(crate) async fn stopped(&self) {
        let mut is_stopped = self.shared.is_stopped.subscribe();
        timeout(LIMIT, is_stopped.wait_for(|is| *is)).await.expect("the gate stops").unwrap();
    }

    /// Lets everything pass, what has waited first.
    pub(crate) fn go_on(&self) {
        self.shared.is_stopped.send_replace(false);
    }

    /// Goes on, and waits until the connection is closed whose request had stopped the gate: then
    /// the server has done with that.
    pub(crate) async fn go_on_to_the_end(&self) {
        self.go_on();
        let Some(stopped_by) = self.shared.stopped_by.lock().unwrap().take() else { return };
        let mut open = self.shared.open.subscribe();
        let is_closed = open.wait_for(|open| !open.contains(&stopped_by));
        timeout(LIMIT, is_closed).await.expect("the connection is closed").unwrap();
    }
}

/// Carries one connection both ways until either end closes.
async fn carry(id: u64, client: TcpStream, server: (String, u16), shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    shared.open.send_modify(|open| {
        open.insert(id);
    });
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (breaks, broken) = watch::channel(false);
    let requests = Requests { id, from_client, to_server, breaks, shared: Arc::clone(&shared) };
    let (answers, answered) = tokio::sync::mpsc::unbounded_channel();
    let there = tokio::spawn(requests.carry(answers));
    carry_answers(from_server, to_client, &shared, broken, answered).await;
    there.abort();
    let _ended = there.await;
    shared.open.send_modify(|open| {
        open.remove(&id);
    });
}

struct Requests {
    id: u64,
    from_client: OwnedReadHalf,
    to_server: OwnedWriteHalf,
    /// Sends that the connection breaks at the server's next answer.
    breaks: watch::Sender<bool>,
    shared: Arc<Shared>,
}

impl Requests {
    async fn carry(mut self, answers: tokio::sync::mpsc::UnboundedSender<Vec<u8>>) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = self.from_client.read(&mut buffer).await {
            self.shared.requests.fetch_add(1, Ordering::SeqCst);
            match self.shared.sprung(&buffer[..read]) {
                Some(Trap::Stop(..)) => {
                    *self.shared.stopped_by.lock().unwrap() = Some(self.id);
                    self.shared.is_stopped.send_replace(true);
                }
                Some(Trap::LoseRequest(_)) => {
                    let _closed = answers.send(Vec::new());
                    return;
                }
                Some(Trap::LoseAnswer(_)) => {
                    self.breaks.send_replace(true);
                }
                Some(Trap::Answer(_, answer)) => {
                    let _sent = answers.send(answer);
                    continue;
                }
                None => {}
            }
            self.shared.pass().await;
            if self.to_server.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
        let _shut = self.to_server.shutdown().await;
        // The server's end of the connection is what ends it.
        std::future::pending::<()>().await;
    }
}

async fn carry_answers(
    mut from_server: OwnedReadHalf,
    mut to_client: OwnedWriteHalf,
    shared: &Shared,
    broken: watch::Receiver<bool>,
    mut answers: tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        tokio::select! {
            read = from_server.read(&mut buffer) => {
                let Ok(read @ 1..) = read else { return };
                if *broken.borrow() {
                    return;
                }
                shared.pass().await;
                // A client that has gone away does not end what it has sent.
                let _sent = to_client.write_all(&buffer[..read]).await;
            }
            Some(answer) = answers.recv() => {
                if answer.is_empty() || to_client.write_all(&answer).await.is_err() {
                    return;
                }
            }
        }
    }
}
