//! Locks in segments: any that is free, and none left out.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{LockError, ReleaseOutcome, Segment};

use crate::owner::give_away;
use crate::setup::{TestBackend, fresh};
use crate::waiting::eventually_free;

pub(crate) async fn callers_take_segments_that_are_free(setup: &TestBackend) {
    let name = fresh();
    let clients = [(); 2].map(|()| setup.locks().segmented(&name, 4).unwrap());
    let mut held: Vec<Segment> = Vec::new();
    for locks in clients.iter().cycle().take(4) {
        // This does not wait, though the other client is there already.
        held.push(locks.lock().await.unwrap());
    }
    let mut indices: Vec<usize> = held.iter().map(Segment::index).collect();
    indices.sort_unstable();
    assert_eq!(indices, [0, 1, 2, 3]);
    for locks in &clients {
        let refused = locks.try_lock().await;
        assert!(matches!(refused, Err(LockError::Busy { .. })), "{refused:?}");
    }
    let freed = held.swap_remove(1);
    let index = freed.index();
    assert_eq!(freed.release().await.unwrap(), ReleaseOutcome::Released);
    // It does not matter which client had it.
    assert_eq!(clients[0].try_lock().await.unwrap().index(), index);
}

pub(crate) async fn callers_wait_for_a_segment_when_none_is_free(setup: &TestBackend) {
    let name = fresh();
    let clients = [(); 2].map(|()| setup.locks().segmented(&name, 2).unwrap());
    let held = [clients[0].lock().await.unwrap(), clients[0].lock().await.unwrap()];
    for locks in &clients {
        let refused = locks.lock_timeout(Duration::from_millis(100)).await;
        assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{refused:?}");
    }
    let waiting: Vec<_> = (0..6)
        .map(|caller| {
            let locks = clients[caller % 2].clone();
            tokio::spawn(async move { locks.lock().await.map(drop) })
        })
        .collect();
    drop(held);
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
}

pub(crate) async fn each_segment_has_its_own_tokens(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let segmented = locks.segmented(&name, 3).unwrap();
    let mut last = [None; 3];
    for _ in 0..9 {
        let segment = segmented.lock().await.unwrap();
        let (index, fencing_token) = (segment.index(), segment.guard().fencing_token());
        assert_eq!(segment.guard().name().as_str(), format!("{name}#{index}"));
        assert!(Some(fencing_token) > last[index], "{fencing_token:?} after {last:?}");
        last[index] = Some(fencing_token);
        assert_eq!(segment.release().await.unwrap(), ReleaseOutcome::Released);
    }
    assert!(last.iter().all(Option::is_some), "{last:?}");
    for wrong in [0, 1025] {
        let refused = locks.segmented(&name, wrong);
        assert!(matches!(refused, Err(LockError::Settings { .. })), "{refused:?}");
    }
}

/// All stock lies in one segment, and buyers come to the others first.
pub(crate) async fn stock_in_any_segment_is_found(setup: &TestBackend) {
    let name = fresh();
    let clients = [(); 2].map(|()| setup.locks().segmented(&name, 4).unwrap());
    let units: Arc<[AtomicI64]> = [0, 0, 0, 5].map(AtomicI64::new).into();
    let buyers = (0..10).map(|buyer| {
        let (locks, units) = (clients[buyer % 2].clone(), Arc::clone(&units));
        tokio::spawn(async move {
            let mut visit = locks.visit_segments();
            while let Some(segment) = visit.next_segment().await.unwrap() {
                let units = &units[segment.index()];
                let left = units.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                if left > 0 {
                    units.store(left - 1, Ordering::SeqCst);
                    return Some(segment.index());
                }
            }
            None
        })
    });
    let bought: Vec<_> = join_all(buyers).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(bought.iter().filter(|bought| **bought == Some(3)).count(), 5, "{bought:?}");
    assert_eq!(bought.iter().filter(|bought| bought.is_none()).count(), 5, "{bought:?}");
    assert!(units.iter().all(|units| units.load(Ordering::SeqCst) == 0));
}

pub(crate) async fn holder_of_all_segments_is_alone(setup: &TestBackend) {
    let name = fresh();
    let clients = [(); 2].map(|()| setup.locks().segmented(&name, 3).unwrap());
    let all = clients[0].lock_all().await.unwrap();
    assert_eq!(all.iter().count(), clients[0].segments());
    assert!(matches!(clients[1].try_lock().await, Err(LockError::Busy { .. })));
    assert_eq!(all.release().await.unwrap(), [const { ReleaseOutcome::Released }; 3]);
    let one = clients[1].lock().await.unwrap();
    let names: Vec<String> = (0..3).map(|index| format!("{name}#{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let refused = setup.locks().try_lock_all(&names).await;
    assert!(matches!(refused, Err(LockError::Busy { .. })), "{refused:?}");
    drop(one);
    drop(clients[0].lock_all().await.unwrap());
}

pub(crate) async fn a_segment_that_is_lost_ends_the_work(setup: &TestBackend) {
    let locks = setup.settings().lease(Duration::from_secs(3)).start().unwrap();
    let segmented = locks.segmented(&fresh(), 2).unwrap();
    let segment = segmented.lock().await.unwrap();
    let worked = segment.run(async |guard| {
        give_away(setup, guard).await;
        pending::<()>().await;
    });
    assert!(matches!(worked.await, Err(LockError::Lost { .. })));
    // The reservation is gone, and the segment is free.
    assert_eq!(segmented.lock_all().await.unwrap().iter().count(), 2);
}

/// The future is dropped after every number of polls, with a segment free and with none.
pub(crate) async fn a_cancelled_search_leaves_nothing(setup: &TestBackend) {
    let (locks, other) = (setup.locks(), setup.locks());
    for held in 0..=2 {
        for polls in 0..6 {
            let name = fresh();
            let segments = [0, 1].map(|index| format!("{name}#{index}"));
            let mut guards = Vec::new();
            for segment in &segments[..held] {
                guards.push(other.lock(segment).await.unwrap());
            }
            let segmented = locks.segmented(&name, 2).unwrap();
            let mut search = Box::pin(segmented.lock());
            for _ in 0..polls {
                let once = poll_fn(|context| Poll::Ready(search.as_mut().poll(context)));
                if pin!(once).await.is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(search);
            locks.settle().await.unwrap();
            drop(guards);
            for segment in &segments {
                eventually_free(&other, segment).await;
            }
        }
    }
}
