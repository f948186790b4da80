//! Carries the XID from service to service.
//!
//! | side | for | use |
//! | --- | --- | --- |
//! | server | axum, tonic, anything made of `tower` services over `http` | [`XidLayer`] |
//! | client | reqwest | `XidMiddleware` (feature `reqwest`) |
//! | client | tonic | [`with_xid`] as interceptor, or [`CarryXidLayer`] |
//! | client | anything made of `tower` services over `http` | [`CarryXidLayer`] |
//! | both | anything else | [`begun_xid`], [`Xid::scope`] |
//!
//! The XID travels in the header `TX_XID`, as Seata's does, and again in `TX-XID`, since common
//! reverse proxies drop headers with an underscore. The server reads either, in upper or lower
//! case.
//!
//! With the feature `otel` requests also carry the place of the running code in its trace
//! (`traceparent`), unless they have that header already; a request that carries an XID is served
//! in a span of its own, `serve`.
//!
//! A request that carries an XID is served within that global, as a participant, which decides
//! nothing. It reports a failure to the caller by an error response. Streamed bodies are outside
//! the transaction: so is everything that a handler does after it has returned its response.
//!
//! The coordinator's answer to a begin is not always waited for, so the calling sides wait for it
//! before they send the XID of its global: `XidMiddleware` in the call, [`CarryXidLayer`] while it
//! is made ready for one. An interceptor cannot wait. Therefore begins are waited for in a process
//! that has once called [`with_xid`].
//!
//! [`begun_xid`]: crate::begun_xid
//! [`Xid::scope`]: crate::Xid::scope

mod client;
mod header;
#[cfg(feature = "reqwest")]
mod middleware;
mod refused;
mod server;

pub(crate) use client::begins_are_waited_for;
pub use client::{CarryXid, CarryXidLayer, with_xid};
#[cfg(feature = "reqwest")]
pub use middleware::XidMiddleware;
pub use refused::XidBody;
pub use server::{Served, XidLayer, XidService};
