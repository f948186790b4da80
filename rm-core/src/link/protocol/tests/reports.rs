//! Reports of branches and of phase two, and the decisions that wait for them.

use handfast_proto::v1::branch_outcome::Result as Ended;

use super::*;

fn report(xid: &str) -> Ask {
    Ask::ReportBranch(v1::ReportBranchRequest { xid: xid.to_owned(), ..Default::default() })
}

fn end(xid: &str, decision: v1::Decision) -> Ask {
    let (xid, decision) = (xid.to_owned(), decision.into());
    Ask::End(v1::EndRequest { xid, decision, ..Default::default() })
}

#[test]
fn a_commit_does_not_overtake_a_report() {
    let mut driven = Driven::ready();
    let report = driven.submit(report("x:1"));
    assert_eq!(driven.sent_ids(), [report.0]);
    let commit = driven.submit(end("x:1", v1::Decision::Commit));
    let rollback = driven.submit(end("x:1", v1::Decision::RollBack));
    let other = driven.submit(end("x:2", v1::Decision::Commit));
    assert_eq!(driven.sent_ids(), [rollback.0, other.0]);
    // Busy, and then a connection that breaks.
    let busy = v1::Rejection { code: LATER.to_owned(), ..Default::default() };
    driven.answer(report.0, Answer::Rejected(busy));
    assert!(driven.frame().is_empty());
    driven.sleep();
    assert_eq!(driven.sent_ids(), [report.0]);
    driven.lose();
    driven.sleep();
    driven.greet();
    assert_eq!(driven.sent_ids(), [report.0, rollback.0, other.0]);
    driven.answer(report.0, Answer::ReportBranch(v1::ReportBranchReply::default()));
    assert_eq!(driven.sent_ids(), [commit.0]);
}

#[test]
fn a_commit_ends_with_a_report_that_is_never_answered() {
    let mut driven = Driven::ready();
    driven.lose();
    driven.submit(report("x:1"));
    driven.now = driven.now.after(DEADLINE / 2);
    let commit = driven.submit(end("x:1", v1::Decision::Commit));
    driven.now = driven.now.after(DEADLINE / 2);
    driven.tick();
    assert_eq!(driven.ended(commit), [Err("HF-TM-UNREACHABLE".to_owned())]);
    driven.greet();
    assert!(driven.frame().is_empty());
}

fn register(xid: &str, is_last: bool) -> Ask {
    let xid = xid.to_owned();
    Ask::RegisterBranch(v1::RegisterBranchRequest { xid, is_last, ..Default::default() })
}

/// Regression: a last branch was registered, and decided its global, before the coordinator had
/// heard that another branch was in doubt.
#[test]
fn a_last_branch_does_not_overtake_a_report() {
    let mut driven = Driven::ready();
    let report = driven.submit(report("x:1"));
    let last = driven.submit(register("x:1", true));
    let other = driven.submit(register("x:1", false));
    assert_eq!(driven.sent_ids(), [report.0, other.0]);
    driven.answer(report.0, Answer::ReportBranch(v1::ReportBranchReply::default()));
    assert_eq!(driven.sent_ids(), [last.0]);
}

/// Regression: a commit that was asked for after the report's time was over was carried out as if
/// nothing had been reported.
#[test]
fn a_report_that_was_never_answered_is_made_again_before_a_commit() {
    let mut driven = Driven::ready();
    driven.lose();
    driven.submit(report("x:1"));
    driven.submit(report("x:2"));
    driven.now = driven.now.after(DEADLINE);
    driven.tick();
    driven.greet();
    assert!(driven.frame().is_empty());
    let commit = driven.submit(end("x:1", v1::Decision::Commit));
    let sent = driven.frame();
    let [(again, Some(Ask::ReportBranch(report)))] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(report.xid, "x:1");
    driven.answer(*again, Answer::ReportBranch(v1::ReportBranchReply::default()));
    assert_eq!(driven.sent_ids(), [commit.0]);
    // The other global's is still owed, and this one's is not any more.
    let later = driven.submit(end("x:1", v1::Decision::Commit));
    assert_eq!(driven.sent_ids(), [later.0]);
    driven.submit(register("x:2", true));
    let sent = driven.frame();
    assert!(matches!(&sent[..], [(_, Some(Ask::ReportBranch(_)))]), "{sent:?}");
}

/// Regression: a report whose caller was gone was cancelled like any request, and a commit behind
/// it, or later, was carried out as if nothing had been reported.
#[test]
fn a_report_is_made_though_its_caller_is_gone() {
    let mut driven = Driven::ready();
    driven.lose();
    let report = driven.submit(report("x:1"));
    let commit = driven.submit(end("x:1", v1::Decision::Commit));
    driven.protocol.cancel(report);
    let later = driven.submit(end("x:1", v1::Decision::Commit));
    driven.sleep();
    driven.greet();
    assert_eq!(driven.sent_ids(), [report.0]);
    driven.answer(report.0, Answer::ReportBranch(v1::ReportBranchReply::default()));
    assert_eq!(driven.sent_ids(), [commit.0, later.0]);
}

/// The outcome of a branch is unknown whether or not there is room to report it.
#[test]
fn a_report_is_taken_where_requests_are_not() {
    let mut driven = Driven::ready();
    while driven.try_begin().is_ok() {}
    driven.submit(report("x:1"));
}

fn outcome(branch_id: u64) -> BranchOutcome {
    let result = Some(Ended::Done(v1::Done {}));
    BranchOutcome { branch_id, result, ..BranchOutcome::default() }
}

#[test]
fn outcomes_share_a_message_and_lost_ones_are_not_repeated() {
    let mut driven = Driven::ready();
    driven.protocol.finished(vec![outcome(1)]);
    driven.protocol.finished(vec![outcome(2), outcome(3)]);
    let all = v1::PhaseTwoOutcome { branches: vec![outcome(1), outcome(2), outcome(3)] };
    assert_eq!(driven.frame(), [(0, Some(Ask::Finished(all)))]);
    driven.lose();
    driven.protocol.finished(vec![outcome(4)]);
    driven.sleep();
    driven.greet();
    let unsent = v1::PhaseTwoOutcome { branches: vec![outcome(4)] };
    assert_eq!(driven.frame(), [(0, Some(Ask::Finished(unsent)))]);
}
