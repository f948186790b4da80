//! Beginning a transaction that has a key: of its attempts at most one commits.
//!
//! The coordinator answers a begin whose key it knows with the global of that key. If that global
//! is rolled back, the next attempt has the same key with a number behind it, which all processes
//! count alike.

use handfast_proto::v1::BeginRequest;
use handfast_rm_core::GlobalStatus;

use crate::begin_keys::ClaimedKey;
use crate::connect::Handfast;
use crate::error::Error;
use crate::link::Begun;
use crate::xid::Xid;

/// The most globals of one key that are looked at (BOUNDED).
const ATTEMPTS_MAX: u32 = 1_000;

/// Begins a global, unless one of an earlier attempt is committed or may yet be.
pub(super) async fn begin(
    handfast: &Handfast,
    request: BeginRequest,
    key: &str,
) -> Result<(Begun, ClaimedKey), Error> {
    let before = |xid, status| Error::BegunBefore { key: key.to_owned(), xid, status };
    if key.is_empty() {
        let reason = "is empty: it names a request of the caller".to_owned();
        return Err(Error::Configuration { setting: "key", reason });
    }
    let claimed = handfast.begin_keys().claim(key);
    let claimed = claimed.ok_or_else(|| before(None, GlobalStatus::Active))?;
    for attempt in 1..=ATTEMPTS_MAX {
        let request = BeginRequest { key: numbered(key, attempt), ..request.clone() };
        let Begun { reply, .. } = handfast.coordinator().begin(request).await?;
        match GlobalStatus::from_wire(reply.found(), reply.rollback_reason()) {
            GlobalStatus::Unknown => return Ok((Begun { reply, answer: None }, claimed)),
            GlobalStatus::RolledBack(_) => {}
            status @ (GlobalStatus::Active
            | GlobalStatus::Committing
            | GlobalStatus::Committed
            | GlobalStatus::RollingBack(_)
            | GlobalStatus::NeedsOperator(_)
            | _) => return Err(before(Some(Xid::new(&reply.xid)?), status)),
        }
    }
    let reason = format!("{key:?} was rolled back {ATTEMPTS_MAX} times: take another one");
    Err(Error::Configuration { setting: "key", reason })
}

/// Returns the key of an attempt. The first one has the caller's own, as clients without this
/// library send it.
fn numbered(key: &str, attempt: u32) -> String {
    if attempt == 1 { key.to_owned() } else { format!("{key}#{attempt}") }
}
