//! The work that the programs are given, and what must come of it.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::http::SignedCall;
use crate::stage::{Holdings, SECRET, Stage};

/// Points of one purchase or trip, by the default of the programs.
const POINTS: i64 = 30;

/// A scenario.
pub(crate) type Play = fn(&mut Stage) -> Result<()>;

/// Each by its name. The first one wants the participant as it is after its start.
pub(crate) const SCENARIOS: &[(&str, Play)] = &[
    ("a purchase commits", purchase),
    ("a refused purchase leaves nothing", refused),
    ("only the coordinator is obeyed", signatures),
    ("an operation takes effect once", fence),
    ("the coordinator is killed under purchases", killed),
    ("a saga waits for a person, through a crash", approved),
    ("a saga is compensated", compensated),
    ("a lock keeps a second process out", locked),
    ("a dead holder's lock is granted again", dead_holder),
    ("a late holder cannot write", late_holder),
];

fn purchase(stage: &mut Stage) -> Result<()> {
    let before = stage.holdings()?;
    ensure!(before == Holdings { points: 1000, seats: 20, held: 0, orders: 0 }, "{before:?}");
    expect(&stage.run("purchase", &[])?, "bought 1, refused 0, undone 0, unknown 0")?;
    stage.until_holdings(Holdings { points: 1000 - POINTS, seats: 19, held: 0, orders: 1 })
}

fn refused(stage: &mut Stage) -> Result<()> {
    let before = stage.holdings()?;
    let said = stage.run("purchase", &["--flight", "none", "--first", "1000"])?;
    expect(&said, "refused: ")?;
    expect(&said, "bought 0, refused 1, undone 0, unknown 0")?;
    stage.until_holdings(before)
}

fn signatures(stage: &mut Stage) -> Result<()> {
    let before = stage.holdings()?;
    let call = SignedCall {
        resource: "/handfast/debit",
        operation: "try",
        branch: "1",
        body: r#"{"customer":7,"points":30}"#,
        age: Duration::ZERO,
    };
    let status = call.send(stage.participant, "another secret of thirty-two bytes")?;
    ensure!(status == 401, "by another secret: {status}");
    let old = SignedCall { age: Duration::from_secs(600), ..call.clone() };
    let status = old.send(stage.participant, SECRET)?;
    ensure!(status == 401, "signed ten minutes ago: {status}");
    let unknown = SignedCall { resource: "/handfast/other", ..call };
    let status = unknown.send(stage.participant, SECRET)?;
    ensure!(status == 404, "of an unknown resource: {status}");
    stage.until_holdings(before)
}

fn fence(stage: &mut Stage) -> Result<()> {
    let before = stage.holdings()?;
    let send = |branch: &str, operation: &str, points: i64| {
        let body = format!(r#"{{"customer":7,"points":{points}}}"#);
        let resource = "/handfast/debit";
        let call = SignedCall { resource, operation, branch, body: &body, age: Duration::ZERO };
        call.send(stage.participant, SECRET)
    };
    let expect = |branch: &str, operation: &str, points: i64, expected: u16| -> Result<()> {
        let status = send(branch, operation, points)?;
        ensure!(status == expected, "{operation} of {branch}: {status}, not {expected}");
        Ok(())
    };
    expect("10", "try", POINTS, 200)?;
    expect("10", "try", POINTS, 200)?;
    expect("10", "confirm", POINTS, 200)?;
    expect("10", "confirm", POINTS, 200)?;
    expect("11", "cancel", POINTS, 200)?;
    expect("11", "try", POINTS, 409)?;
    expect("12", "confirm", POINTS, 503)?;
    expect("13", "try", 1_000_000, 409)?;
    expect("13", "cancel", 1_000_000, 200)?;
    // Ten at the same time: two at a time meet in the database.
    thread::scope(|scope| {
        let tries: Vec<_> = (0..10).map(|_| scope.spawn(|| send("14", "try", POINTS))).collect();
        tries.into_iter().try_for_each(|it| {
            let status = it.join().map_err(|_| anyhow::anyhow!("a sender panicked"))??;
            ensure!(status == 200 || status == 503, "try of 14: {status}");
            Ok(())
        })
    })?;
    expect("14", "try", POINTS, 200)?;
    expect("14", "cancel", POINTS, 200)?;
    stage.until_holdings(Holdings { points: before.points - POINTS, ..before })
}

fn killed(stage: &mut Stage) -> Result<()> {
    let before = stage.holdings()?;
    let buyers = [100, 200].map(|first: i64| {
        stage.start("purchase", &["--count", "8", "--points", "1", "--first", &first.to_string()])
    });
    let [first, second] = buyers;
    let (first, second) = (first?, second?);
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(400));
        stage.coordinator.kill()?;
        thread::sleep(Duration::from_millis(300));
        stage.coordinator.restart()?;
    }
    let mut bought = 0;
    for buyer in [first, second] {
        let (status, said) = buyer.end()?;
        ensure!(status.success(), "{status}: {said}");
        let count = |what: &str| count_of(&said, what);
        ensure!(count("unknown ")? == 0, "a decision is unknown: {said}");
        ensure!(count("bought ")? + count("undone ")? + count("refused ")? == 8, "{said}");
        bought += count("bought ")?;
    }
    ensure!(bought > 0, "no purchase was made");
    stage.until_holdings(Holdings {
        points: before.points - bought,
        seats: before.seats - bought,
        held: 0,
        orders: before.orders + bought,
    })
}

fn approved(stage: &mut Stage) -> Result<()> {
    let before = stage.holdings()?;
    let xid = start_trip(stage, "trip-1", "HF1")?;
    // The same key is the same saga.
    ensure!(start_trip(stage, "trip-1", "HF1")? == xid, "a key names one saga");
    stage.until_holdings(Holdings { points: before.points - POINTS, ..before })?;
    stage.coordinator.kill()?;
    stage.coordinator.restart()?;
    let said = stage.run("trip", &["show", &xid])?;
    expect(&said, "approval: running")?;
    stage.run("trip", &["approve", &xid])?;
    expect(&stage.run("trip", &["wait", &xid])?, &format!("{xid} completed"))?;
    let (points, seats) = (before.points - POINTS, before.seats - 1);
    stage.until_holdings(Holdings { points, seats, ..before })
}

fn compensated(stage: &mut Stage) -> Result<()> {
    let before = stage.holdings()?;
    let without_seat = start_trip(stage, "trip-2", "none")?;
    stage.run("trip", &["approve", &without_seat])?;
    let said = stage.run("trip", &["wait", &without_seat])?;
    expect(&said, &format!("{without_seat} compensated"))?;
    let not_approved = start_trip(stage, "trip-3", "HF1")?;
    stage.run("trip", &["cancel", &not_approved])?;
    let said = stage.run("trip", &["wait", &not_approved])?;
    expect(&said, &format!("{not_approved} compensated"))?;
    stage.until_holdings(before)
}

fn locked(stage: &mut Stage) -> Result<()> {
    let day = ["--day", "locked"];
    let mut holder = stage.start("nightly", &[&day[..], &["--seconds", "0.5"]].concat())?;
    expect(&holder.line()?, "line 1 under token ")?;
    expect(&stage.run("nightly", &day)?, "is held by nightly")?;
    let (status, said) = holder.end()?;
    ensure!(status.success(), "{status}");
    expect(&said, "line 5 under token ")?;
    // Released: no wait.
    expect(&stage.run("nightly", &day)?, "line 5 under token ")
}

fn dead_holder(stage: &mut Stage) -> Result<()> {
    let arguments = ["--day", "dead", "--lease", "2", "--wait", "20"];
    let mut holder = stage.start("nightly", &arguments)?;
    expect(&holder.line()?, "line 1 under token ")?;
    holder.process().kill()?;
    expect(&stage.run("nightly", &arguments)?, "line 5 under token ")
}

fn late_holder(stage: &mut Stage) -> Result<()> {
    let arguments = ["--day", "late", "--lease", "2", "--wait", "20", "--seconds", "0.3"];
    let mut holder = stage.start("nightly", &arguments)?;
    let first = token(&holder.line()?)?;
    holder.process().pause()?;
    let said = stage.run("nightly", &arguments)?;
    let second = token(said.lines().next().context("it has written")?)?;
    ensure!(second > first, "tokens grow: {first}, {second}");
    holder.process().go_on()?;
    let (status, said) = holder.end()?;
    ensure!(!status.success(), "a late holder has written: {said}");
    let expected = format!("a later holder has written: token {first} is too old");
    expect(&stage.errors_of("nightly")?, &expected)
}

/// Starts a trip and returns its XID.
fn start_trip(stage: &Stage, key: &str, flight: &str) -> Result<String> {
    let said = stage.run("trip", &["start", key, "--flight", flight])?;
    Ok(said.split(' ').next().context("the XID comes first")?.to_owned())
}

fn token(line: &str) -> Result<u64> {
    let token = line.rsplit(' ').next().and_then(|token| token.parse().ok());
    token.with_context(|| format!("no token: {line}"))
}

/// Returns the number behind a word of the last line.
fn count_of(said: &str, word: &str) -> Result<i64> {
    let last = said.lines().last().unwrap_or_default();
    let after = last.split(word).nth(1).unwrap_or_default();
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().with_context(|| format!("no {word}: {said}"))
}

fn expect(said: &str, expected: &str) -> Result<()> {
    ensure!(said.contains(expected), "{expected:?} is expected in {said:?}");
    Ok(())
}
