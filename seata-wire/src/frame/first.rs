//! Detects the protocol of a connection from its first bytes.
//!
//! Source: `server/.../rpc/netty/ProtocolDetectHandler.java` and the detectors beside it.

use super::MAGIC;

/// The protocol that a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBytes {
    /// Too few bytes to decide.
    Undecided,
    /// Seata's frames of versions before 0.7.
    SeataV0,
    /// Seata's frames with this version byte.
    Seata(u8),
    /// HTTP/2, which would be Seata's gRPC transport.
    Http2,
    /// HTTP/1.1, which would be Seata's admin API.
    Http1,
    /// Another protocol.
    Unknown,
}

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HTTP1_METHODS: [&[u8]; 7] =
    [b"GET ", b"POST ", b"PUT ", b"DELETE ", b"HEAD ", b"OPTIONS ", b"PATCH "];

/// Returns the protocol, or that more bytes are needed. 24 bytes always suffice.
#[must_use]
pub fn first_bytes(bytes: &[u8]) -> FirstBytes {
    match bytes {
        [a, b, 0, ..] if [*a, *b] == MAGIC => FirstBytes::SeataV0,
        [a, b, version, ..] if [*a, *b] == MAGIC => FirstBytes::Seata(*version),
        _ if MAGIC.starts_with(bytes) => FirstBytes::Undecided,
        _ if bytes.starts_with(HTTP2_PREFACE) => FirstBytes::Http2,
        _ if HTTP1_METHODS.iter().any(|method| bytes.starts_with(method)) => FirstBytes::Http1,
        _ if begins(HTTP2_PREFACE, bytes) => FirstBytes::Undecided,
        _ if HTTP1_METHODS.iter().any(|method| begins(method, bytes)) => FirstBytes::Undecided,
        _ => FirstBytes::Unknown,
    }
}

fn begins(whole: &[u8], start: &[u8]) -> bool {
    whole.starts_with(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_detected_by_their_first_bytes() {
        for (bytes, expected) in [
            (&b""[..], FirstBytes::Undecided),
            (b"\xDA", FirstBytes::Undecided),
            (b"\xDA\xDA", FirstBytes::Undecided),
            (b"\xDA\xDA\x00", FirstBytes::SeataV0),
            (b"\xDA\xDA\x01", FirstBytes::Seata(1)),
            (b"\xDA\xDA\x09", FirstBytes::Seata(9)),
            (b"P", FirstBytes::Undecided),
            (b"PRI * HTTP/2.0\r\n\r\n", FirstBytes::Undecided),
            (HTTP2_PREFACE, FirstBytes::Http2),
            (b"POST /", FirstBytes::Http1),
            (b"GETX", FirstBytes::Unknown),
            (b"\x16\x03\x01", FirstBytes::Unknown),
        ] {
            assert_eq!(first_bytes(bytes), expected, "{bytes:?}");
        }
    }
}
