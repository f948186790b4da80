//! The wire protocol of Apache Seata: bytes to messages and back, for a server and for a client.
//!
//! ```text
//!   stream ─▶ frame::split ─▶ Frame ─▶ decode ─▶ DecodedMessage { message, encoding }
//!                                                                   │ answer
//!   stream ◀───────────────────────── encode ◀──────────────────────┘
//! ```
//!
//! [`frame`] splits a stream of bytes into frames of versions 1 and 2. [`frame::v0`] does so for
//! the frames of earlier clients, which are decoded at the same time. [`decode`] decompresses and
//! decodes a body, and [`encode`] does the reverse. The differences between client versions are in
//! [`Dialect`].
//!
//! This crate knows no sockets, no clock and no coordinator: the meaning of a message is decided
//! elsewhere. Any bytes give a message or a [`WireError`], never a panic, and [`Limits`] bounds the
//! memory they can make it allocate.
//!
//! The protocol has no specification. This crate follows the sources of Apache Seata, and each
//! module names the file that it follows.
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

pub use codec::{DecodedMessage, Encoding, decode, encode, refuse};
pub use compression::{Compression, Lz4Form};
pub use error::WireError;
pub use limits::{FRAME_BYTES_MAX, Limits};
pub use serializer::{Package, Serializer};
pub use version::{ClientVersion, Dialect, Family, FrameVersion};
