//! The one connection of this process to the coordinator, and everything that goes over it.
//!
//! `handfast_rm_core::link` decides, as a state machine without IO. `driver` owns the sockets, the
//! clock and the tasks; `resource_queues` run phase two; a `waiter` takes an answer, and `begin`
//! keeps those of begins that are not waited for; `codec` puts frames on the wire; `dial` knows
//! endpoints, TLS and tokens.

mod begin;
mod call_spans;
mod codec;
mod dial;
mod driver;
mod progress;
mod resource_queues;
mod waiter;

pub(crate) use begin::{BeginAnswer, Begun, Deadline};
pub(crate) use dial::{Dialler, TlsSettings};
pub(crate) use driver::{Link, Timeout};
pub(crate) use waiter::OnLost;
