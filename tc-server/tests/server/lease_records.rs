//! Lease records as bytes.

use handfast_core::{
    FencingToken, LeaseId, LeaseRecord, LockShare, LockToken, Record, Timestamp, Xid,
};
use proptest::option;
use proptest::prelude::*;

fn at() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp)
}

fn share() -> impl Strategy<Value = LockShare> {
    prop_oneof![Just(LockShare::All), (1..=u32::MAX).prop_map(|of| LockShare::Part { of })]
}

pub(crate) fn lease() -> impl Strategy<Value = Record> {
    let who = (any::<u64>(), any::<String>(), any::<[u8; 16]>(), any::<u64>(), share());
    let whose = (option::of(any::<u64>()), any::<u64>(), any::<String>(), any::<String>());
    let when = (at(), at(), option::of(at()), any::<u64>(), any::<u64>());
    (who, whose, when).prop_map(|(who, whose, when)| {
        let (id, name, client, number, share) = who;
        let (xid, fence, label, application) = whose;
        let (granted_at, ends_at, hold_until, delay_ms, lease_ms) = when;
        Record::Lease(LeaseRecord {
            id: LeaseId(id),
            name: name.into(),
            token: LockToken { client, number },
            share,
            xid: xid.map(Xid),
            fence: FencingToken(fence),
            label: label.into(),
            application: application.into(),
            granted_at,
            ends_at,
            lease_ms,
            hold_until,
            delay_ms,
        })
    })
}

/// One lease with all fields of the first version, and one for each field added later. They must
/// never change.
pub(crate) fn examples() -> [(&'static str, Record); 3] {
    let at_first = example();
    let with_length = LeaseRecord { lease_ms: 30_000, ..at_first.clone() };
    let with_application = LeaseRecord { application: "shop".into(), ..with_length.clone() };
    [
        ("lease", Record::Lease(at_first)),
        ("lease-with-length", Record::Lease(with_length)),
        ("lease-with-application", Record::Lease(with_application)),
    ]
}

fn example() -> LeaseRecord {
    LeaseRecord {
        id: LeaseId(1 << 40 | 3),
        name: "orders/42".into(),
        token: LockToken { client: [0xab; 16], number: 7 },
        share: LockShare::Part { of: 3 },
        xid: Some(Xid(1 << 40 | 2)),
        fence: FencingToken(1 << 40 | 9),
        label: "order-service".into(),
        application: "".into(),
        granted_at: Timestamp(1_000),
        ends_at: Timestamp(31_000),
        lease_ms: 0,
        hold_until: Some(Timestamp(61_000)),
        delay_ms: 500,
    }
}
