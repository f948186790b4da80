//! One suite for all backends, each on its real server. What every backend must do is in the
//! modules of cases. Nothing here knows how a backend does it.
//!
//! A case waits for something to happen, never for something not to have happened yet, except where
//! a lease has to end.

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
mod setup;
mod several;
mod shares;
mod start;
mod waiting;

use setup::{Kind, TestBackend};

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
                    let setup = crate::TestBackend::new(crate::Kind::$kind).await;
                    crate::within_limit(crate::$module::$case(&setup)).await;
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
        tokens_grow
        tokens_grow_over_the_end_of_a_lease
        the_first_acquisition_has_one_winner
        a_counter_is_exact;
    waiting:
        a_waiter_gets_the_released_lock
        waiters_are_served_in_order
        many_clients_share_a_backend
        a_newcomer_does_not_overtake
        a_wait_that_times_out_leaves_nothing
        a_lost_wake_up_costs_little
        a_dead_waiter_is_passed_over
        turn_of_a_cancelled_waiter_passes_on;
    owner:
        release_with_a_foreign_id_changes_nothing
        release_without_a_lock_is_not_a_success
        an_old_guard_does_not_free_the_next_holders_lock
        last_guard_of_an_owner_frees_the_lock
        another_owner_is_refused_at_every_depth
        an_owner_sends_one_request_for_many_guards
        an_owner_that_lost_a_lock_acquires_it_again;
    lease:
        a_lock_is_renewed
        a_lease_ends_without_renewal
        a_renewal_does_not_bring_back_what_was_lost
        a_batch_is_renewed_one_by_one
        a_lock_is_lost_when_the_backend_is_cut_off
        a_lock_freed_behind_its_holder_is_lost
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
        repeated_requests_are_answered_alike
        a_request_after_its_release_is_refused
        requests_after_several_releases_are_refused
        a_request_after_the_release_of_a_lost_lock_is_refused
        a_try_without_an_answer_leaves_nothing;
    start:
        weaker_guarantee_must_be_requested
        leases_have_limits;
    several:
        several_locks_are_taken_or_none
        waits_for_several_locks_form_no_circle
        a_cancelled_wait_for_several_leaves_nothing
        a_lock_that_is_lost_ends_the_wait_for_others;
    segmented:
        callers_take_segments_that_are_free
        callers_wait_for_a_segment_when_none_is_free
        each_segment_has_its_own_tokens
        stock_in_any_segment_is_found
        holder_of_all_segments_is_alone
        a_segment_that_is_lost_ends_the_work
        a_cancelled_search_leaves_nothing;
    }
}

/// Backends with a shared mode.
mod with_shares {
    on_backends! {
        [memory Memory, coordinator Coordinator, postgres Postgres, mysql MySql, sqlite Sqlite,
         redis Redis, etcd Etcd, zookeeper ZooKeeper]
        {
        shares:
            readers_hold_a_lock_together
            a_writer_is_alone
            later_readers_do_not_overtake_a_writer
            waiting_readers_are_granted_together
            a_writer_becomes_a_reader
            every_reply_to_a_downgrade_may_be_lost
            a_downgrade_of_a_lost_lock_is_refused
            tokens_grow_from_writer_to_writer
            permits_are_renewed
            a_permit_ends_with_its_lease
            permits_are_limited
            a_permit_belongs_to_its_holder
            all_agree_on_the_number_of_permits
            a_cancelled_wait_for_a_permit_leaves_nothing;
        }
    }
}

/// Backends that keep their queue in a table.
mod in_tables {
    on_backends! {
        [postgres Postgres, mysql MySql, sqlite Sqlite]
        { queue: release_removes_the_id_from_the_queue; }
    }
}

mod without_shares {
    on_backends! {
        [redlock Redlock]
        {
        shares:
            shared_mode_is_refused
            refused_downgrade_leaves_a_writer;
        }
    }
}

/// Fails a test that waits for too long.
async fn within_limit(case: impl Future<Output = ()>) {
    tokio::time::timeout(std::time::Duration::from_secs(120), case).await.unwrap();
}
