//! Measures the core: time a transaction, memory an open global and a lock.
//!
//! `cargo run --release -p handfast-core --example cost -- [open] [transactions] [branches] [rows]`
//!
//! A transaction is a begin, a registration of each branch with its rows, a commit, and phase two
//! of each branch; by default there are two branches with one row. As many globals stay open as
//! said. Counting instructions: `tools/bench/results/2026-11-24.md`.
#![expect(clippy::print_stdout, reason = "it prints what it measures")]
#![expect(clippy::disallowed_methods, reason = "it measures time; the core does not see it")]

mod load;

use std::hint::black_box;
use std::time::Instant;

use handfast_core::Outcome;

use crate::load::{Load, Shape};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let mut next = |default| arguments.next().transpose().map(|given| given.unwrap_or(default));
    let (open, transactions) = (next(1_000_000)?, next(1_000_000)?);
    let shape = Shape { branches: next(2)? as u64, rows_per_branch: next(1)? as u64 };
    // For what one more lock takes.
    let wide = Shape { rows_per_branch: shape.rows_per_branch + 2, ..shape };
    let (mut load, bytes) = fill(shape, open)?;
    if bytes > 0 {
        println!("{open} open globals, {} locks: {} bytes a global", load.locks(), bytes / open);
    }
    let (started, worked) = (Instant::now(), processor_seconds()?);
    run(&mut load, transactions);
    let seconds = started.elapsed().as_secs_f64();
    let worked = processor_seconds()? - worked;
    let rate = |seconds| transactions as f64 / seconds;
    println!("{transactions} transactions: {:.0} a second", rate(seconds));
    println!("{:.0} a second of processor time", rate(worked));
    println!("{:.1} µs of processor time each", worked * 1e6 / transactions as f64);
    let (wide, wide_bytes) = fill(wide, open)?;
    let locks = wide.locks().saturating_sub(load.locks());
    if let Some(bytes) = wide_bytes.saturating_sub(bytes).checked_div(locks) {
        println!("{bytes} bytes a further lock, its key of 20 bytes included");
    }
    Ok(())
}

/// Opens globals; how much the process grew.
fn fill(shape: Shape, open: usize) -> std::io::Result<(Load, usize)> {
    let before = resident_bytes()?;
    let mut load = Load::new(shape, open + 1);
    (0..open).for_each(|_| load.open_one(&mut see));
    Ok((load, resident_bytes()?.saturating_sub(before)))
}

/// Apart, so that a profiler can count what happens inside.
#[inline(never)]
fn run(load: &mut Load, transactions: usize) {
    for _ in 0..transactions {
        load.open_one(&mut see);
        load.end_one(&mut see);
    }
}

/// Keeps the outcome from being optimised away.
fn see(out: &Outcome) {
    black_box(out);
}

/// How long this thread has run: other than the time that passes, not a matter of the neighbours.
fn processor_seconds() -> std::io::Result<f64> {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = statistics.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.map(|it| it / 1e9).ok_or(std::io::Error::other("no schedstat"))
}

/// Resident memory as Linux counts it.
fn resident_bytes() -> std::io::Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1_024).ok_or(std::io::Error::other("no VmRSS"))
}
