//! Authentication, authorization and encryption.
//!
//! Tokens name a caller and a role. TLS keeps them secret on the network. The configuration decides
//! which addresses may be served without either.

mod access;
mod cookie_seal;
mod grpc;
mod listener;
mod tls;
mod tokens;

pub use access::{Access, AccessError, Caller, Permission};
pub use cookie_seal::CookieSeal;
pub use grpc::{GrpcAccess, GrpcAccessLayer};
pub use listener::{Listener, Ready};
pub use tls::{TlsError, admin_acceptor, grpc_acceptor, member_acceptor, member_connector};
pub use tokens::{NewToken, Reloaded, Role, Tokens, TokensError};
