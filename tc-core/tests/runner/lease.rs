//! The commands about named locks, and leases in words.
//!
//! ```text
//! acquire a1 LOCK [share=read|N] [lease=MS] [wait=MS] [delay=MS] [hold=MS] [xid=x1] [as=NAME]
//! renew a1 [TOKEN...] [lease=MS]
//! release a1 LOCK [doubtful=yes]
//! find LOCK
//! break LOCK [token=a1]
//! ```
//!
//! `a1` is an acquisition: it is the token, and what its client calls itself.

use goldenscript::{ArgumentConsumer, Command as ScriptLine};
use handfast_core::{
    Command, Coordinator, LeaseRecord, LockHeld, LockShare, LockToken, NewLease, PageBounds,
    Timestamp,
};

use super::text::token;
use super::{Fallible, Names};

/// The name of the request and what is asked; `None` if the command is another one.
pub(crate) fn parse(names: &Names, command: &ScriptLine) -> Fallible<Option<(String, Command)>> {
    let mut arguments = command.consume_args();
    let name = command.name.as_str();
    if !matches!(name, "acquire" | "renew" | "release" | "find" | "break") {
        return Ok(None);
    }
    let subject = arguments.next_pos().ok_or("which acquisition or lock?")?;
    let called = arguments.take_key("as").unwrap_or(subject).to_owned();
    let arguments = &mut arguments;
    let command = match name {
        "acquire" => acquire(names, subject, arguments)?,
        "renew" => renew(subject, arguments)?,
        "release" => Command::ReleaseLock {
            name: arguments.next_pos().ok_or("which lock?")?.into(),
            token: token_of(subject),
            refuses_late: arguments.take_key("doubtful").is_some(),
        },
        "find" => Command::FindLock { name: subject.into() },
        _ => Command::BreakLock {
            name: subject.into(),
            token: arguments.take_key("token").map(token_of),
        },
    };
    arguments.reject_next()?;
    Ok(Some((called, command)))
}

fn acquire(
    names: &Names,
    subject: &str,
    arguments: &mut ArgumentConsumer<'_>,
) -> Fallible<Command> {
    let share = match arguments.take_key("share") {
        None => LockShare::All,
        Some("read") => LockShare::Part { of: u32::MAX },
        Some(of) => LockShare::Part { of: of.parse()? },
    };
    let mut number = |name| arguments.take_key(name).map(str::parse::<u64>).transpose();
    let (lease_ms, wait_ms) = (number("lease")?.unwrap_or(100), number("wait")?.unwrap_or(0));
    let (delay_ms, hold_ms_max) = (number("delay")?.unwrap_or(0), number("hold")?);
    Ok(Command::AcquireLock(Box::new(NewLease {
        xid: arguments.take_key("xid").map(|xid| names.xid(xid)),
        name: arguments.next_pos().ok_or("which lock?")?.into(),
        token: token_of(subject),
        share,
        label: subject.into(),
        lease_ms,
        delay_ms,
        hold_ms_max,
        wait_ms,
    })))
}

fn renew(subject: &str, arguments: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let lease_ms = arguments.take_key("lease").map_or(Ok(100), str::parse)?;
    let others = std::iter::from_fn(|| arguments.next_pos()).map(token_of);
    let tokens = std::iter::once(token_of(subject)).chain(others).collect();
    Ok(Command::RenewLocks { tokens, lease_ms })
}

fn token_of(name: &str) -> LockToken {
    let mut client = [0; 16];
    let length = name.len().min(16);
    client[..length].copy_from_slice(&name.as_bytes()[..length]);
    LockToken { client, number: 1 }
}

pub(crate) fn held(holder: &Option<LockHeld>) -> String {
    let by = holder.as_ref().map(|holder| format!("{} holds", holder.label));
    by.unwrap_or_else(|| "free".to_owned())
}

pub(crate) fn lease(lease: &LeaseRecord) -> String {
    let LeaseRecord { name, label, .. } = lease;
    let owner = lease.xid.map_or(String::new(), |xid| format!(" of {xid}"));
    let until = if lease.xid.is_some() { 0 } else { lease.ends_at.0 };
    let until = if until > 0 { format!(" until {until}") } else { String::new() };
    format!(
        "{label} holds {name}{}{owner}{until}, fence {}",
        share(lease.share),
        token(lease.fence)
    )
}

pub(crate) fn list(coordinator: &Coordinator, now: Timestamp) -> String {
    let mut text = String::new();
    for lock in coordinator.named_locks(None, PageBounds::NONE).items {
        text += &format!("{}\n", lock.name);
        for held in &lock.held {
            let over = if held.is_held(now) { "" } else { ", time is up" };
            text += &format!("  {}{over}\n", lease(held));
        }
        for waiter in &lock.queue {
            let owner = waiter.xid.map_or(String::new(), |xid| format!(" of {xid}"));
            let (label, since) = (&waiter.label, waiter.since.0);
            text += &format!("  {label}{}{owner} waits since {since}\n", share(waiter.share));
        }
    }
    text
}

fn share(share: LockShare) -> String {
    match share {
        LockShare::All => String::new(),
        LockShare::Part { of: u32::MAX } => " (read)".to_owned(),
        LockShare::Part { of } => format!(" (1 of {of})"),
    }
}
