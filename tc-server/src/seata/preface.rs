//! The first line of a connection that a node passes on to the leader: it names the client.
//!
//! ```text
//! the node that follows               the leader
//!   HANDFAST-SEATA/1 10.0.0.5:41822 ──▶
//!                                   ◀── HANDFAST-SEATA/1 OK
//!   the client's bytes              ──▶
//! ```
//!
//! A connection that begins like this is served or closed, and never passed on again. The client's
//! address is believed: where nodes have no certificates, any program that reaches the port can act
//! for any application anyway.

use std::net::SocketAddr;

const WORDS: &[u8] = b"HANDFAST-SEATA/1 ";

/// The answer of a node that serves the connection.
pub(super) const ACCEPTED: &[u8; 20] = b"HANDFAST-SEATA/1 OK\n";

/// The longest line that is read (BOUNDED). An address has 60 bytes at most.
const LINE_BYTES_MAX: usize = 128;

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// Too few bytes to decide.
    Undecided,
    /// Another node passes on the connection of this client, whose bytes follow after so many.
    PassedOn { client: SocketAddr, length: usize },
    /// A line of another node that cannot be read.
    Damaged,
    /// Something else.
    Other,
}

/// Returns the line that a connection of this client begins with when it is passed on.
pub(super) fn preface(client: SocketAddr) -> Vec<u8> {
    let mut line = WORDS.to_vec();
    line.extend_from_slice(client.to_string().as_bytes());
    line.push(b'\n');
    line
}

/// Returns how a connection with these first bytes begins.
pub(super) fn opening(bytes: &[u8]) -> Opening {
    let Some(rest) = bytes.strip_prefix(WORDS) else {
        return if WORDS.starts_with(bytes) { Opening::Undecided } else { Opening::Other };
    };
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
        let may_go_on = bytes.len() < LINE_BYTES_MAX;
        return if may_go_on { Opening::Undecided } else { Opening::Damaged };
    };
    let client = std::str::from_utf8(&rest[..end]).ok().and_then(|text| text.parse().ok());
    let length = WORDS.len() + end + 1;
    client.map_or(Opening::Damaged, |client| Opening::PassedOn { client, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preface_is_read_as_it_was_written() {
        for address in ["10.0.0.5:41822", "[2001:db8::1]:1", "[fe80::1%7]:65535"] {
            let client: SocketAddr = address.parse().unwrap();
            let mut bytes = preface(client);
            let length = bytes.len();
            for end in 0..length {
                assert_eq!(opening(&bytes[..end]), Opening::Undecided, "{address}: {end}");
            }
            bytes.extend_from_slice(b"\xDA\xDA\x01");
            assert_eq!(opening(&bytes), Opening::PassedOn { client, length });
        }
    }

    #[test]
    fn other_openings_are_no_prefaces() {
        let endless = [WORDS, &[b'1'; LINE_BYTES_MAX]].concat();
        for (bytes, expected) in [
            (&b"\xDA\xDA\x01"[..], Opening::Other),
            (b"HEAD / HTTP/1.1\r\n", Opening::Other),
            (b"HANDFAST-SEATA/2 10.0.0.5:41822\n", Opening::Other),
            (b"HANDFAST-SEATA/1 10.0.0.5\n", Opening::Damaged),
            (b"HANDFAST-SEATA/1 \xFF\n", Opening::Damaged),
            (b"HANDFAST-SEATA/1 OK\n", Opening::Damaged),
            (&endless, Opening::Damaged),
        ] {
            assert_eq!(opening(bytes), expected, "{bytes:?}");
        }
    }
}
