//! The native gRPC API of Handfast: generated messages, client and server traits.
//!
//! The messages are documented in `proto/handfast/v1/coordinator.proto`. One of them, the
//! definition of a saga, has a JSON form too. This crate decides nothing and knows no other crate
//! of the workspace.

pub mod saga_json;
pub mod saga_names;
pub mod traceparent;

/// Package `handfast.v1`.
pub mod v1 {
    // Generated code is not ours to lint or document.
    #![allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations)]
    #![allow(unreachable_pub, unused_qualifications)]
    include!("../generated/handfast.v1.rs");

    /// The encoded file descriptor set, for the gRPC reflection service.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../generated/handfast.v1.bin");
}

/// The HTTP header and gRPC metadata key that carries the XID between services, the same as
/// Seata's.
pub const XID_HEADER: &str = "tx_xid";
