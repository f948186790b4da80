//! One file for each subject.

mod access;
mod along;
mod broken;
mod cancelled_begin;
mod committed_reads;
mod duplicate_rows;
mod failed_statements;
mod forms;
mod index_comparison;
mod inserted_values;
mod joined;
mod keys;
mod large_changes;
mod merged;
mod names;
mod parent_locks;
mod partitions;
mod savepoints;
mod schema;
mod sessions;
mod stand_in_keys;
mod sweeps;
mod trusted;
mod undo_triggers;
mod unique;
mod writes_in_with;
