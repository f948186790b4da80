//! Versions of peers, which change the layout of two messages and the numbers of some values.

/// The version of a client, from its registration.
///
/// # Example
///
/// ```
/// use handfast_seata_wire::ClientVersion;
///
/// let version = ClientVersion::parse("2.3.0-SNAPSHOT");
/// assert!(version >= ClientVersion::new(2, 3, 0));
/// assert_eq!(ClientVersion::parse("nonsense"), ClientVersion::OLDEST);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientVersion([u32; 4]);

impl ClientVersion {
    /// The version assumed for a client whose version cannot be read.
    pub const OLDEST: Self = Self([0; 4]);

    /// Creates a version of three numbers.
    #[must_use]
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self([major, minor, patch, 0])
    }

    /// Parses up to four numbers between dots. Text after a `-` within one is ignored.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self::parse_strictly(text).unwrap_or(Self::OLDEST)
    }

    fn parse_strictly(text: &str) -> Option<Self> {
        let mut numbers = [0; 4];
        for (at, part) in text.split('.').enumerate() {
            let digits = part.split_once('-').map_or(part, |(digits, _)| digits);
            *numbers.get_mut(at)? = digits.parse().ok()?;
        }
        Some(Self(numbers))
    }
}

/// The layout of frames and of the two registration answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameVersion {
    /// Clients before 0.7, whose frames differ in their first bytes.
    V0,
    /// Every client from 0.7 to 2.6.0, and seata-go.
    V1,
    /// From 2.7 on: a refused registration has a reason.
    V2,
}

impl FrameVersion {
    /// Returns the version in which to answer a connection whose first frame had this one. Later
    /// versions are answered in the latest known one.
    #[must_use]
    pub fn answering(byte: u8) -> Self {
        if byte <= 1 { Self::V1 } else { Self::V2 }
    }

    /// Returns its byte in a frame.
    #[must_use]
    pub fn byte(self) -> u8 {
        match self {
            Self::V0 => 0,
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

/// The implementation of a peer, as far as it changes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Apache Seata's own client.
    Java,
    /// seata-go, which has its own exception codes.
    Go,
}

/// The variant of the protocol for one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dialect {
    /// The layout of frames.
    pub frame: FrameVersion,
    /// The client's version: its own at the client, the registered one at the server.
    pub client: ClientVersion,
    /// The client's implementation.
    pub family: Family,
}

impl Dialect {
    /// Returns the dialect of a Java client of this version, in v1 frames.
    #[must_use]
    pub const fn java(client: ClientVersion) -> Self {
        Self { frame: FrameVersion::V1, client, family: Family::Java }
    }

    pub(crate) fn is_at_least(&self, major: u32, minor: u32) -> bool {
        self.client >= ClientVersion::new(major, minor, 0)
    }
}

impl Default for Dialect {
    /// Returns the dialect of a peer that has not registered.
    fn default() -> Self {
        Self::java(ClientVersion::OLDEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_seata_reads_them() {
        for (text, version) in [
            ("1.4.2", ClientVersion::new(1, 4, 2)),
            ("2.6", ClientVersion::new(2, 6, 0)),
            ("2.0.0-rc.1", ClientVersion([2, 0, 0, 1])),
            ("1.2.3.4", ClientVersion([1, 2, 3, 4])),
            ("1.2.3.4.5", ClientVersion::OLDEST),
            ("1..2", ClientVersion::OLDEST),
            ("", ClientVersion::OLDEST),
            ("99999999999.0.0", ClientVersion::OLDEST),
        ] {
            assert_eq!(ClientVersion::parse(text), version, "{text}");
        }
    }

    #[test]
    fn a_later_frame_version_is_answered_in_the_latest_known_one() {
        let answered = [0, 1, 2, 3, 255].map(|byte| FrameVersion::answering(byte).byte());
        assert_eq!(answered, [1, 1, 2, 2, 2]);
    }
}
