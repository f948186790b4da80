//! Limits of what a peer may send (BOUNDED).

/// The limits of reading.
///
/// Writing is limited only by the protocol itself, in the function of each field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest frame. Java's own limit is 8 MiB. A smaller one refuses large lock keys.
    pub frame_bytes_max: usize,
    /// The longest body after decompression. With a larger limit a few bytes can take much memory.
    pub body_bytes_max: usize,
    /// The most messages in a merged one.
    pub parts_max: usize,
    /// The longest head map. Clients send an empty one.
    pub head_map_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: FRAME_BYTES_MAX,
            body_bytes_max: FRAME_BYTES_MAX,
            parts_max: 4_096,
            head_map_bytes_max: 16 * 1_024,
        }
    }
}

/// The longest frame that a Java peer reads.
/// Source: `core/.../rpc/netty/v1/ProtocolDecoderV1.java`.
pub const FRAME_BYTES_MAX: usize = 8 * 1_024 * 1_024;
