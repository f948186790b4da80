//! The stored form of a lease, version 1. Field numbers are never used for anything else again.

use handfast_core::{FencingToken, LeaseId, LeaseRecord, LockShare, LockToken, Timestamp, Xid};

use super::fields::Fields;
use super::{CodecError, unknown};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StoredLease {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bytes = "vec", tag = "2")]
    client: Vec<u8>,
    #[prost(uint64, tag = "3")]
    number: u64,
    /// 0 for the whole lock, otherwise the number of equal parts of which the lease has one.
    #[prost(uint32, tag = "4")]
    share: u32,
    #[prost(uint64, optional, tag = "5")]
    xid: Option<u64>,
    #[prost(uint64, tag = "6")]
    fence: u64,
    #[prost(string, tag = "7")]
    label: String,
    #[prost(uint64, tag = "8")]
    granted_at: u64,
    #[prost(uint64, tag = "9")]
    ends_at: u64,
    #[prost(uint64, optional, tag = "10")]
    hold_until: Option<u64>,
    #[prost(uint64, tag = "11")]
    delay_ms: u64,
    #[prost(uint64, tag = "12")]
    lease_ms: u64,
    #[prost(string, tag = "13")]
    application: String,
}

/// Writes what [`StoredLease`] reads.
pub(super) fn write(lease: &LeaseRecord, fields: &mut Fields<'_>) {
    fields.text(1, &lease.name);
    fields.bytes(2, &lease.token.client);
    fields.number(3, lease.token.number);
    fields.number(
        4,
        match lease.share {
            LockShare::All => 0,
            LockShare::Part { of } => of,
        },
    );
    fields.optional_number(5, lease.xid.map(|xid| xid.0));
    fields.number(6, lease.fence.0);
    fields.text(7, &lease.label);
    fields.number(8, lease.granted_at.0);
    fields.number(9, lease.ends_at.0);
    fields.optional_number(10, lease.hold_until.map(|until| until.0));
    fields.number(11, lease.delay_ms);
    fields.number(12, lease.lease_ms);
    fields.text(13, &lease.application);
}

impl StoredLease {
    pub(super) fn read(self, id: LeaseId) -> Result<LeaseRecord, CodecError> {
        let bytes = i64::try_from(self.client.len()).unwrap_or(i64::MAX);
        let client = self.client.try_into();
        let client = client.map_err(|_| unknown("length of a lease's client", bytes))?;
        Ok(LeaseRecord {
            id,
            name: self.name.into(),
            token: LockToken { client, number: self.number },
            share: if self.share == 0 {
                LockShare::All
            } else {
                LockShare::Part { of: self.share }
            },
            xid: self.xid.map(Xid),
            fence: FencingToken(self.fence),
            label: self.label.into(),
            granted_at: Timestamp(self.granted_at),
            ends_at: Timestamp(self.ends_at),
            hold_until: self.hold_until.map(Timestamp),
            delay_ms: self.delay_ms,
            lease_ms: self.lease_ms,
            application: self.application.into(),
        })
    }
}
