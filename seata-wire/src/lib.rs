//! The wire protocol of Apache Seata: bytes to messages and back, for a server and for a client.
//!
//! ```text
//!   stream ─▶ frame::split ─▶ Frame ─▶ decode ─▶ Received { message, encoding }
//!                                                             │ answer
//!   stream ◀───────────────────────── encode ◀────────────────┘
//! ```
//!
//! [`frame`] cuts a stream of bytes into frames of version 1 and 2, and [`frame::v0`] does so for
//! those from before, which are messages already; [`decode`] decompresses and reads a body;
//! [`encode`] does all of that the other way. What differs between the versions of clients is in
//! [`Dialect`].
//!
//! This crate knows no sockets, no clock and no coordinator: what a message means is decided
//! elsewhere. Any bytes lead to a message or a [`WireError`], never to a panic, and what they can
//! make it allocate is bounded by [`Limits`].
//!
//! The protocol has no specification. What is written here follows the sources of Apache Seata;
//! each module names the file that it follows.
#![warn(missing_docs)]

mod bytes;
mod codec;
mod compression;
mod error;
pub mod frame;
mod limits;
pub mod message;
mod protobuf;
mod seata;
mod serializer;
pub mod value;
mod version;

pub use codec::{Encoding, Received, decode, encode, refuse};
pub use compression::{Compression, Lz4Form};
pub use error::WireError;
pub use limits::{FRAME_BYTES_MAX, Limits};
pub use serializer::{Package, Serializer};
pub use version::{ClientVersion, Dialect, Family, FrameVersion};
