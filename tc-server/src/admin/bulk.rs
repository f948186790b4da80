//! One action on several transactions: a dry run that names them, and then exactly those.
//!
//! The dry run and the action read and change the coordinator in small pieces, between which
//! clients are answered. What is carried out was named by a dry run: its targets come back with the
//! number of that list, and each is checked once more when its turn comes.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use handfast_core::{BranchId, OperatorAction, Xid};
use xxhash_rust::xxh3::xxh3_128;

use super::caller::Operator;
use super::extract::{self, Body};
use super::model::{BulkAction, BulkReply, BulkRequest, Problem, Resolution};
use super::{AdminState, ApiError, view};

mod carry_out;
mod dry_run;

/// The most targets of one request (BOUNDED). Each is some lines of the audit log.
const TARGETS_MAX: usize = 1_000;
/// The targets of a filter that has no limit.
const TARGETS_DEFAULT: usize = 100;

/// Retries, pauses, resumes, resolves or rolls back several transactions.
///
/// A dry run names them and says of each what would change, or why it would be refused. To carry it
/// out, send the `target`s that would change, the `confirmation` of the dry run and
/// `"dry_run": false`. Each target has its own result and its own lines in the audit log.
#[utoipa::path(
    post,
    path = "/api/v1/transactions/bulk",
    tag = "actions",
    request_body = BulkRequest,
    responses(
        (status = OK, body = BulkReply),
        (status = BAD_REQUEST, body = Problem),
        (status = CONFLICT, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn act(
    Operator(caller): Operator,
    State(state): State<AdminState>,
    Body(request): Body<BulkRequest>,
) -> Result<Response, ApiError> {
    let permit = state.begin_view()?;
    if request.targets.len() > TARGETS_MAX {
        let message = format!("{} targets: at most 1,000 are allowed", request.targets.len());
        return Err(ApiError::BadRequest(message));
    }
    let action = Act { action: request.action, resolution: request.resolution };
    let targets = request.targets.iter().map(|text| Target::parse(text));
    let targets: Vec<Target> = targets.collect::<Result<_, _>>()?;
    if request.dry_run {
        let plan = dry_run::plan(&state, action, request.filter.as_ref(), targets).await?;
        return permit.answer(move || plan.reply()).await;
    }
    if targets.is_empty() || request.confirmation != Some(action.confirmation(&targets)) {
        return Err(ApiError::NotConfirmed);
    }
    let operator = caller.name().to_string();
    let bulk = carry_out::Bulk { act: action, targets, operator, reason: request.reason };
    // On a task of its own, as every action: it is carried out even if the client disconnects.
    let finished = tokio::spawn(async move {
        let reply = bulk.carry_out(&state).await;
        drop(permit);
        reply
    });
    let finished = finished.await.map_err(|error| ApiError::Unforeseen(error.to_string()))?;
    finished.map(|reply| Json(reply).into_response())
}

/// A transaction, or one branch of it that is to be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    xid: Xid,
    branch: Option<BranchId>,
}

impl Target {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let (xid, branch) = match text.split_once('/') {
            Some((xid, branch)) => (xid, Some(extract::branch(branch)?)),
            None => (text, None),
        };
        Ok(Self { xid: extract::xid(xid)?, branch })
    }

    /// Returns the target as a client sends it back.
    fn text(self, xid: &str) -> String {
        self.branch.map_or_else(|| xid.to_owned(), |branch| format!("{xid}/{branch}"))
    }
}

/// An action, with the answer of `resolve`.
#[derive(Clone, Copy, Debug)]
struct Act {
    action: BulkAction,
    resolution: Resolution,
}

impl Act {
    /// Returns the action on a target as the core knows it; `None` for a rollback, which is a
    /// decision, and for a resolution that names no branch.
    fn operation(self, target: Target) -> Option<OperatorAction> {
        match self.action {
            BulkAction::Retry => Some(OperatorAction::Retry),
            BulkAction::Pause => Some(OperatorAction::Pause),
            BulkAction::Resume => Some(OperatorAction::Resume),
            BulkAction::Resolve => {
                let resolution = view::resolution(self.resolution);
                Some(OperatorAction::Resolve { branch: target.branch?, resolution })
            }
            BulkAction::Rollback => None,
        }
    }

    /// Returns its name, as single actions are called in the audit log.
    fn name(self) -> &'static str {
        match self.action {
            BulkAction::Retry => "retry",
            BulkAction::Pause => "pause",
            BulkAction::Resume => "resume",
            BulkAction::Resolve => "resolve",
            BulkAction::Rollback => "rollback",
        }
    }

    /// Returns the number of a list of targets. It is no secret: it shows that the client has seen
    /// these very targets in a dry run of this action.
    fn confirmation(self, targets: &[Target]) -> String {
        let mut text = self.name().to_owned();
        if self.action == BulkAction::Resolve {
            text.push_str(view::word(view::resolution(self.resolution)));
        }
        for target in targets {
            text.push(' ');
            text.push_str(&target.text(&target.xid.to_string()));
        }
        format!("{:032x}", xxh3_128(text.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(texts: &[&str]) -> Vec<Target> {
        texts.iter().map(|text| Target::parse(text).unwrap()).collect()
    }

    #[test]
    fn a_confirmation_is_that_of_one_action_and_one_list() {
        let act = |action| Act { action, resolution: Resolution::RestoreClean };
        let resolve = act(BulkAction::Resolve);
        let list = targets(&["127.0.0.1:7091:7/3", "8/4"]);
        let confirmation = resolve.confirmation(&list);
        // The number names the transaction; its address is for people.
        assert_eq!(resolve.confirmation(&targets(&["7/3", "8/4"])), confirmation);
        for other in [&["7/3"][..], &["8/4", "7/3"], &["7", "8/4"], &["7/3", "8"]] {
            assert_ne!(resolve.confirmation(&targets(other)), confirmation, "{other:?}");
        }
        let forced = Act { resolution: Resolution::ForceBefore, ..resolve };
        assert_ne!(forced.confirmation(&list), confirmation);
        let xids = targets(&["7", "8"]);
        let pause = act(BulkAction::Pause).confirmation(&xids);
        assert_ne!(act(BulkAction::Resume).confirmation(&xids), pause);
    }

    #[test]
    fn a_target_is_an_xid_with_or_without_a_branch() {
        for wrong in ["", "/", "7/", "/7", "7/x", "x/7", "7/3/4"] {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
    }
}
