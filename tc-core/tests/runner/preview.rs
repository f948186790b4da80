//! Every action of an operator in a script is previewed first, and does what the preview said.

use handfast_core::{
    Command, Coordinator, DecidedBy, Decision, Effect, Outcome, Preview, Rejection, Reply,
};

use super::Fallible;

type Previewed = Option<Result<Preview, Rejection>>;

/// Returns what the command would do, if it is an action of an operator that has a preview.
pub(super) fn of(coordinator: &Coordinator, command: &Command) -> Previewed {
    if let Command::Operate { xid, action, .. } = command {
        return Some(coordinator.preview_action(*xid, *action));
    }
    if let Command::End { xid, decision: Decision::RollBack, by: DecidedBy::Operator, .. } = command
    {
        return Some(coordinator.preview_rollback(*xid));
    }
    None
}

/// Checks that the command did what its preview said.
pub(super) fn check(previewed: Previewed, out: &Outcome) -> Fallible<()> {
    let Some(previewed) = previewed else { return Ok(()) };
    let refused = out.effects.iter().find_map(|effect| {
        if let Effect::Reply { reply: Reply::Rejected(rejection), .. } = effect {
            Some(rejection)
        } else {
            None
        }
    });
    let is_so = match (&previewed, refused) {
        (Err(expected), Some(refused)) => expected == refused,
        (Ok(Preview::Changes), None) => true,
        // A saga is stored again all the same, but no call is made or held.
        (Ok(Preview::Unchanged), None) => {
            let calls = out.effects.iter().filter(|it| !matches!(it, Effect::Reply { .. }));
            calls.count() == 0
        }
        (Err(_), None) | (Ok(_), Some(_)) => false,
    };
    if is_so { Ok(()) } else { Err(format!("the preview was {previewed:?}, not {out:?}").into()) }
}
