//! The same seed gives the same run, line for line: a failure can be repeated only because of that.

use handfast_sim::{Plan, run, run_logged};

#[test]
fn same_seed_gives_same_log() {
    for seed in [1, 2, 3, 4, 5, 6, 7, 8] {
        let plan = Plan::of_seed(seed);
        let (first, second) = (run_logged(&plan), run_logged(&plan));
        let differs = first.log.iter().zip(&second.log).find(|(a, b)| a != b);
        assert_eq!(differs, None, "{plan}");
        assert!(first.log.len() > 100, "{plan}: the log is too short");
        assert_eq!(first, second, "{plan}");
    }
}

#[test]
fn keeping_the_log_changes_nothing() {
    let plan = Plan::of_seed(9);
    let logged = run_logged(&plan);
    let mut silent = run(&plan);
    silent.log.clone_from(&logged.log);
    assert_eq!(silent, logged);
}

#[test]
fn different_seeds_give_different_logs() {
    assert_ne!(run_logged(&Plan::of_seed(1)).log, run_logged(&Plan::of_seed(2)).log);
}
