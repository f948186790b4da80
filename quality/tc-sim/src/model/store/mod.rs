//! The store of the coordinators: records as the real codec writes them, behind a journal that one
//! leader at a time can append to.
//!
//! It keeps the contract of `Store` in the way of the product's shared stores, with their faults:
//! requests and answers that are lost, a store that is slow or stuck, coordinators that are cut off
//! from it or asleep at the worst moment. A coordinator that is alone stands for one on a disk of
//! its own: no process contends with it, and no message to the disk is lost, but a batch that is
//! being written when its process dies may be.

mod host;
mod journal;
mod lease;
mod sim_store;
mod term;
#[cfg(test)]
mod tests;

pub(crate) use host::StoreHost;
pub(crate) use sim_store::{SimStore, address_of};
