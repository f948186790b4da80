//! Asks a server over its own protocol whether it accepts connections, without a client program.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const MYSQL_PROTOCOL: u8 = 10;

/// Returns whether PostgreSQL accepts `user`: it answers a start-up message with an authentication
/// message (`R`). A server that is still recovering answers with an error (`E`).
pub(crate) fn postgres_answers(port: u16, user: &str) -> bool {
    let mut body = vec![0, 3, 0, 0];
    for word in ["user", user, "database", "postgres"] {
        body.extend_from_slice(word.as_bytes());
        body.push(0);
    }
    body.push(0);
    let Ok(length) = u32::try_from(body.len() + 4) else { return false };
    let message = [length.to_be_bytes().as_slice(), &body].concat();
    first_bytes::<1>(port, &message) == Some(*b"R")
}

/// Returns whether MySQL or MariaDB sends its greeting: a packet header, then the protocol's
/// version.
pub(crate) fn mysql_answers(port: u16) -> bool {
    first_bytes::<5>(port, &[]).is_some_and(|greeting| greeting[4] == MYSQL_PROTOCOL)
}

/// Returns whether Redis answers a PING. One that still loads its data answers with an error.
pub(crate) fn redis_answers(port: u16) -> bool {
    first_bytes::<5>(port, b"PING\r\n") == Some(*b"+PONG")
}

/// Returns whether NATS sends its greeting.
pub(crate) fn nats_answers(port: u16) -> bool {
    first_bytes::<4>(port, &[]) == Some(*b"INFO")
}

/// Returns whether RabbitMQ begins a connection: a method frame on channel 0.
pub(crate) fn rabbitmq_answers(port: u16) -> bool {
    first_bytes::<3>(port, b"AMQP\x00\x00\x09\x01") == Some([1, 0, 0])
}

/// Returns whether etcd reports that it is healthy: it has a leader and accepts writes.
pub(crate) fn etcd_answers(port: u16) -> bool {
    first_bytes::<12>(port, b"GET /health HTTP/1.0\r\n\r\n") == Some(*b"HTTP/1.0 200")
}

/// Returns whether ZooKeeper serves. One that does not yet answers with another text than its
/// version.
pub(crate) fn zookeeper_answers(port: u16) -> bool {
    first_bytes::<17>(port, b"srvr") == Some(*b"Zookeeper version")
}

/// Returns whether anything listens on the port.
pub(crate) fn takes_connections(port: u16) -> bool {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    TcpStream::connect_timeout(&address, ANSWER_WITHIN).is_ok()
}

fn first_bytes<const COUNT: usize>(port: u16, message: &[u8]) -> Option<[u8; COUNT]> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN).ok()?;
    stream.set_read_timeout(Some(ANSWER_WITHIN)).ok()?;
    stream.write_all(message).ok()?;
    let mut bytes = [0; COUNT];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}
