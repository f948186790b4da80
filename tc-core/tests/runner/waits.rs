//! The scripts' view of waiting requests and of deadlocks.

use goldenscript::ArgumentConsumer;
use handfast_core::{
    Coordinator, DeadlockMember, PageBounds, RefusedDeadlock, WaitEdge, WaitedFor, WaitingRequest,
    display_row_key,
};

use super::{Fallible, request, text};

/// The wait-for graph, page by page, to see that the pages fit together.
pub(crate) fn graph(
    coordinator: &Coordinator,
    arguments: &mut ArgumentConsumer<'_>,
) -> Fallible<String> {
    let bounds = page(arguments)?;
    let (mut told, mut after) = (String::new(), None);
    loop {
        let page = coordinator.waiting_requests(after, bounds);
        told.extend(page.items.iter().map(request_of));
        after = page.next;
        if after.is_none() {
            return Ok(told);
        }
    }
}

pub(crate) fn deadlocks(coordinator: &Coordinator) -> String {
    coordinator.refused_deadlocks().iter().map(deadlock).collect()
}

/// `queue RESOURCE TABLE/KEY`, page by page.
pub(crate) fn queue(
    coordinator: &Coordinator,
    arguments: &mut ArgumentConsumer<'_>,
) -> Fallible<String> {
    let bounds = page(arguments)?;
    let resource = arguments.next_pos().ok_or("on which resource?")?;
    let (table, key) =
        arguments.next_pos().and_then(|it| it.split_once('/')).ok_or("which row?")?;
    let (mut told, mut after) = (String::new(), None);
    loop {
        let key = request::canonical(key);
        let Some(page) = coordinator.lock_queue(resource, table, &key, after, bounds) else {
            return Ok(format!("{told}free\n"));
        };
        told.extend(page.items.iter().map(|waiter| {
            let who = waiter.xid.map_or("no global".to_owned(), |xid| xid.to_string());
            format!("{who} since {}\n", waiter.since.0)
        }));
        after = page.next;
        if after.is_none() {
            return Ok(told);
        }
    }
}

fn page(arguments: &mut ArgumentConsumer<'_>) -> Fallible<PageBounds> {
    let items_max = arguments.take_key("page").map_or(Ok(100), str::parse)?;
    Ok(PageBounds { items_max, ..PageBounds::NONE })
}

fn request_of(waiting: &WaitingRequest) -> String {
    let WaitingRequest { global, since, deadline, edges, .. } = waiting;
    let edge = |edge: &WaitEdge| {
        let how = if edge.holds { "which holds" } else { "which is before it for" };
        format!("  {} {how} {}\n", edge.to.xid, thing(&edge.waited_for))
    };
    let edges: String = edges.iter().map(edge).collect();
    format!("{} waits since {} until {}\n{edges}", global.xid, since.0, deadline.0)
}

fn deadlock(deadlock: &RefusedDeadlock) -> String {
    let member = |member: &DeadlockMember| {
        let thing = member.waited_for.as_ref().map_or("?".to_owned(), thing);
        format!("  {} {} waits for {thing}\n", member.global.xid, member.global.status)
    };
    let members: String = deadlock.cycle.iter().map(member).collect();
    format!("at {}, of {}\n{members}", deadlock.at.0, deadlock.length)
}

fn thing(waited_for: &WaitedFor) -> String {
    match waited_for {
        WaitedFor::Row { resource, table, key, mode } => {
            let mode = text::mode(*mode);
            format!("{resource}/{table}/{}{mode}", display_row_key(key))
        }
        WaitedFor::NamedLock { name } => format!("lock {name}"),
    }
}
