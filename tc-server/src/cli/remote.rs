//! The commands that send requests to a running coordinator.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    CliFailure, Client, ClusterCommand, Exit, LeaseCommand, ListRange, LockCommand, OneRow,
    OutputForm, Remote, Style, TransactionCommand, TransactionList, TransactionSearch, bulk,
    exported, render,
};
use crate::admin::model::{
    ActionReply, ActionRequest, BranchQuery, Cluster, Deadlocks, ListOrder, Lock, LockPage,
    LockQuery, LockQueuePage, LockQueueQuery, NamedLock, NamedLockPage, NamedLockQuery,
    OneLockQuery, OneNamedLockQuery, Processes, Recent, ReleaseReply, ReleaseRequest,
    ResolveRequest, Resources, ServerStatus, TransactionDetail, TransactionPage, TransactionQuery,
    TransferReply, WaitGraph, WaitGraphQuery, WaitNode,
};

/// The most branches that the coordinator shows in one answer.
const BRANCHES_AT_A_TIME: usize = 1_000;

pub(super) fn transactions(
    command: TransactionCommand,
    output: &mut dyn Write,
) -> Result<(), CliFailure> {
    use TransactionCommand as Tx;
    match command {
        Tx::Ls(list) => list_transactions(*list, output),
        Tx::Show(one) => {
            let detail = match (&one.file, &one.xid) {
                (Some(file), _) => exported::read(file)?,
                (None, xid) => {
                    let path = transaction_path(xid.as_deref().unwrap_or_default())?;
                    fetch_transaction(&one.remote, &path)?
                }
            };
            show(&one.remote, output, &detail, render::render_transaction)
        }
        Tx::Bulk(command) => bulk::run(*command, output),
        Tx::Commit(act) => end(&act.xid, "commit", act.reason, &act.remote, output),
        Tx::Rollback(act) => end(&act.xid, "rollback", act.reason, &act.remote, output),
        Tx::Retry(one) => end(&one.xid, "retry", String::new(), &one.remote, output),
        Tx::Pause(one) => end(&one.xid, "pause", String::new(), &one.remote, output),
        Tx::Resume(one) => end(&one.xid, "resume", String::new(), &one.remote, output),
        Tx::Resolve { xid, branch, resolution, reason, remote } => {
            let branch = segment(&branch, "a branch is a number")?;
            let path = format!("{}/branches/{branch}/resolve", transaction_path(&xid)?);
            act(&remote, &path, &ResolveRequest { resolution, reason }, output)
        }
    }
}

fn list_transactions(list: TransactionList, output: &mut dyn Write) -> Result<(), CliFailure> {
    let TransactionList { filter, page, remote } = list;
    let mut query = filter.query();
    let (items, next) = collect_pages(page, |cursor, limit| {
        (query.cursor, query.limit) = (cursor, Some(limit));
        let page: TransactionPage = get(&remote, "/transactions", &query)?;
        Ok((page.items, page.next))
    })?;
    show(&remote, output, &TransactionPage { items, next }, render::render_transactions)
}

impl TransactionSearch {
    /// Returns the query of the first page.
    pub(super) fn query(self) -> TransactionQuery {
        TransactionQuery {
            status: self.status,
            application: self.application,
            name: self.name,
            older_than: self.older_than,
            younger_than: self.younger_than,
            since: self.since,
            until: self.until,
            label: self.label,
            resource: self.resource,
            table: self.table,
            text: self.text,
            order: self.oldest_first.then_some(ListOrder::Oldest),
            cursor: None,
            limit: None,
        }
    }
}

pub(super) fn locks(command: LockCommand, output: &mut dyn Write) -> Result<(), CliFailure> {
    match command {
        LockCommand::Ls { resource, table, key, holder, page, remote } => {
            let mut query = LockQuery { resource, table, key, holder, cursor: None, limit: None };
            let (items, next) = collect_pages(page, |cursor, limit| {
                (query.cursor, query.limit) = (cursor, Some(limit));
                let page: LockPage = get(&remote, "/locks", &query)?;
                Ok((page.items, page.next))
            })?;
            show(&remote, output, &LockPage { items, next }, render::render_locks)
        }
        LockCommand::Show { row: OneRow { resource, table, key }, remote } => {
            let lock: Lock = get(&remote, "/locks/one", &OneLockQuery { resource, table, key })?;
            show(&remote, output, &lock, render::render_lock)
        }
        LockCommand::Queue { row, page, remote } => {
            let queue = fetch_queue(row, page, &remote)?;
            show(&remote, output, &queue, render::render_queue)
        }
        LockCommand::Graph { page, remote } => {
            let graph = fetch_graph(page, &remote)?;
            show(&remote, output, &graph, render::render_graph)
        }
        LockCommand::Deadlocks(remote) => {
            let deadlocks: Deadlocks = get(&remote, "/locks/deadlocks", &())?;
            show(&remote, output, &deadlocks, render::render_deadlocks)
        }
    }
}

fn fetch_queue(row: OneRow, page: ListRange, remote: &Remote) -> Result<LockQueuePage, CliFailure> {
    let OneRow { resource, table, key } = row;
    let mut query = LockQueueQuery { resource, table, key, cursor: None, limit: None };
    let mut waiting = 0;
    let (items, next) = collect_pages(page, |cursor, limit| {
        (query.cursor, query.limit) = (cursor, Some(limit));
        let page: LockQueuePage = get(remote, "/locks/queue", &query)?;
        waiting = page.waiting;
        Ok((page.items, page.next))
    })?;
    Ok(LockQueuePage { items, next, waiting })
}

/// Fetches a part of the graph with at most that many edges and those that the last request has
/// beyond it. A transaction waits if any part says so.
fn fetch_graph(page: ListRange, remote: &Remote) -> Result<WaitGraph, CliFailure> {
    let mut nodes: BTreeMap<String, WaitNode> = BTreeMap::new();
    let (edges, next) = collect_pages(page, |cursor, limit| {
        let query = WaitGraphQuery { cursor, limit: Some(limit) };
        let part: WaitGraph = get(remote, "/locks/graph", &query)?;
        for node in part.nodes {
            let waits = nodes.get(&node.xid).is_some_and(|known| known.waits) || node.waits;
            nodes.insert(node.xid.clone(), WaitNode { waits, ..node });
        }
        Ok((part.edges, part.next))
    })?;
    Ok(WaitGraph { nodes: nodes.into_values().collect(), edges, next })
}

pub(super) fn leases(command: LeaseCommand, output: &mut dyn Write) -> Result<(), CliFailure> {
    match command {
        LeaseCommand::Ls { page, remote } => {
            let (items, next) = collect_pages(page, |cursor, limit| {
                let query = NamedLockQuery { cursor, limit: Some(limit) };
                let page: NamedLockPage = get(&remote, "/named-locks", &query)?;
                Ok((page.items, page.next))
            })?;
            show(&remote, output, &NamedLockPage { items, next }, render::render_named_locks)
        }
        LeaseCommand::Show { name, remote } => {
            let query = OneNamedLockQuery { name };
            let lock: NamedLock = get(&remote, "/named-locks/one", &query)?;
            show(&remote, output, &lock, render::render_named_lock)
        }
        LeaseCommand::Release { name, only, reason, remote } => {
            let request = ReleaseRequest { name, token: only, reason };
            let client = Client::new(&remote)?;
            let post = client.post("/named-locks/release", &request);
            let reply: ReleaseReply = block_on(post)??;
            show(&remote, output, &reply, render::render_release)
        }
    }
}

pub(super) fn resources(remote: &Remote, output: &mut dyn Write) -> Result<(), CliFailure> {
    let resources: Resources = get(remote, "/resources", &())?;
    show(remote, output, &resources, render::render_resources)
}

pub(super) fn processes(remote: &Remote, output: &mut dyn Write) -> Result<(), CliFailure> {
    let processes: Processes = get(remote, "/processes", &())?;
    show(remote, output, &processes, render::render_processes)
}

pub(super) fn status(remote: &Remote, output: &mut dyn Write) -> Result<(), CliFailure> {
    let status: ServerStatus = get(remote, "/status", &())?;
    show(remote, output, &status, render::render_status)
}

pub(super) fn recent(remote: &Remote, output: &mut dyn Write) -> Result<(), CliFailure> {
    let recent: Recent = get(remote, "/recent", &())?;
    show(remote, output, &recent, render::render_recent)
}

pub(super) fn cluster(command: ClusterCommand, output: &mut dyn Write) -> Result<(), CliFailure> {
    match command {
        ClusterCommand::Status(remote) => {
            let cluster: Cluster = get(&remote, "/cluster", &())?;
            show(&remote, output, &cluster, render::render_cluster)
        }
        ClusterCommand::Transfer { reason, remote } => {
            let client = Client::new(&remote)?;
            let request = ActionRequest { reason };
            let reply: TransferReply = block_on(client.post("/cluster/transfer", &request))??;
            show(&remote, output, &reply, render::render_transfer)
        }
    }
}

fn end(
    xid: &str,
    action: &str,
    reason: String,
    remote: &Remote,
    output: &mut dyn Write,
) -> Result<(), CliFailure> {
    let path = format!("{}/{action}", transaction_path(xid)?);
    act(remote, &path, &ActionRequest { reason }, output)
}

fn act(
    remote: &Remote,
    path: &str,
    body: &impl Serialize,
    output: &mut dyn Write,
) -> Result<(), CliFailure> {
    let client = Client::new(remote)?;
    let reply: ActionReply = block_on(client.post(path, body))??;
    show(remote, output, &reply, render::render_action)
}

/// Fetches pages of a list to its end, or to the limit. One page may have fewer items than
/// requested, or none, although the list continues.
pub(super) fn collect_pages<Item>(
    page: ListRange,
    mut ask: impl FnMut(Option<String>, usize) -> Result<(Vec<Item>, Option<String>), CliFailure>,
) -> Result<(Vec<Item>, Option<String>), CliFailure> {
    let (mut items, mut cursor) = (Vec::new(), page.cursor);
    loop {
        let (more, next) = ask(cursor, page.limit.saturating_sub(items.len()))?;
        items.extend(more);
        if next.is_none() || items.len() >= page.limit {
            return Ok((items, next));
        }
        cursor = next;
    }
}

/// Fetches a transaction with all its branches, which come in several answers.
fn fetch_transaction(remote: &Remote, path: &str) -> Result<TransactionDetail, CliFailure> {
    let mut query = BranchQuery { cursor: None, limit: Some(BRANCHES_AT_A_TIME) };
    let mut detail: TransactionDetail = get(remote, path, &query)?;
    while let Some(cursor) = detail.next.take() {
        query.cursor = Some(cursor);
        let part: TransactionDetail = get(remote, path, &query)?;
        detail.branches.extend(part.branches);
        detail.timeline.extend(part.timeline);
        detail.next = part.next;
    }
    // RFC 3339 texts sort like the points in time.
    detail.timeline.sort_by(|one, other| one.at.cmp(&other.at));
    Ok(detail)
}

pub(super) fn get<Answer: DeserializeOwned>(
    remote: &Remote,
    path: &str,
    query: &impl Serialize,
) -> Result<Answer, CliFailure> {
    let client = Client::new(remote)?;
    block_on(client.get(path, query))?
}

/// Returns the path of a transaction. An XID is one path segment: an address, which may be IPv6,
/// and a number.
fn transaction_path(xid: &str) -> Result<String, CliFailure> {
    let xid = segment(xid, "an xid is `address:number` or a number")?;
    Ok(format!("/transactions/{xid}"))
}

pub(super) fn segment<'a>(text: &'a str, wrong: &str) -> Result<&'a str, CliFailure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:[]@".contains(c);
    if !text.is_empty() && text.chars().all(plain) && !text.trim_matches('.').is_empty() {
        return Ok(text);
    }
    let message = format!("`{text}`: {wrong}");
    Err(CliFailure::new(Exit::Usage, "HF-CLI-ARGUMENT", message))
}

/// Prints an answer, as JSON or as a table.
pub(super) fn show<Answer: Serialize>(
    remote: &Remote,
    output: &mut dyn Write,
    answer: &Answer,
    render: fn(&Answer, Style) -> String,
) -> Result<(), CliFailure> {
    let form = if remote.json { OutputForm::Json } else { remote.output };
    let text = match form {
        OutputForm::Json => serde_json::to_string_pretty(answer).map_err(std::io::Error::from)?,
        OutputForm::Wide => render(answer, Style::Wide),
        OutputForm::Table if std::io::stdout().is_terminal() => {
            render(answer, Style::of_terminal())
        }
        OutputForm::Table => render(answer, Style::Plain),
    };
    Ok(writeln!(output, "{}", text.trim_end())?)
}

pub(super) fn block_on<Answer>(future: impl Future<Output = Answer>) -> Result<Answer, CliFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliFailure::new(Exit::Failed, "HF-CLI-RUNTIME", error.to_string()))?;
    Ok(runtime.block_on(future))
}
