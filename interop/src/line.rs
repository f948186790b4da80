//! A line between a client and the coordinator that can be cut and mended.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Result;

/// What both ends share.
#[derive(Debug, Default)]
struct State {
    is_cut: bool,
    connections: Vec<TcpStream>,
}

/// The line. Its threads end with the process.
#[derive(Debug)]
pub(crate) struct Line {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Line {
    /// Leads to this address.
    pub(crate) fn to(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let line = Self { address: listener.local_addr()?, state: Arc::default() };
        let state = Arc::clone(&line.state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Who is refused tries again.
                let _ = connect(client, target, &state);
            }
        });
        Ok(line)
    }

    /// Where clients find the target by way of this line.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends every connection and lets no other come to be.
    pub(crate) fn cut(&self) {
        let mut state = lock(&self.state);
        state.is_cut = true;
        for connection in state.connections.drain(..) {
            // It may have ended by itself.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Lets clients through again.
    pub(crate) fn mend(&self) {
        lock(&self.state).is_cut = false;
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(client: TcpStream, target: SocketAddr, state: &Mutex<State>) -> io::Result<()> {
    let mut state = lock(state);
    if state.is_cut {
        return Ok(());
    }
    let server = TcpStream::connect(target)?;
    state.connections.extend([client.try_clone()?, server.try_clone()?]);
    carry(client.try_clone()?, server.try_clone()?);
    carry(server, client);
    Ok(())
}

/// Carries bytes one way until either end is closed.
fn carry(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let mut bytes = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            if to.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}
