//! The context that a wing of the coordinator borrows while one request is decided.
//!
//! A wing is its own state, this context, and whatever of other wings its type names. So the type
//! says what a function can touch: `Sagas` has no globals, and `NamedLocks` knows of the globals
//! that own leases only what `Owners` tells.

use std::sync::Arc;

use crate::collections::interner::Names;
use crate::contract::{
    After, Asker, Change, Correlation, Effect, Limits, Outcome, RecordKey, Rejection, Reply,
    RequestTrace, Timestamp,
};
use crate::id_generator::IdGenerator;
use crate::restart::Restart;

/// A reply, none yet (or none at all), or a refusal.
pub(crate) type HandlerResult = Result<Option<Reply>, Rejection>;

/// The state that the wings share, from decision to decision.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    pub(crate) address: Arc<str>,
    pub(crate) limits: Limits,
    pub(crate) restart: Restart,
    pub(crate) ids: IdGenerator,
    pub(crate) names: Names,
    /// The sender of the request that is being decided.
    pub(crate) asker: Asker,
    /// Where that request stands in a trace.
    pub(crate) trace: Option<RequestTrace>,
}

impl Environment {
    #[inline]
    pub(crate) fn context<'a>(
        &'a mut self,
        now: Timestamp,
        out: &'a mut Outcome,
    ) -> DecisionContext<'a> {
        DecisionContext {
            now,
            asker: &self.asker,
            trace: self.trace.as_ref(),
            address: &self.address,
            limits: &self.limits,
            restart: self.restart,
            names: &mut self.names,
            ids: &mut self.ids,
            out,
        }
    }
}

/// The context of one decision.
#[derive(Debug)]
pub(crate) struct DecisionContext<'a> {
    pub(crate) now: Timestamp,
    /// The sender of the request.
    pub(crate) asker: &'a Asker,
    /// Where the request stands in a trace.
    pub(crate) trace: Option<&'a RequestTrace>,
    /// The address part of new XIDs.
    pub(crate) address: &'a Arc<str>,
    pub(crate) limits: &'a Limits,
    pub(crate) restart: Restart,
    pub(crate) names: &'a mut Names,
    pub(crate) ids: &'a mut IdGenerator,
    pub(crate) out: &'a mut Outcome,
}

impl DecisionContext<'_> {
    /// Lends the context to another wing.
    #[inline]
    pub(crate) fn lend(&mut self) -> DecisionContext<'_> {
        DecisionContext {
            now: self.now,
            asker: self.asker,
            trace: self.trace,
            address: self.address,
            limits: self.limits,
            restart: self.restart,
            names: self.names,
            ids: self.ids,
            out: self.out,
        }
    }

    /// Answers a request that has waited, if its sender still waits.
    pub(crate) fn reply(&mut self, to: Option<Correlation>, reply: Reply) {
        if let Some(to) = to {
            self.out.effects.push(Effect::Reply { to, reply, when: After::Batch });
        }
    }

    pub(crate) fn delete(&mut self, key: RecordKey) {
        self.out.changes.push(Change::Delete(key));
    }
}
