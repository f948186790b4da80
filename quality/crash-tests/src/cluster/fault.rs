//! Faults of coordinators that share a store, and a schedule of them from a seed. Pure.

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::wire::WireState;

/// The crash points of a coordinator that are not in a store of its own. See
/// `tc-server/src/crash_point.rs`.
pub const LEADER_POINTS: [&str; 7] = [
    AFTER_LEAD,
    "after-decide",
    "before-effects",
    "mid-effects",
    "after-effects",
    "mid-dispatch",
    "after-outcome",
];

/// The point that a coordinator passes once for each lead.
const AFTER_LEAD: &str = "after-lead";

/// A coordinator that is away for this long loses the lead: what `cluster.lease_ms` is at least on
/// etcd, and half a second.
const LONGER_THAN_THE_LEASE: Duration = Duration::from_millis(2_500);

/// The coordinator that a fault is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultyNode {
    /// The one that leads.
    Leader,
    /// The one of this number among those that are there, whether it leads or not.
    Numbered(usize),
}

/// One thing that goes wrong, and is put right again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterFault {
    /// `kill -9` at any moment; a start after so long.
    Kill(FaultyNode, Duration),
    /// SIGTERM; a start when it has ended.
    Stop(FaultyNode),
    /// SIGSTOP for so long.
    Pause(FaultyNode, Duration),
    /// The wires to the store are in this state for so long.
    CutOff(FaultyNode, WireState, Duration),
    /// All coordinators are killed, then started.
    KillAll,
    /// A coordinator takes the lead and dies at a point, at the n-th pass.
    CrashInTheLead { point: &'static str, pass: u32 },
    /// `kill -9` of a server of the store, then a start on its data.
    KillServer(usize),
    /// SIGSTOP of all servers of the store for so long.
    PauseStore(Duration),
    /// The wires of all coordinators to the store are slow for so long.
    SlowStore(Duration),
    /// `kill -9` for good. Another coordinator, of another name and at other ports, comes in its
    /// place: the one that has been away for longest.
    Replace(FaultyNode),
}

/// The coordinators that died by faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deaths {
    /// All of them.
    pub coordinators: u64,
    /// Those that led when they died.
    pub leaders: u64,
}

impl AddAssign for Deaths {
    fn add_assign(&mut self, more: Self) {
        self.coordinators += more.coordinators;
        self.leaders += more.leaders;
    }
}

impl fmt::Display for ClusterFault {
    /// The kind, for counting.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(node, _) => write!(f, "{node} killed"),
            Self::Stop(node) => write!(f, "{node} stopped as planned"),
            Self::Pause(node, _) => write!(f, "{node} frozen"),
            Self::CutOff(node, state, _) => {
                write!(f, "{node}, wires to the store {state}")
            }
            Self::KillAll => f.write_str("all coordinators killed"),
            Self::CrashInTheLead { point, .. } => write!(f, "next leader dies {point}"),
            Self::KillServer(_) => f.write_str("server of the store killed"),
            Self::PauseStore(_) => f.write_str("store frozen"),
            Self::SlowStore(_) => f.write_str("store slow"),
            Self::Replace(node) => write!(f, "{node} replaced by another"),
        }
    }
}

impl fmt::Display for FaultyNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leader => f.write_str("leader"),
            Self::Numbered(_) => f.write_str("any node"),
        }
    }
}

/// An endless sequence of faults, one at a time.
#[derive(Debug)]
pub struct ClusterSchedule {
    random: StdRng,
    coordinators: usize,
}

impl ClusterSchedule {
    /// Returns the schedule of a seed for this number of coordinators.
    #[must_use]
    pub fn new(seed: u64, coordinators: usize) -> Self {
        Self { random: StdRng::seed_from_u64(seed), coordinators }
    }

    /// Returns the time without faults before the next one.
    pub fn calm(&mut self) -> Duration {
        Duration::from_millis(self.random.random_range(50..1_500))
    }

    /// Returns the next fault.
    pub fn next_fault(&mut self) -> ClusterFault {
        let node = self.node();
        match self.random.random_range(0..24) {
            0..6 => {
                let down = Duration::from_millis(self.random.random_range(0..3_000));
                ClusterFault::Kill(node, down)
            }
            6..9 => ClusterFault::Stop(node),
            9..12 => ClusterFault::Pause(node, self.lasting()),
            12..16 => {
                let states = [WireState::Cut, WireState::Silent, WireState::Deaf, WireState::Slow];
                let state = states[self.random.random_range(0..states.len())];
                ClusterFault::CutOff(node, state, self.lasting())
            }
            16 => ClusterFault::KillAll,
            17..19 => self.crash(),
            19 => ClusterFault::KillServer(self.random.random_range(0..3)),
            20 => ClusterFault::PauseStore(self.lasting()),
            21 => ClusterFault::SlowStore(self.lasting()),
            _ => ClusterFault::Replace(node),
        }
    }

    /// Returns the leader half of the time.
    fn node(&mut self) -> FaultyNode {
        if self.random.random_bool(0.5) {
            return FaultyNode::Leader;
        }
        FaultyNode::Numbered(self.random.random_range(0..self.coordinators))
    }

    fn crash(&mut self) -> ClusterFault {
        let point = LEADER_POINTS[self.random.random_range(0..LEADER_POINTS.len())];
        let pass = if point == AFTER_LEAD { 1 } else { self.random.random_range(1..60) };
        ClusterFault::CrashInTheLead { point, pass }
    }

    /// Returns a duration: mostly one after which the lead is lost.
    fn lasting(&mut self) -> Duration {
        let more = Duration::from_millis(self.random.random_range(0..2_500));
        match self.random.random_range(0..4) {
            0 => more,
            _ => LONGER_THAN_THE_LEASE + more,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn faults(seed: u64) -> Vec<ClusterFault> {
        let mut schedule = ClusterSchedule::new(seed, 3);
        (0..500).map(|_| schedule.next_fault()).collect()
    }

    #[test]
    fn a_seed_gives_the_same_schedule() {
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
    }

    #[test]
    fn every_kind_comes() {
        let kinds: BTreeSet<String> = faults(1).iter().map(ToString::to_string).collect();
        // Killed, stopped, frozen, replaced, and four states of the wires, each to the leader and
        // to any node. All killed; the points; the server killed, the store frozen and slow.
        assert_eq!(kinds.len(), 2 * 8 + 1 + LEADER_POINTS.len() + 3);
    }
}
