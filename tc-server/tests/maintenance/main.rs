//! Work on the records of a store: they are checked, backed up and restored, and moved from one
//! store to another. By the program, on directories, real databases and etcd.

#[cfg(test)]
mod backups;
#[cfg(test)]
mod checks;
#[cfg(test)]
mod moves;
#[cfg(test)]
mod places;
#[cfg(test)]
#[path = "../cluster/shared.rs"]
mod shared;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod workload;
