//! The one connection of this process to the coordinator, and everything that goes over it.
//!
//! `protocol` decides, as a state machine without IO: `search` where to dial, `pulse` whether the
//! coordinator is alive. `shell` owns the sockets, the clock and the tasks; `lanes` run phase two;
//! `outbox` packs what `frame` encodes; `dial` knows endpoints, TLS and tokens.

mod dial;
mod event;
mod frame;
mod lanes;
mod outbox;
mod protocol;
mod pulse;
mod releases;
mod reports;
mod resources;
mod search;
mod settings;
mod shell;

pub(crate) use dial::{Dialler, TlsSettings};
pub use event::{ConnectionId, Event, Failure, Moment, Place, RequestId};
pub use frame::Frame;
pub use protocol::Protocol;
pub use settings::Settings;
pub(crate) use shell::{Link, Patience};
