//! A connection to a server that falls silent once: no request is answered and no connection
//! breaks, as when a host vanishes behind a proxy or in the middle of a statement.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// A proxy of one server, run by threads of this process.
#[derive(Debug)]
pub struct Wire {
    address: SocketAddr,
    at: &'static [u8],
    /// How often the bytes must still pass before the silence.
    left: AtomicUsize,
    is_silent: AtomicBool,
    /// Whether connections from before the silence are never answered again.
    forgets: AtomicBool,
}

impl Wire {
    /// Returns a wire to a server that falls silent when these bytes pass for the n-th time.
    ///
    /// # Errors
    /// Returns an error if no port is free.
    pub fn to(
        host: String,
        port: u16,
        at: &'static [u8],
        nth: NonZeroUsize,
    ) -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (left, is_silent) = (AtomicUsize::new(nth.get()), AtomicBool::new(false));
        let forgets = AtomicBool::new(false);
        let wire = Arc::new(Self { address, at, left, is_silent, forgets });
        let carried = Arc::clone(&wire);
        thread::spawn(move || -> io::Result<()> {
            loop {
                let (client, _) = listener.accept()?;
                let server = TcpStream::connect((host.as_str(), port))?;
                for (from, to) in [
                    (client.try_clone()?, server.try_clone()?),
                    (server.try_clone()?, client.try_clone()?),
                ] {
                    let wire = Arc::clone(&carried);
                    thread::spawn(move || wire.carry(from, to));
                }
            }
        });
        Ok(wire)
    }

    /// Returns the address at which clients reach the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether the wire drops what is sent.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::SeqCst)
    }

    /// Carries nothing from now on.
    pub fn fall_silent(&self) {
        self.left.store(0, Ordering::SeqCst);
        self.is_silent.store(true, Ordering::SeqCst);
    }

    /// Carries what is sent from now on. What was sent during the silence is lost.
    pub fn answer_again(&self) {
        self.is_silent.store(false, Ordering::SeqCst);
    }

    /// Carries what is sent from now on, but only on connections made after the silence began.
    pub fn answer_newcomers(&self) {
        self.forgets.store(true, Ordering::SeqCst);
        self.answer_again();
    }

    /// Carries bytes one way until either end closes, and then closes the other.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream) -> io::Result<()> {
        let came_later = self.left.load(Ordering::SeqCst) == 0;
        let mut bytes = vec![0; 16 * 1024];
        loop {
            let read = from.read(&mut bytes)?;
            if read == 0 {
                return to.shutdown(Shutdown::Both);
            }
            // The bytes are looked at before they are carried: those that begin the silence are the
            // first that are lost.
            self.look_at(&bytes[..read]);
            let is_forgotten = !came_later && self.forgets.load(Ordering::SeqCst);
            if !is_forgotten && !self.is_silent() {
                to.write_all(&bytes[..read])?;
            }
        }
    }

    fn look_at(&self, bytes: &[u8]) {
        let less = |left: usize| left.checked_sub(1);
        let meets = bytes.windows(self.at.len()).any(|window| window == self.at);
        if meets && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) == Ok(1) {
            self.is_silent.store(true, Ordering::SeqCst);
        }
    }
}
