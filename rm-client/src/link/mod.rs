//! The one connection of this process to the coordinator, and everything that goes over it.
//!
//! `protocol` decides, as a state machine without IO: `search` where to dial, `pulse` whether the
//! coordinator is alive. `shell` owns the sockets, the clock and the tasks; `lanes` run phase two;
//! `outbox` packs what `frame` encodes; `dial` knows endpoints, TLS and tokens.

mod codec;
mod dial;
mod lanes;
mod shell;

pub(crate) use dial::{Dialler, TlsSettings};
pub(crate) use shell::{Link, Patience};
