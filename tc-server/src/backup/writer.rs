//! Writes a backup, frame by frame.

use super::BackupHead;
use super::format::{FIRST_SEED, FrameKind, HEADER_BYTES, MAGIC, checksum};
use crate::store::StoredRecord;

/// The bytes of records at which a frame is ended. One record may exceed them.
const FRAME_BYTES: usize = 256 << 10;

/// Makes the bytes of a backup.
#[derive(Debug)]
pub struct BackupWriter {
    /// The checksum of the frame before.
    before: u64,
    records: u64,
}

impl BackupWriter {
    /// Begins a backup. Returns its first bytes.
    #[must_use]
    pub fn begin(head: &BackupHead) -> (Self, Vec<u8>) {
        let mut writer = Self { before: FIRST_SEED, records: 0 };
        let mut bytes = MAGIC.to_vec();
        let head = serde_json::to_vec(head).expect("a head of texts and numbers has a JSON form");
        writer.append(FrameKind::Head, &head, &mut bytes);
        (writer, bytes)
    }

    /// Returns the bytes of some records.
    pub fn records(&mut self, records: &[StoredRecord]) -> Vec<u8> {
        let (mut bytes, mut body) = (Vec::new(), Vec::new());
        for (key, value) in records {
            append_record(key, value, &mut body);
            if body.len() >= FRAME_BYTES {
                self.append(FrameKind::Records, &body, &mut bytes);
                body.clear();
            }
        }
        if !body.is_empty() {
            self.append(FrameKind::Records, &body, &mut bytes);
        }
        self.records += records.len() as u64;
        bytes
    }

    /// Returns the last bytes, without which a backup is refused.
    #[must_use]
    pub fn end(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append(FrameKind::End, &self.records.to_le_bytes(), &mut bytes);
        bytes
    }

    fn append(&mut self, kind: FrameKind, body: &[u8], bytes: &mut Vec<u8>) {
        bytes.reserve(HEADER_BYTES + body.len());
        self.before = checksum(kind.number(), body, self.before);
        bytes.push(kind.number());
        bytes.extend_from_slice(&length(body).to_le_bytes());
        bytes.extend_from_slice(&self.before.to_le_bytes());
        bytes.extend_from_slice(body);
    }
}

fn append_record(key: &[u8], value: &[u8], body: &mut Vec<u8>) {
    body.push(u8::try_from(key.len()).expect("a key has fewer than 256 bytes"));
    body.extend_from_slice(key);
    body.extend_from_slice(&length(value).to_le_bytes());
    body.extend_from_slice(value);
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a record has fewer than 2^32 bytes")
}
