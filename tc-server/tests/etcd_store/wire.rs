//! A connection to a server on which messages are late or lost.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// The fate of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// They arrive.
    Now,
    /// They arrive later, in both directions.
    Later,
    /// Requests arrive, and answers do not.
    WithoutAnswers,
}

/// A proxy of one server, run by threads of this process.
#[derive(Debug)]
pub(crate) struct Wire {
    address: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    delivery: Delivery,
    /// The delivery from the request on that has these bytes.
    next: Option<(Delivery, &'static [u8])>,
    connections: Vec<TcpStream>,
    /// How many pieces of answers have arrived.
    answers: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Answer,
}

impl Wire {
    pub(crate) fn to(server: SocketAddr) -> Arc<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (delivery, connections) = (Delivery::Now, Vec::new());
        let state = Mutex::new(State { delivery, next: None, connections, answers: 0 });
        let wire = Arc::new(Self { address, state, changed: Condvar::new() });
        let accepting = Arc::clone(&wire);
        thread::spawn(move || -> io::Result<()> {
            loop {
                let (client, _) = listener.accept()?;
                let server = TcpStream::connect(server)?;
                let ends = [client.try_clone()?, server.try_clone()?];
                accepting.state().connections.extend(ends);
                let back = (server.try_clone()?, client.try_clone()?);
                for (direction, (from, to)) in
                    [(Direction::Request, (client, server)), (Direction::Answer, back)]
                {
                    let wire = Arc::clone(&accepting);
                    thread::spawn(move || wire.carry(direction, from, to));
                }
            }
        });
        wire
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes the delivery from the request on that has these bytes.
    pub(crate) fn deliver_from(&self, bytes: &'static [u8], delivery: Delivery) {
        self.state().next = Some((delivery, bytes));
    }

    pub(crate) fn deliver(&self, delivery: Delivery) {
        self.state().delivery = delivery;
        self.changed.notify_all();
    }

    pub(crate) fn delivery(&self) -> Delivery {
        self.state().delivery
    }

    /// Returns whether the request has not come yet from which the delivery changes.
    pub(crate) fn changes_later(&self) -> bool {
        self.state().next.is_some()
    }

    pub(crate) fn answers(&self) -> u64 {
        self.state().answers
    }

    /// Ends all connections; on later ones everything arrives.
    pub(crate) fn mend(&self) {
        self.deliver(Delivery::Now);
        for connection in self.state().connections.drain(..) {
            // The other end may have ended it already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn carry(&self, direction: Direction, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            let delivery = self.delivery_of(direction, &bytes[..read]);
            let is_lost = delivery == Delivery::WithoutAnswers && direction == Direction::Answer;
            if !is_lost && to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }

    /// Waits until the bytes are to be delivered or lost.
    fn delivery_of(&self, direction: Direction, bytes: &[u8]) -> Delivery {
        let mut state = self.state();
        if direction == Direction::Request
            && let Some((delivery, marks)) = state.next
            && bytes.windows(marks.len()).any(|window| window == marks)
        {
            state.next = None;
            state.delivery = delivery;
        }
        let is_late = |state: &mut State| state.delivery == Delivery::Later;
        let mut state = self.changed.wait_while(state, is_late).unwrap();
        state.answers += u64::from(direction == Direction::Answer);
        state.delivery
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}
