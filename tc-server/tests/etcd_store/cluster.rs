//! A cluster of three whose members are killed.

use std::thread;
use std::time::Duration;

use handfast_core::{Change, Epoch};
use handfast_server::store::{Store, StoreError};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind};

use crate::setup::{Candidate, LONG, Model, Namespace, SHORT, puts};

fn cluster() -> (Vec<DatabaseServer>, Namespace) {
    let directory = ServerDirectory::new().unwrap();
    let members = DatabaseServer::cluster(ServerKind::Etcd, &directory).unwrap();
    let shared = Namespace::in_etcd(members.iter().map(DatabaseServer::url));
    (members, shared)
}

/// Commits, leading again as often as the lead is lost. A batch may be stored twice.
fn commit(candidate: &Candidate, epoch: &mut Epoch, batch: Vec<Change>) {
    loop {
        match candidate.commit(*epoch, batch.clone()) {
            Ok(()) => return,
            Err(StoreError::LostLeadership) => *epoch = candidate.lead().0,
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// The leader of the cluster is one of them.
#[test]
fn no_member_is_missed_when_it_is_killed() {
    let (mut members, shared) = cluster();
    let leader = shared.candidate("leader", LONG);
    let (epoch, _) = leader.lead();
    let mut model = Model::default();
    for (at, member) in (0..).zip(&mut members) {
        for number in 0..40 {
            if number == 20 {
                member.kill().unwrap();
            }
            let batch = puts([at * 40 + number], 600);
            leader.commit(epoch, batch.clone()).unwrap();
            model.apply(&batch);
        }
        member.restart().unwrap();
    }
    leader.run(leader.store.resign(epoch));
    model.check(shared.candidate("second", LONG).lead().1);
}

/// A member that is stopped answers nothing and breaks no connection.
#[test]
fn no_member_is_missed_when_it_is_stopped() {
    let (members, shared) = cluster();
    let leader = shared.candidate("leader", Duration::from_secs(30));
    let (mut epoch, _) = leader.lead();
    let mut model = Model::default();
    for (at, member) in (0..).zip(&members) {
        member.pause();
        for number in 0..5 {
            let batch = puts([at * 5 + number], 600);
            commit(&leader, &mut epoch, batch.clone());
            model.apply(&batch);
        }
        member.go_on();
    }
    leader.run(leader.store.resign(epoch));
    model.check(shared.candidate("second", LONG).lead().1);
}

#[test]
fn a_majority_that_comes_back_is_written_to_again() {
    for lease in [SHORT, LONG] {
        let (mut members, shared) = cluster();
        let leader = shared.candidate("leader", lease);
        let (mut epoch, _) = leader.lead();
        let mut model = Model::default();
        let batch = puts([1], 600);
        commit(&leader, &mut epoch, batch.clone());
        model.apply(&batch);
        for member in &mut members[1..] {
            member.kill().unwrap();
        }
        let batch = puts([2], 600);
        thread::scope(|scope| {
            let restarted = members[1..]
                .iter_mut()
                .map(|member| scope.spawn(move || member.restart().unwrap()));
            let restarted: Vec<_> = restarted.collect();
            commit(&leader, &mut epoch, batch.clone());
            restarted.into_iter().for_each(|member| member.join().unwrap());
        });
        model.apply(&batch);
        leader.run(leader.store.resign(epoch));
        model.check(shared.candidate("second", LONG).lead().1);
    }
}
