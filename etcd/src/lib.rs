//! A client of etcd, version 3: transactions, ranges, leases, watches and compaction.
//!
//! It does not know what the keys mean, and it repeats nothing but a request whose token was
//! outdated: a caller knows which of its requests may be sent twice.
//!
//! ```no_run
//! use handfast_etcd::{EtcdClient, EtcdOptions, KeyRange, put, read_all};
//!
//! # async fn demo() -> Result<(), handfast_etcd::EtcdError> {
//! let etcd = EtcdClient::connect(&EtcdOptions::new(["http://127.0.0.1:2379"]))?;
//! etcd.run(vec![put(b"a/1".to_vec(), "one", 0)]).await?;
//! let mut found = etcd.run(vec![read_all(&KeyRange::with_prefix("a/"))]).await?;
//! assert_eq!(found.found(0)[0].value, "one");
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

mod auth;
mod client;
mod error;
mod handshake;
mod lease;
mod options;
mod range;
mod transaction;
mod watch;

/// The part of etcd's API that is used here.
mod api {
    // Generated code is not ours to lint or document.
    #![allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations)]
    #![allow(unreachable_pub, unused_qualifications, dead_code)]
    include!("../generated/etcdserverpb.rs");
}

pub use api::{Compare, KeyValue, RequestOp};
pub use client::EtcdClient;
pub use error::{EtcdError, within};
pub use lease::GrantedLease;
pub use options::EtcdOptions;
pub use range::{KeyRange, RangePage};
pub use transaction::{
    TransactionResult, delete, delete_range, is_created, is_unchanged, is_value, none_since, put,
    read_all, read_first, read_last_before,
};
pub use watch::{Changes, KeyWatch};
