//! The dry run of an action on several transactions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use handfast_core::{
    BranchId, Coordinator, GlobalPart, GlobalStatus, PageBounds, Preview, Rejection, Xid, XidText,
};

use super::{Act, TARGETS_DEFAULT, TARGETS_MAX, Target};
use crate::admin::model::{
    BulkAction, BulkItem, BulkOutcome, BulkReply, Resolution, TransactionQuery,
};
use crate::admin::{AdminState, ApiError, list, transactions, view};

/// The time after which a dry run ends with the transactions that it has found.
const SEARCH_TIME_MAX: Duration = Duration::from_secs(2);
/// The most refused branches of one transaction that one dry run names.
const BRANCHES_MAX: usize = 100;

/// The targets with the effect that an action would have on each.
pub(super) struct Plan {
    act: Act,
    previews: Vec<Previewed>,
    next: Option<Xid>,
    /// The address of XIDs that are not known.
    address: String,
}

/// A target, the transaction that it is of, and what the action would do.
struct Previewed {
    target: Target,
    global: Option<Arc<GlobalPart>>,
    outcome: Result<Preview, Rejection>,
}

/// Finds the transactions of a filter, or takes those that are named, and previews the action.
pub(super) async fn plan(
    state: &AdminState,
    act: Act,
    filter: Option<&TransactionQuery>,
    targets: Vec<Target>,
) -> Result<Plan, ApiError> {
    let (targets, mut next) = match filter {
        Some(_) if !targets.is_empty() => {
            return Err(ApiError::BadRequest("give a filter or targets, and not both".to_owned()));
        }
        Some(filter) => find(state, filter).await?,
        None if targets.is_empty() => {
            return Err(ApiError::BadRequest("name transactions: a filter or targets".to_owned()));
        }
        None => (targets, None),
    };
    let targets: Arc<[Target]> = targets.into();
    let mut previews: Vec<Previewed> = Vec::new();
    let mut from = 0;
    while from < targets.len() && previews.len() < TARGETS_MAX {
        let all = Arc::clone(&targets);
        let turn = move |coordinator: &Coordinator| preview_turn(coordinator, act, &all[from..]);
        let (more, looked_at) = state.engine().scan(turn).await?;
        from += looked_at;
        previews.extend(more);
    }
    if previews.len() > TARGETS_MAX {
        // One transaction may have many branches. It is named as a whole, or in the next dry run.
        let cut = previews[TARGETS_MAX].target.xid;
        previews.retain(|it| it.target.xid != cut);
        next = previews.last().map(|it| it.target.xid);
    } else if from < targets.len() {
        next = previews.last().map(|it| it.target.xid);
    }
    let address = state.about().advertised_address.clone();
    Ok(Plan { act, previews, next, address })
}

/// Finds transactions as the list does, several pages of it.
async fn find(
    state: &AdminState,
    query: &TransactionQuery,
) -> Result<(Vec<Target>, Option<Xid>), ApiError> {
    let mut filter = transactions::filter(query, state.now())?;
    filter.is_unfinished = filter.status.is_none();
    let limit = query.limit.unwrap_or(TARGETS_DEFAULT).clamp(1, TARGETS_MAX);
    let mut next = transactions::cursor(query)?;
    let (mut found, started) = (Vec::new(), Instant::now());
    loop {
        let filter = filter.clone();
        let look = move |coordinator: &Coordinator, after, bounds| {
            coordinator.globals(&filter, after, bounds)
        };
        let page = list::page(state, next, Some(limit - found.len()), |_| 1, look).await?;
        let targets = page.items.iter().map(|it| Target { xid: it.record.xid, branch: None });
        found.extend(targets);
        next = page.next;
        if next.is_none() || found.len() >= limit || started.elapsed() >= SEARCH_TIME_MAX {
            return Ok((found, next));
        }
    }
}

/// Previews the action on the first targets, as many as one turn of the engine allows. Returns also
/// how many targets that were.
fn preview_turn(
    coordinator: &Coordinator,
    act: Act,
    targets: &[Target],
) -> (Vec<Previewed>, usize) {
    let (mut previews, mut looked_at, mut scanned) = (Vec::new(), 0, 0);
    for &target in targets {
        if scanned >= list::TURN.scanned_max {
            break;
        }
        let bounds = PageBounds { items_max: 1, scanned_max: 1 };
        let global = coordinator.global_part(target.xid, 0, bounds).map(Arc::new);
        scanned += 1 + global.as_ref().map_or(0, |part| part.scanned);
        let (branches, besides) = branches(coordinator, act, target);
        scanned += besides;
        previews.extend(branches.into_iter().map(|target| {
            let outcome = preview(coordinator, act, target);
            Previewed { target, global: global.clone(), outcome }
        }));
        looked_at += 1;
    }
    (previews, looked_at)
}

/// Returns the refused branches of a transaction that is to be resolved as a whole, or the target
/// itself. Returns also how many branches were looked at.
fn branches(coordinator: &Coordinator, act: Act, target: Target) -> (Vec<Target>, usize) {
    if act.action != BulkAction::Resolve || target.branch.is_some() {
        return (vec![target], 0);
    }
    let (found, scanned) = coordinator.refused_branches(target.xid, BRANCHES_MAX);
    if found.is_empty() {
        return (vec![target], scanned);
    }
    let of = |branch: BranchId| Target { branch: Some(branch), ..target };
    (found.into_iter().map(of).collect(), scanned)
}

fn preview(coordinator: &Coordinator, act: Act, target: Target) -> Result<Preview, Rejection> {
    let xid = target.xid;
    match act.operation(target) {
        Some(action) => coordinator.preview_action(xid, action),
        None if act.action == BulkAction::Rollback => coordinator.preview_rollback(xid),
        None => {
            let status = coordinator.status(xid);
            if status == GlobalStatus::Unknown {
                return Err(Rejection::UnknownXid(xid));
            }
            let action = "resolve of a transaction without a refused branch";
            Err(Rejection::NotApplicable { xid, action, status })
        }
    }
}

impl Plan {
    pub(super) fn reply(&self) -> BulkReply {
        let changing = self.previews.iter().filter(|it| it.outcome == Ok(Preview::Changes));
        let changing: Vec<Target> = changing.map(|it| it.target).collect();
        let items: Vec<BulkItem> = self.previews.iter().map(|it| self.item(it)).collect();
        BulkReply {
            action: self.act.action,
            dry_run: true,
            changes: changing.len(),
            refusals: items.iter().filter(|it| it.outcome == BulkOutcome::Refused).count(),
            items,
            confirmation: (!changing.is_empty()).then(|| self.act.confirmation(&changing)),
            next: self.next.map(|xid| xid.to_string()),
        }
    }

    fn item(&self, previewed: &Previewed) -> BulkItem {
        let Previewed { target, global, outcome } = previewed;
        let record = global.as_ref().map(|part| &part.record);
        let address = record.map_or(&*self.address, |record| &record.address);
        let xid = XidText { address, xid: target.xid }.to_string();
        let (outcome, effect, refusal) = match outcome {
            Ok(Preview::Changes) => {
                let branches = global.as_ref().map_or(0, |part| part.branch_count);
                (BulkOutcome::WouldChange, Some(effect(self.act, branches)), None)
            }
            Ok(Preview::Unchanged) => {
                (BulkOutcome::Unchanged, Some("stays as it is".to_owned()), None)
            }
            Err(rejection) => (BulkOutcome::Refused, None, Some(rejection)),
        };
        BulkItem {
            target: target.text(&xid),
            outcome,
            application: record.map(|record| record.application.to_string()),
            name: record.map(|record| record.name.to_string()),
            labels: record.map(|record| view::labels(&record.labels)).unwrap_or_default(),
            status: global.as_ref().map(|part| view::status(part.status)),
            effect,
            code: refusal.map(|rejection| rejection.code().to_owned()),
            message: refusal.map(ToString::to_string),
        }
    }
}

/// Returns what an action does, in words that follow the transaction's name.
fn effect(act: Act, branches: usize) -> String {
    let text = match act.action {
        BulkAction::Retry => "phase two is tried at once",
        BulkAction::Pause => "phase two is not tried until it is resumed; its rows stay locked",
        BulkAction::Resume => "phase two is tried again",
        BulkAction::Rollback => match branches {
            0 => "is rolled back; it has no branch",
            1 => "is rolled back; its branch undoes what it has done",
            branches => {
                return format!("is rolled back; its {branches} branches undo what they have done");
            }
        },
        BulkAction::Resolve => match act.resolution {
            Resolution::RestoreClean => "clean rows are put back, dirty ones are left",
            Resolution::AcceptCurrent => "every row is left as it is",
            Resolution::ForceBefore => "the before image is written over every row",
        },
    };
    text.to_owned()
}
