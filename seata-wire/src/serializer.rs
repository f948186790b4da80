//! Serializers: reads and writes bodies with the serializer that a frame names.
//!
//! Nothing is negotiated: a client chooses a serializer, names it in each frame, and gets its
//! answers in it.
//! Source: `core/.../serializer/SerializerType.java`.

use crate::error::WireError;
use crate::limits::Limits;
use crate::message::Message;
use crate::version::Dialect;
use crate::{protobuf, seata};

/// A supported serializer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Serializer {
    /// The default of every client.
    #[default]
    Seata,
    /// Protocol buffers, with the messages' names in this package.
    Protobuf(Package),
}

/// The package of the protobuf messages. A peer finds a message only by its full name, so it must
/// be answered in its own package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Package {
    /// Up to 2.0.
    IoSeata,
    /// From 2.1 on.
    OrgApacheSeata,
}

const SEATA: u8 = 1;
const PROTOBUF: u8 = 2;

/// The serializers that are not supported. Most write Java objects.
const REFUSED: [(u8, &str); 8] = [
    (4, "KRYO"),
    (8, "FST"),
    (22, "HESSIAN"),
    (40, "GRPC"),
    (50, "JACKSON"),
    (86, "FURY"),
    (87, "FORY"),
    (100, "FASTJSON2"),
];

impl Serializer {
    /// Returns its number in a frame.
    #[must_use]
    pub fn id(self) -> u8 {
        match self {
            Self::Seata => SEATA,
            Self::Protobuf(_) => PROTOBUF,
        }
    }

    /// Reads a body with the serializer of this number. Also returns the exact serializer.
    pub(crate) fn read(
        id: u8,
        body: &[u8],
        dialect: &Dialect,
        limits: &Limits,
    ) -> Result<(Message, Self), WireError> {
        match id {
            SEATA => Ok((seata::read(body, dialect, limits)?, Self::Seata)),
            PROTOBUF => protobuf::read(body, limits)
                .map(|(message, package)| (message, Self::Protobuf(package))),
            _ => Err(refused(id)),
        }
    }

    pub(crate) fn write(self, message: &Message, dialect: &Dialect) -> Result<Vec<u8>, WireError> {
        match self {
            Self::Seata => seata::write(message, dialect),
            Self::Protobuf(package) => protobuf::write(message, package),
        }
    }
}

fn refused(id: u8) -> WireError {
    let name = REFUSED.iter().find(|(it, _)| *it == id).map_or("unknown", |(_, name)| name);
    WireError::Serializer { id, name }
}

impl Package {
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::IoSeata => "io.seata.protocol.protobuf.",
            Self::OrgApacheSeata => "org.apache.seata.protocol.protobuf.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_serializers_are_refused_by_name() {
        let read = |id| Serializer::read(id, b"x", &Dialect::default(), &Limits::default());
        assert_eq!(read(22).unwrap_err().to_string(), "serializer 22 (HESSIAN) is not supported");
        assert_eq!(read(99).unwrap_err(), WireError::Serializer { id: 99, name: "unknown" });
    }
}
