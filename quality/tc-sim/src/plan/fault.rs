//! The faults that can strike, by name, and how often they did.

use std::collections::BTreeMap;
use std::fmt;

use super::Mode;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A frame never arrives.
    MessageLost,
    /// A frame arrives twice.
    MessageDoubled,
    /// A frame arrives seconds later, and so do the frames after it.
    MessageDelayed,
    /// A frame is overtaken by later ones.
    MessageReordered,
    /// A connection breaks.
    ConnectionCut,
    /// A connection is silent in one direction, and its ends notice late.
    ConnectionCutOneWay,
    /// A call from service to service, or its answer, is lost.
    CallLost,
    /// A coordinator's process dies.
    ServerCrash,
    /// A coordinator's process stands still for a while.
    ServerFrozen,
    /// A service's process dies.
    ClientCrash,
    /// A service's process stands still for a while.
    ClientFrozen,
    /// A database dies, and comes back with what was committed or prepared.
    DatabaseCrash,
    /// A database has executed a statement, and its answer is lost with the connection.
    DatabaseAnswerLost,
    /// A database is slow.
    DatabaseSlow,
    /// A batch that was being written when its process died or lost the lead is lost.
    WriteLost,
    /// A batch that was being written when its process died is stored in part. The store notices it
    /// and drops the whole batch.
    WriteTorn,
    /// A batch that was being written when its process died or lost the lead is stored, without an
    /// acknowledgement.
    WriteUnacknowledged,
    /// A write fails.
    DiskError,
    /// The store takes long.
    DiskSlow,
    /// The store stands still for a while.
    DiskStuck,
    /// The wall clock of a coordinator's machine is set, by up to 300 days. Its next process reads
    /// it.
    ClockStep,
    /// Another coordinator takes the leadership, and the first one does not notice at once.
    LeadershipTaken,
    /// A service's process dies between two steps of a branch that is prepared, of a relay or of a
    /// consumer.
    ClientCrashAtPoint,
    /// The broker accepts and delivers nothing for a while.
    BrokerDown,
    /// The broker has accepted an event or an acknowledgement, and its answer is lost.
    BrokerAnswerLost,
    /// A coordinator is asked to stop, and ends as planned.
    ServerStopped,
    /// A request to the store never arrives, and its connection breaks.
    StoreRequestLost,
    /// The store has carried a request out, and its answer is lost with the connection.
    StoreAnswerLost,
    /// A coordinator does not reach the store for a while. Its clients reach it.
    StoreCutOff,
    /// A leader stands still between a batch and its sending, until its lease is over.
    LeaderAsleep,
    /// A candidate stands still between its lease and its mark, until the lease is over.
    CandidateAsleep,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 31] = [
        Self::MessageLost,
        Self::MessageDoubled,
        Self::MessageDelayed,
        Self::MessageReordered,
        Self::ConnectionCut,
        Self::ConnectionCutOneWay,
        Self::CallLost,
        Self::ServerCrash,
        Self::ServerFrozen,
        Self::ClientCrash,
        Self::ClientFrozen,
        Self::DatabaseCrash,
        Self::DatabaseAnswerLost,
        Self::DatabaseSlow,
        Self::WriteLost,
        Self::WriteTorn,
        Self::WriteUnacknowledged,
        Self::DiskError,
        Self::DiskSlow,
        Self::DiskStuck,
        Self::ClockStep,
        Self::LeadershipTaken,
        Self::ClientCrashAtPoint,
        Self::BrokerDown,
        Self::BrokerAnswerLost,
        Self::ServerStopped,
        Self::StoreRequestLost,
        Self::StoreAnswerLost,
        Self::StoreCutOff,
        Self::LeaderAsleep,
        Self::CandidateAsleep,
    ];

    /// The faults that a seed draws last, so that the rest of a plan does not depend on them.
    pub(super) const DRAWN_LAST: [Self; 6] = [
        Self::ServerStopped,
        Self::StoreRequestLost,
        Self::StoreAnswerLost,
        Self::StoreCutOff,
        Self::LeaderAsleep,
        Self::CandidateAsleep,
    ];

    /// Returns the modes that a plan needs one of to have this fault. Empty if it needs none.
    #[must_use]
    pub fn requires_one_of(self) -> &'static [Mode] {
        if self == Self::ClientCrashAtPoint {
            &[Mode::Xa, Mode::Outbox]
        } else if matches!(self, Self::BrokerDown | Self::BrokerAnswerLost) {
            &[Mode::Outbox]
        } else {
            &[]
        }
    }

    /// Returns whether a plan needs several coordinators to have this fault.
    #[must_use]
    pub fn requires_several_servers(self) -> bool {
        matches!(
            self,
            Self::LeadershipTaken
                | Self::StoreRequestLost
                | Self::StoreAnswerLost
                | Self::StoreCutOff
                | Self::LeaderAsleep
                | Self::CandidateAsleep
        )
    }

    /// Returns its name in reports and plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MessageLost => "message-lost",
            Self::MessageDoubled => "message-doubled",
            Self::MessageDelayed => "message-delayed",
            Self::MessageReordered => "message-reordered",
            Self::ConnectionCut => "connection-cut",
            Self::ConnectionCutOneWay => "connection-cut-one-way",
            Self::CallLost => "call-lost",
            Self::ServerCrash => "server-crash",
            Self::ServerFrozen => "server-frozen",
            Self::ClientCrash => "client-crash",
            Self::ClientFrozen => "client-frozen",
            Self::DatabaseCrash => "database-crash",
            Self::DatabaseAnswerLost => "database-answer-lost",
            Self::DatabaseSlow => "database-slow",
            Self::WriteLost => "write-lost",
            Self::WriteTorn => "write-torn",
            Self::WriteUnacknowledged => "write-untold",
            Self::DiskError => "disk-error",
            Self::DiskSlow => "disk-slow",
            Self::DiskStuck => "disk-stuck",
            Self::ClockStep => "clock-step",
            Self::LeadershipTaken => "leadership-taken",
            Self::ClientCrashAtPoint => "client-crash-at-point",
            Self::BrokerDown => "broker-down",
            Self::BrokerAnswerLost => "broker-answer-lost",
            Self::ServerStopped => "server-stopped",
            Self::StoreRequestLost => "store-request-lost",
            Self::StoreAnswerLost => "store-answer-lost",
            Self::StoreCutOff => "store-cut-off",
            Self::LeaderAsleep => "leader-asleep",
            Self::CandidateAsleep => "candidate-asleep",
        }
    }

    /// Returns the fault with a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each fault struck.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    counts: BTreeMap<Fault, u64>,
}

impl Faults {
    /// Counts a fault.
    pub fn count(&mut self, fault: Fault) {
        *self.counts.entry(fault).or_default() += 1;
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (fault, count) in &other.counts {
            *self.counts.entry(*fault).or_default() += count;
        }
    }

    /// Returns the number of faults of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns how often a fault struck.
    #[must_use]
    pub fn of(&self, fault: Fault) -> u64 {
        self.counts.get(&fault).copied().unwrap_or_default()
    }
}
