//! How a decision answers.

use crate::contract::{Correlation, Effect, Outcome, Rejection, Reply};

/// A reply, none yet (or none at all), or a refusal.
pub(crate) type Answer = Result<Option<Reply>, Rejection>;

/// Answers whoever asked, if anybody did.
pub(crate) fn push_reply(out: &mut Outcome, to: Option<Correlation>, reply: Reply) {
    if let Some(to) = to {
        out.effects.push(Effect::Reply { to, reply });
    }
}
