//! Events: created by the application, stored in the outbox, carried by a broker.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::error::OutboxError;

/// The number of lanes that keys are spread over. A lane belongs to one relay at a time.
pub(super) const LANES: i64 = 64;

const TOPIC_CHARS_MAX: usize = 128;
const KEY_CHARS_MAX: usize = 255;
/// The largest payload that the brokers accept by default: NATS stops at 1 MiB with its headers.
const PAYLOAD_BYTES_MAX: usize = 1_000_000;
const HEADERS_BYTES_MAX: usize = 16 << 10;

/// Identifies an event, wherever and however often it is delivered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Uuid);

impl EventId {
    fn new() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventId({self})")
    }
}

impl FromStr for EventId {
    type Err = OutboxError;

    fn from_str(text: &str) -> Result<Self, OutboxError> {
        let id = Uuid::parse_str(text).map(Self);
        id.map_err(|_| OutboxError::Malformed { reason: format!("`{text}` is no event id") })
    }
}

/// A message about something that has happened, for other services.
///
/// ```
/// use handfast::outbox::Event;
///
/// let event = Event::new("orders", "order-7").header("type", "placed").payload("4200 cents");
/// assert_eq!((event.topic(), event.key()), ("orders", "order-7"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    id: EventId,
    topic: String,
    key: String,
    headers: BTreeMap<String, String>,
    payload: Vec<u8>,
}

impl Event {
    /// Creates an event of a topic about the aggregate that `key` names. Events of one topic and
    /// key are delivered in the order in which they were emitted.
    #[must_use]
    pub fn new(topic: impl Into<String>, key: impl Into<String>) -> Self {
        let (topic, key) = (topic.into(), key.into());
        Self { id: EventId::new(), topic, key, headers: BTreeMap::new(), payload: Vec::new() }
    }

    /// Creates an event that waits for no other: its id is its key.
    #[must_use]
    pub fn unordered(topic: impl Into<String>) -> Self {
        let event = Self::new(topic, "");
        Self { key: event.id.to_string(), ..event }
    }

    /// Sets the payload, in bytes.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Sets the payload to a value in JSON.
    ///
    /// # Errors
    /// [`OutboxError::Malformed`] if the value cannot be written as JSON, such as a map whose keys
    /// are not text.
    pub fn json(self, value: &impl Serialize) -> Result<Self, OutboxError> {
        let payload = serde_json::to_vec(value);
        let payload =
            payload.map_err(|error| OutboxError::Malformed { reason: error.to_string() })?;
        Ok(self.payload(payload))
    }

    /// Adds a header or replaces it.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Returns the event's id.
    #[must_use]
    pub fn id(&self) -> EventId {
        self.id
    }

    /// Returns the topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Returns the key, which names the aggregate.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the value of a header.
    #[must_use]
    pub fn header_value(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Returns the payload.
    #[must_use]
    pub fn payload_bytes(&self) -> &[u8] {
        &self.payload
    }

    /// Returns the headers as a JSON object, the form in which tables and brokers carry them.
    pub(super) fn headers_text(&self) -> String {
        let headers = serde_json::to_string(&self.headers);
        headers.expect("a map of texts has a form in JSON")
    }

    /// Restores an event from the columns of a table or the parts of a broker's message.
    pub(super) fn restored(
        id: &str,
        topic: String,
        key: String,
        headers: &str,
        payload: Vec<u8>,
    ) -> Result<Self, OutboxError> {
        let malformed = |error: serde_json::Error| OutboxError::Malformed {
            reason: format!("headers of event {id}: {error}"),
        };
        let headers = serde_json::from_str(headers).map_err(malformed)?;
        Ok(Self { id: id.parse()?, topic, key, headers, payload })
    }

    /// Checks that the table and the brokers can take the event, before it is stored anywhere.
    pub(super) fn check(&self) -> Result<(), OutboxError> {
        let refused = |reason: String| Err(OutboxError::Malformed { reason });
        let (topic, key) = (self.topic.chars().count(), self.key.chars().count());
        if topic == 0 || topic > TOPIC_CHARS_MAX {
            return refused(format!("a topic of {topic} characters: 1 to {TOPIC_CHARS_MAX}"));
        }
        if key > KEY_CHARS_MAX {
            return refused(format!("a key of {key} characters: at most {KEY_CHARS_MAX}"));
        }
        if self.topic.contains('\0') || self.key.contains('\0') {
            return refused("topic or key holds a zero character".to_owned());
        }
        let (payload, headers) = (self.payload.len(), self.headers_text().len());
        if payload > PAYLOAD_BYTES_MAX || headers > HEADERS_BYTES_MAX {
            return Err(OutboxError::TooLarge { payload, headers });
        }
        Ok(())
    }

    /// Returns a hash of topic and key: 63 bits, the same in every process and version.
    pub(super) fn key_hash(&self) -> i64 {
        let mut hash = Sha256::new();
        hash.update(&self.topic);
        // Neither part holds a zero, so that no other pair gives the same bytes.
        hash.update([0]);
        hash.update(&self.key);
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        i64::from_be_bytes(first) & i64::MAX
    }

    pub(super) fn lane(&self) -> i64 {
        self.key_hash() % LANES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_and_hashes_never_change() {
        let event = Event::new("orders", "order-7");
        assert_eq!((event.key_hash(), event.lane()), (2_594_928_949_192_146_665, 41));
        assert_ne!(Event::new("order", "sorder-7").key_hash(), event.key_hash());
    }

    #[test]
    fn events_that_no_broker_takes_are_refused() {
        let code = |event: Event| event.check().err().map(|error| error.code());
        assert_eq!(code(Event::new("a", "").header("b", "c").payload(vec![0; 1_000_000])), None);
        assert_eq!(code(Event::new("", "a")), Some("HF-OUTBOX-MALFORMED"));
        assert_eq!(code(Event::new("a".repeat(129), "a")), Some("HF-OUTBOX-MALFORMED"));
        assert_eq!(code(Event::new("a", "ä".repeat(255))), None);
        assert_eq!(code(Event::new("a", "a".repeat(256))), Some("HF-OUTBOX-MALFORMED"));
        assert_eq!(code(Event::new("a", "b\0")), Some("HF-OUTBOX-MALFORMED"));
        let large = Event::new("a", "b").payload(vec![0; 1_000_001]);
        assert_eq!(code(large), Some("HF-OUTBOX-TOO-LARGE"));
        let headers = Event::new("a", "b").header("c", "d".repeat(16 << 10));
        assert_eq!(code(headers), Some("HF-OUTBOX-TOO-LARGE"));
    }

    #[test]
    fn an_event_is_restored_unchanged() {
        let event = Event::new("orders", "7").header("type", "placed").payload("x");
        let (topic, key) = (event.topic.clone(), event.key.clone());
        let headers = event.headers_text();
        let back = Event::restored(&event.id.to_string(), topic, key, &headers, b"x".to_vec());
        assert_eq!(back.unwrap(), event);
    }
}
