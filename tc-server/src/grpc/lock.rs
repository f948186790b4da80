//! Named locks between wire messages and the core's types, both ways.

use handfast_core::{Command, FencingToken, LockHeld, LockShare, LockToken, NewLease};
use handfast_proto::v1 as wire;
use handfast_proto::v1::acquire_lock_reply::Result::{Busy, Granted};

use super::bounds::{BadRequest, at_most};
use super::decoder::Decoder;
use super::from_wire::{missing, present};

impl Decoder {
    pub(super) fn acquire_lock(
        &self,
        request: wire::AcquireLockRequest,
    ) -> Result<Command, BadRequest> {
        self.name("label", &request.label)?;
        let of = request.share.map_or(0, |share| share.of);
        let xid = match request.xid.as_str() {
            "" => None,
            text => Some(self.xid(text)?),
        };
        Ok(Command::AcquireLock(Box::new(NewLease {
            name: self.lock_name(request.name)?.into(),
            token: token(request.token)?,
            share: if of == 0 { LockShare::All } else { LockShare::Part { of } },
            xid,
            label: request.label.into(),
            lease_ms: request.lease_ms,
            delay_ms: request.delay_ms,
            hold_ms_max: Some(request.hold_ms_max).filter(|max| *max > 0),
            wait_ms: request.wait_ms,
        })))
    }

    pub(super) fn renew_locks(
        &self,
        request: wire::RenewLocksRequest,
    ) -> Result<Command, BadRequest> {
        at_most("tokens", request.tokens.len(), self.bounds.rows_max)?;
        let tokens = request.tokens.into_iter().map(|it| token(Some(it)));
        let tokens = tokens.collect::<Result<_, _>>()?;
        Ok(Command::RenewLocks { tokens, lease_ms: request.lease_ms })
    }

    pub(super) fn release_lock(
        &self,
        request: wire::ReleaseLockRequest,
    ) -> Result<Command, BadRequest> {
        Ok(Command::ReleaseLock {
            name: self.lock_name(request.name)?.into(),
            token: token(request.token)?,
            refuses_late: request.is_doubtful,
        })
    }

    pub(super) fn find_lock(&self, request: wire::FindLockRequest) -> Result<Command, BadRequest> {
        Ok(Command::FindLock { name: self.lock_name(request.name)?.into() })
    }

    fn lock_name(&self, name: String) -> Result<String, BadRequest> {
        self.name("lock name", &name)?;
        present("lock name", name)
    }
}

pub(super) fn granted(fence: FencingToken, waited_ms: u64) -> wire::AcquireLockReply {
    let granted = wire::LockGranted { fence: fence.0, waited_ms };
    wire::AcquireLockReply { result: Some(Granted(granted)) }
}

pub(super) fn busy(held: Option<LockHeld>) -> wire::AcquireLockReply {
    let busy = wire::LockBusy { holder: held.map(holder) };
    wire::AcquireLockReply { result: Some(Busy(busy)) }
}

pub(super) fn found(held: Option<LockHeld>) -> wire::FindLockReply {
    wire::FindLockReply { holder: held.map(holder) }
}

pub(super) fn freed() -> wire::ReleaseLockReply {
    wire::ReleaseLockReply { was_held: true, current: None }
}

pub(super) fn not_held(current: Option<LockHeld>) -> wire::ReleaseLockReply {
    wire::ReleaseLockReply { was_held: false, current: current.map(holder) }
}

fn holder(held: LockHeld) -> wire::LockHolder {
    let LockHeld { token: LockToken { client, number }, label } = held;
    let token = wire::LockToken { client: client.to_vec(), number };
    wire::LockHolder { token: Some(token), label: label.as_ref().to_owned() }
}

fn token(token: Option<wire::LockToken>) -> Result<LockToken, BadRequest> {
    let token = token.ok_or(missing("token"))?;
    let client = token.client.try_into().map_err(|_| missing("token of 16 bytes"))?;
    Ok(LockToken { client, number: token.number })
}
