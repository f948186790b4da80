//! The store in etcd, over real servers: what a leader acknowledged is read by the next one, and
//! only the newest leader stores anything, whatever slept, failed or was late.

#[cfg(test)]
mod access;
#[cfg(test)]
mod batches;
#[cfg(test)]
mod checkpoint;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod election;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fence;
#[cfg(test)]
mod setup;
#[cfg(test)]
mod wire;
