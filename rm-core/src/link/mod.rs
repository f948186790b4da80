//! The link to the coordinator as a state machine: what to send, when to dial, how requests end.
//!
//! [`Protocol`] takes requests, frames and the time, and gives back [`Event`]s and [`Frame`]s.
//! Sockets, timers and tasks are the caller's.
//!
//! | module | decides |
//! | --- | --- |
//! | `search` | where to dial |
//! | `epochs` | whether a coordinator that greets may lead |
//! | `heartbeat` | whether the coordinator is alive |
//! | `send_queue` | what goes into a frame |
//! | `stock` | which XIDs are lent |
//! | `begins` | what follows a begin that is not waited for |
//! | `reports` | which commits wait for a report |
//! | `releases` | which releases of locks are sent again |
//! | `resources` | which resources are announced |

mod begins;
mod epochs;
mod error;
mod event;
mod frame;
mod heartbeat;
mod protocol;
mod releases;
mod reports;
mod resources;
mod search;
mod send_queue;
mod settings;
mod stock;

pub use error::RequestError;
pub use event::{ConnectionFailure, ConnectionId, DialTarget, Event, Moment, RequestId};
pub use frame::Frame;
pub use protocol::Protocol;
pub use settings::Settings;
pub use stock::LentXid;
