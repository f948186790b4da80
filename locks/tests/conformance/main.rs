//! One suite for all backends, each on its real server. What every backend must do is in the
//! modules of cases; nothing here knows how one does it.
//!
//! A wait in here is for something to happen, never for something not to have happened yet, except
//! where a lease has to end.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod claim;
mod faults;
mod lease;
mod leaving;
mod mutual;
mod owner;
mod queue;
mod reply;
mod segmented;
mod several;
mod shares;
mod stage;
mod start;
mod waiting;

use stage::{Kind, Stage};

/// Runs each case on each of some backends.
macro_rules! on_backends {
    ([$($backend:ident $kind:ident),+] $cases:tt) => {
        $(on_backends!(@one $backend $kind $cases);)+
    };
    (@one $backend:ident $kind:ident { $($module:ident: $($case:ident)+;)+ }) => {
        mod $backend {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let stage = crate::Stage::new(crate::Kind::$kind).await;
                    crate::within_patience(crate::$module::$case(&stage)).await;
                }
            )+)+
        }
    };
}

on_backends! {
    [memory Memory, coordinator Coordinator, postgres Postgres, mysql MySql, sqlite Sqlite,
     redis Redis, redlock Redlock, etcd Etcd, zookeeper ZooKeeper]
    {
    mutual:
        a_free_lock_is_granted
        a_held_lock_is_refused_and_names_its_holder
        names_are_compared_exactly
        locks_of_different_names_do_not_meet
        fences_grow
        fences_grow_over_the_end_of_a_lease
        the_first_acquisition_has_one_winner
        a_counter_is_exact;
    waiting:
        a_waiter_gets_the_lock_that_is_let_go
        waiters_are_served_in_order
        many_clients_share_a_backend
        a_newcomer_does_not_overtake
        patience_ends_and_leaves_nothing
        a_lost_wake_up_costs_little
        a_dead_waiter_is_passed_over
        whoever_gives_up_passes_his_turn_on;
    owner:
        letting_go_with_a_foreign_token_changes_nothing
        letting_go_of_what_was_never_held_is_no_success
        an_old_guard_does_not_free_the_next_holders_lock
        an_owner_enters_again_and_frees_at_the_last
        another_owner_is_refused_at_every_depth
        an_owner_asks_once_for_many
        an_owner_who_lost_a_lock_asks_anew;
    lease:
        a_lock_is_renewed
        a_lease_ends_without_renewal
        a_renewal_does_not_bring_back_what_was_lost
        a_batch_is_renewed_one_by_one
        a_lock_is_lost_when_the_backend_is_cut_off
        a_lock_that_was_given_away_is_lost
        a_lock_is_not_held_beyond_its_limit
        work_is_stopped_when_its_lock_is_lost
        work_is_done_under_the_lock
        nothing_is_renewed_after_the_release;
    leaving:
        a_dropped_guard_frees
        a_guard_dropped_outside_of_a_runtime_frees
        a_task_that_panics_frees
        a_task_that_is_aborted_frees
        a_cancelled_wait_leaves_nothing;
    reply:
        every_reply_may_be_lost
        every_request_may_be_sent_twice
        asking_twice_is_answered_alike
        a_request_that_arrives_after_its_end_is_refused
        requests_that_arrive_after_several_ends_are_refused
        a_request_that_arrives_after_a_lost_lock_was_given_up_is_refused
        a_try_without_an_answer_leaves_nothing;
    start:
        the_grade_is_asked_for
        leases_have_limits;
    several:
        several_locks_are_taken_or_none
        nobody_waits_in_a_circle
        a_cancelled_wait_for_several_leaves_nothing
        a_lock_that_is_lost_ends_the_wait_for_others;
    segmented:
        callers_take_segments_that_are_free
        callers_wait_for_a_segment_when_none_is_free
        each_segment_has_fences_of_its_own
        nobody_hears_of_nothing_left_while_a_segment_has_some
        whoever_holds_all_segments_is_alone
        a_segment_that_is_lost_ends_the_work
        a_cancelled_search_leaves_nothing;
    }
}

/// Backends whose locks can be held in parts.
mod with_shares {
    on_backends! {
        [memory Memory, coordinator Coordinator, postgres Postgres, mysql MySql, sqlite Sqlite,
         redis Redis, etcd Etcd, zookeeper ZooKeeper]
        {
        shares:
            readers_hold_a_lock_together
            a_writer_is_alone
            readers_who_come_later_do_not_overtake_a_writer
            readers_who_wait_get_in_together
            a_writer_becomes_a_reader
            every_reply_to_a_downgrade_may_be_lost
            a_downgrade_of_a_lost_lock_is_refused
            fences_grow_from_writer_to_writer
            parts_are_renewed
            a_part_ends_with_its_lease
            permits_are_limited
            a_permit_is_its_holders
            all_agree_on_the_number_of_permits
            whoever_waits_for_a_part_leaves_nothing;
        }
    }
}

/// Backends that keep their queue in a table.
mod in_tables {
    on_backends! {
        [postgres Postgres, mysql MySql, sqlite Sqlite]
        { queue: whoever_frees_a_lock_stands_in_no_queue; }
    }
}

mod without_shares {
    on_backends! {
        [redlock Redlock]
        { shares: there_are_no_shares; }
    }
}

/// A test that waits for longer than this has failed.
async fn within_patience(case: impl Future<Output = ()>) {
    tokio::time::timeout(std::time::Duration::from_secs(120), case).await.unwrap();
}
