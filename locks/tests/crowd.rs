//! Many who wait for one lock of the coordinator: each asks once for each time that he gets it, and
//! all get it equally often. Alone in its program, since metrics are counted per process.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use handfast::Handfast;
use handfast_locks::Locks;
use handfast_server::embedded::Server;
use tokio::sync::{Barrier, watch};

const CLIENTS: usize = 20;
const TASKS: usize = 50;
const WAITERS: usize = CLIENTS * TASKS;
/// How often each of them gets the lock, about.
const ROUNDS: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_who_wait_ask_once_and_are_served_alike() {
    let metrics = handfast_server::metrics::recorder();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::builder().directory(folder.path()).listen("127.0.0.1:0");
    let server = server.start().await.unwrap();
    let endpoint = format!("http://{}", server.address());
    let wanted = WAITERS as u64 * ROUNDS;
    let all = Arc::new(AtomicU64::new(0));
    let begins = Arc::new(Barrier::new(WAITERS));
    let (end, ended) = watch::channel(());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let handfast = Handfast::connect(&endpoint).await.unwrap();
        let locks = Locks::over(handfast.locks()).start().unwrap();
        let served = Arc::new(AtomicU64::new(0));
        let tasks = (0..TASKS).map(|_| {
            let (locks, served, all) = (locks.clone(), Arc::clone(&served), Arc::clone(&all));
            let (begins, end, mut ended) = (Arc::clone(&begins), end.clone(), ended.clone());
            tokio::spawn(async move {
                begins.wait().await;
                loop {
                    let guard = tokio::select! {
                        guard = locks.lock("hot") => guard.unwrap(),
                        _ = ended.changed() => return,
                    };
                    if all.fetch_add(1, Ordering::SeqCst) >= wanted {
                        end.send_replace(());
                        return;
                    }
                    served.fetch_add(1, Ordering::SeqCst);
                    assert!(guard.is_held());
                }
            })
        });
        clients.push((served, tasks.collect::<Vec<_>>()));
    }
    let mut served = Vec::new();
    for (count, tasks) in clients {
        futures::future::join_all(tasks).await.into_iter().for_each(|ended| ended.unwrap());
        served.push(count.load(Ordering::SeqCst));
    }
    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    let mean = wanted / CLIENTS as u64;
    println!("{WAITERS} waiters: {least} to {most} of {mean} grants a client");
    assert!(100 * (most - least) <= 2 * mean, "served {served:?}");
    let shown = metrics.render();
    let count = |result: &str| {
        let line = format!("handfast_lock_acquire_seconds_count{{result=\"{result}\"}} ");
        let found = shown.lines().find_map(|shown| shown.strip_prefix(&line));
        found.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    let (granted, others) = (count("granted"), count("not granted"));
    println!("{granted} grants, {others} requests that were not granted");
    assert!(granted >= wanted);
    // Requests that stood in the queue at the end were given up, and are no attempts that failed.
    let given_up = WAITERS as u64;
    assert!((granted + others.saturating_sub(given_up)) * 100 <= granted * 105);
}
