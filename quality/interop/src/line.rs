//! A line between a client and the coordinator that can be cut and mended, and that sees how the
//! client writes.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};

/// The state that the threads of a line share.
#[derive(Debug, Default)]
struct State {
    is_cut: bool,
    /// The encoding of the first frame on the last connection.
    written: Option<FrameEncoding>,
    connections: Vec<TcpStream>,
}

/// Two numbers in the head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameEncoding {
    pub(crate) serializer: u8,
    pub(crate) compressor: u8,
}

impl FrameEncoding {
    fn in_head(head: [u8; 16]) -> Self {
        let [_, _, _, _, _, _, _, _, _, _, serializer, compressor, ..] = head;
        Self { serializer, compressor }
    }
}

/// The line. Its threads end with the process.
#[derive(Debug)]
pub(crate) struct CuttableLine {
    address: SocketAddr,
    target: SocketAddr,
    state: Arc<Mutex<State>>,
    /// Accepts clients until the line is cut.
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

impl CuttableLine {
    /// Returns a line to this address.
    pub(crate) fn to(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (address, state) = (listener.local_addr()?, Arc::default());
        let line = Self { address, target, state, acceptor: Mutex::new(None) };
        line.accept_clients(listener);
        Ok(line)
    }

    /// Returns the address at which clients reach the target through this line.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the encoding of the first frame on the last connection, once there is one.
    pub(crate) fn written(&self) -> Option<FrameEncoding> {
        lock(&self.state).written
    }

    /// Ends every connection and refuses further ones. A connection that was accepted and then
    /// closed would make some clients wait half a minute for an answer.
    pub(crate) fn cut(&self) -> Result<()> {
        lock(&self.state).is_cut = true;
        if let Some(acceptor) = lock(&self.acceptor).take() {
            // Wakes the thread, which then sees that the line is cut.
            drop(TcpStream::connect(self.address)?);
            acceptor.join().map_err(|_panic| anyhow!("a line's thread panicked"))?;
        }
        for connection in lock(&self.state).connections.drain(..) {
            // It may have ended by itself.
            let _ = connection.shutdown(Shutdown::Both);
        }
        Ok(())
    }

    /// Accepts clients again.
    pub(crate) fn mend(&self) -> Result<()> {
        lock(&self.state).is_cut = false;
        self.accept_clients(TcpListener::bind(self.address)?);
        Ok(())
    }

    fn accept_clients(&self, listener: TcpListener) {
        let (target, state) = (self.target, Arc::clone(&self.state));
        let acceptor = thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if lock(&state).is_cut {
                    return;
                }
                // A client that is refused tries again.
                let _ = connect(client, target, &state);
            }
        });
        *lock(&self.acceptor) = Some(acceptor);
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(client: TcpStream, target: SocketAddr, state: &Arc<Mutex<State>>) -> io::Result<()> {
    let server = TcpStream::connect(target)?;
    lock(state).connections.extend([client.try_clone()?, server.try_clone()?]);
    let (requests, towards) = (client.try_clone()?, server.try_clone()?);
    let state = Arc::clone(state);
    thread::spawn(move || carry_requests(requests, towards, &state));
    thread::spawn(move || carry(server, client));
    Ok(())
}

/// Records the encoding of the first frame and carries the rest.
fn carry_requests(mut from: TcpStream, mut to: TcpStream, state: &Mutex<State>) {
    let mut head = [0; 16];
    if from.read_exact(&mut head).is_ok() && to.write_all(&head).is_ok() {
        lock(state).written = Some(FrameEncoding::in_head(head));
        carry(from, to);
    }
}

/// Carries bytes one way until either end is closed.
fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    // The other end may be closed already.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
