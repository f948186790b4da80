//! A wire to a server that falls silent once: nobody is answered, and no connection breaks, as when
//! a host vanishes behind a proxy or in the midst of a statement.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// A wire, carried by threads of this process.
#[derive(Debug)]
pub struct Wire {
    address: SocketAddr,
    at: &'static [u8],
    /// How often the bytes have yet to pass.
    left: AtomicUsize,
    is_silent: AtomicBool,
    /// Whether those who were connected then are never answered again.
    forgets: AtomicBool,
}

impl Wire {
    /// A wire to a server that falls silent where these bytes pass for the n-th time.
    ///
    /// # Errors
    /// When no port is free.
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

    /// Where clients find the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether somebody waits for an answer in vain.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::SeqCst)
    }

    /// Carries what comes from here on. What was sent meanwhile is lost.
    pub fn answer_again(&self) {
        self.is_silent.store(false, Ordering::SeqCst);
    }

    /// The same, for those alone who connect after the silence began.
    pub fn answer_newcomers(&self) {
        self.forgets.store(true, Ordering::SeqCst);
        self.answer_again();
    }

    /// Until one of the ends closes, of which the other one hears.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream) -> io::Result<()> {
        let came_later = self.left.load(Ordering::SeqCst) == 0;
        let mut bytes = vec![0; 16 * 1024];
        loop {
            let read = from.read(&mut bytes)?;
            if read == 0 {
                return to.shutdown(Shutdown::Both);
            }
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
