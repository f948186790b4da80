//! What can go wrong, by name, and how often it did.

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
    /// A frame arrives seconds later, and with it those behind it.
    MessageDelayed,
    /// A frame is overtaken by those behind it.
    MessageReordered,
    /// A connection ends.
    ConnectionCut,
    /// A connection carries nothing in one direction, and its ends notice late.
    ConnectionCutOneWay,
    /// A call from service to service has no answer.
    CallLost,
    /// A coordinator's process dies.
    ServerCrash,
    /// A coordinator's process stands still.
    ServerFrozen,
    /// A service's process dies.
    ClientCrash,
    /// A service's process stands still.
    ClientFrozen,
    /// A database dies and comes back with what was committed.
    DatabaseCrash,
    /// A database has carried out a statement, and the answer is lost with the connection.
    DatabaseAnswerLost,
    /// A database is slow.
    DatabaseSlow,
    /// A batch that was being written when its process died is not there afterwards.
    WriteLost,
    /// A batch that was being written when its process died is there in part; the store finds so
    /// and drops it whole.
    WriteTorn,
    /// A batch that was being written when its process died is there, and nobody was told.
    WriteUntold,
    /// A write fails.
    DiskError,
    /// Writes take long.
    DiskSlow,
    /// Writes do not end for a while.
    DiskStuck,
    /// The wall clock of a coordinator's machine is set, by up to 300 days: its next process begins
    /// there.
    ClockStep,
    /// Leadership goes to the other coordinator, and the first one does not know.
    LeadershipTaken,
    /// A service's process dies between two steps of a branch that is prepared, of a relay or of a
    /// consumer.
    ClientCrashAtPoint,
    /// The broker takes nothing and hands nothing out for a while.
    BrokerDown,
    /// The broker has taken an event or an acknowledgement, and does not say so.
    BrokerAnswerLost,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Self; 25] = [
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
        Self::WriteUntold,
        Self::DiskError,
        Self::DiskSlow,
        Self::DiskStuck,
        Self::ClockStep,
        Self::LeadershipTaken,
        Self::ClientCrashAtPoint,
        Self::BrokerDown,
        Self::BrokerAnswerLost,
    ];

    /// The modes that bring it with them; none where it is there in every plan.
    #[must_use]
    pub fn brought_by(self) -> &'static [Mode] {
        if self == Self::ClientCrashAtPoint {
            &[Mode::Xa, Mode::Outbox]
        } else if matches!(self, Self::BrokerDown | Self::BrokerAnswerLost) {
            &[Mode::Outbox]
        } else {
            &[]
        }
    }

    /// Its name in reports and in the file of kept seeds.
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
            Self::WriteUntold => "write-untold",
            Self::DiskError => "disk-error",
            Self::DiskSlow => "disk-slow",
            Self::DiskStuck => "disk-stuck",
            Self::ClockStep => "clock-step",
            Self::LeadershipTaken => "leadership-taken",
            Self::ClientCrashAtPoint => "client-crash-at-point",
            Self::BrokerDown => "broker-down",
            Self::BrokerAnswerLost => "broker-answer-lost",
        }
    }

    /// The kind of a name.
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

/// How often each kind struck.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    counts: BTreeMap<Fault, u64>,
}

impl Faults {
    /// One more.
    pub fn count(&mut self, fault: Fault) {
        *self.counts.entry(fault).or_default() += 1;
    }

    /// Those of another run on top.
    pub fn add(&mut self, other: &Self) {
        for (fault, count) in &other.counts {
            *self.counts.entry(*fault).or_default() += count;
        }
    }

    /// All of them together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// How often a kind struck.
    #[must_use]
    pub fn of(&self, fault: Fault) -> u64 {
        self.counts.get(&fault).copied().unwrap_or_default()
    }
}
