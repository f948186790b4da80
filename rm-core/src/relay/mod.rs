//! The rules of relays: which events of an outbox one may publish, in which order, and when it
//! looks again.
//!
//! A relay reads and writes the tables and talks to a broker; that is not here.

mod claim_order;
mod key_order;
mod lane_shares;
mod visibility_horizon;
mod wait;

pub use claim_order::in_order;
pub use key_order::{PublishResult, each_key_in_order};
pub use lane_shares::{LaneOwner, LaneShares, shares};
pub use visibility_horizon::VisibilityHorizon;
pub use wait::{PAUSE_MIN, Round, UNAVAILABLE_PAUSE_MAX, Wait};
