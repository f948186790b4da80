//! Any text as a statement in each dialect: planned, let through or refused. Never a panic.
#![no_main]

use handfast_rm_core::plan::{Dialect, Reads, fuzz_entry};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &str)| {
    let (choice, sql) = input;
    let dialect = [Dialect::Postgres, Dialect::MySql, Dialect::Sqlite][usize::from(choice % 3)];
    let reads = if choice & 0x80 == 0 { Reads::Local } else { Reads::Committed };
    fuzz_entry(dialect, reads, sql);
});
