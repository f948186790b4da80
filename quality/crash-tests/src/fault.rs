//! Faults, and a schedule of them from a seed. Pure.
//!
//! The schedule is the same for a seed; what the processes do meanwhile is not.

use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::wire::WireState;
use crate::work::DATABASES;

/// The crash points of a coordinator. See `tc-server/src/crash_point.rs`.
pub const COORDINATOR_POINTS: [&str; 14] = [
    "after-lead",
    "after-decide",
    "before-write",
    "before-witness",
    "mid-witness",
    "after-write",
    "after-seal",
    "mid-checkpoint",
    "after-checkpoint",
    "before-effects",
    "mid-effects",
    "after-effects",
    "mid-dispatch",
    "after-outcome",
];

/// The crash points of a service that its own work leads to. See `rm-client/src/at/crash_point.rs`.
pub const SERVICE_POINTS: [&str; 11] = [
    "before-undo-insert",
    "before-register",
    "after-register",
    "before-replay",
    "before-local-commit",
    "before-check",
    "after-local-commit",
    AFTER_A_BROKEN_COMMIT,
    "in-phase-two-before-commit",
    "in-rollback-before-commit",
    "after-phase-two-commit",
];

/// The settings of the wall clock on the coordinator's machine, in seconds from the true time: from
/// a correction to a dead battery.
pub const CLOCK_STEPS_S: [i64; 8] =
    [30, -30, 3_600, -3_600, 86_400, -86_400, 300 * 86_400, -300 * 86_400];

/// The point that only a COMMIT without an answer leads to. A file always answers.
pub const AFTER_A_BROKEN_COMMIT: &str = "before-phase-one-report";

/// Longer than every timeout between the processes: a global's time, the wait for locks, the
/// coordinator's wait for phase two, the request deadline, and the ten seconds after which either
/// side of a silent connection gives it up.
pub const LONGER_THAN_EVERY_TIMEOUT: Duration = Duration::from_secs(12);

/// The other end of a service's wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireEnd {
    /// The coordinator.
    Coordinator,
    /// One of the databases.
    Database(usize),
}

/// One thing that goes wrong, and is put right again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9` at any moment, then a start.
    KillCoordinator,
    /// The wall clock is set to so many seconds from the true time; then as above.
    SetClock(i64),
    /// Death at a point, at the n-th pass.
    CrashCoordinator { point: &'static str, pass: u32 },
    /// SIGSTOP for so long.
    PauseCoordinator(Duration),
    /// `kill -9` at any moment, then a start.
    KillService(usize),
    /// Death at a point, at the n-th pass.
    CrashService { service: usize, point: &'static str, pass: u32 },
    /// SIGSTOP for so long.
    PauseService(usize, Duration),
    /// SIGSTOP at a point, at its first pass, for so long.
    StopService { service: usize, point: &'static str, lasting: Duration },
    /// `kill -9` of the server at any moment, then a start on its data.
    KillDatabase(usize),
    /// SIGSTOP of the server and its children for so long.
    PauseDatabase(usize, Duration),
    /// A wire of a service is in this state for so long.
    Wire { service: usize, to: WireEnd, state: WireState, lasting: Duration },
    /// The network between the services' host and the coordinator's loses everything for so long.
    CutHost(Duration),
}

impl fmt::Display for Fault {
    /// The kind, for counting.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillCoordinator => f.write_str("coordinator killed"),
            Self::SetClock(_) => f.write_str("clock set"),
            Self::CrashCoordinator { point, .. } => write!(f, "coordinator dies {point}"),
            Self::PauseCoordinator(_) => f.write_str("coordinator stopped"),
            Self::KillService(_) => f.write_str("service killed"),
            Self::CrashService { point, .. } => write!(f, "service dies {point}"),
            Self::StopService { point, .. } => write!(f, "service stops {point}"),
            Self::PauseService(..) => f.write_str("service stopped"),
            Self::KillDatabase(_) => f.write_str("database killed"),
            Self::PauseDatabase(..) => f.write_str("database stopped"),
            Self::CutHost(_) => f.write_str("network cut"),
            Self::Wire { to, state, .. } => {
                let to = match to {
                    WireEnd::Coordinator => "coordinator",
                    WireEnd::Database(_) => "database",
                };
                write!(f, "wire to {to} {state}")
            }
        }
    }
}

/// An endless sequence of faults, one at a time.
#[derive(Debug)]
pub struct Schedule {
    random: StdRng,
    services: usize,
    /// The databases that are servers, and so can be killed and cut off.
    servers: Vec<usize>,
}

impl Schedule {
    /// Returns the schedule of a seed for this number of services, and these databases that are
    /// servers.
    #[must_use]
    pub fn new(seed: u64, services: usize, servers: Vec<usize>) -> Self {
        assert!(servers.iter().all(|server| *server < DATABASES), "a server is a database");
        Self { random: StdRng::seed_from_u64(seed), services, servers }
    }

    /// Returns the time without faults before the next one.
    pub fn calm(&mut self) -> Duration {
        Duration::from_millis(self.random.random_range(50..1_500))
    }

    /// The next fault.
    pub fn next_fault(&mut self) -> Fault {
        let service = self.random.random_range(0..self.services);
        match self.random.random_range(0..20) {
            0..2 => Fault::KillCoordinator,
            2 => Fault::SetClock(self.one_of(&CLOCK_STEPS_S)),
            3..7 => Fault::CrashCoordinator {
                point: self.one_of(&COORDINATOR_POINTS),
                pass: self.random.random_range(1..60),
            },
            7..9 => Fault::KillService(service),
            9..13 => self.crash_service(service),
            13..16 => self.wire(service),
            16..18 => match self.server() {
                Some(server) => Fault::KillDatabase(server),
                None => Fault::KillCoordinator,
            },
            _ => self.pause(service),
        }
    }

    fn crash_service(&mut self, service: usize) -> Fault {
        let point = self.one_of(&SERVICE_POINTS);
        let pass = self.random.random_range(1..10);
        if point == AFTER_A_BROKEN_COMMIT && self.servers.is_empty() {
            return Fault::KillService(service);
        }
        Fault::CrashService { service, point, pass }
    }

    fn wire(&mut self, service: usize) -> Fault {
        let to = match self.server() {
            Some(server) if self.random.random_bool(0.5) => WireEnd::Database(server),
            Some(_) | None => WireEnd::Coordinator,
        };
        let state = self.one_of(&[WireState::Cut, WireState::Silent, WireState::Deaf]);
        let lasting = self.lasting();
        Fault::Wire { service, to, state, lasting }
    }

    fn pause(&mut self, service: usize) -> Fault {
        let lasting = self.lasting();
        match (self.random.random_range(0..3), self.server()) {
            (0, _) => Fault::PauseCoordinator(lasting),
            (1, Some(server)) => Fault::PauseDatabase(server, lasting),
            _ => Fault::PauseService(service, lasting),
        }
    }

    /// Returns a duration: mostly short, sometimes longer than every timeout.
    fn lasting(&mut self) -> Duration {
        match self.random.random_range(0..4) {
            0 => LONGER_THAN_EVERY_TIMEOUT,
            _ => Duration::from_millis(self.random.random_range(100..4_000)),
        }
    }

    fn server(&mut self) -> Option<usize> {
        let servers = self.servers.len();
        (servers > 0).then(|| self.servers[self.random.random_range(0..servers)])
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.random_range(0..of.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(seed: u64, servers: Vec<usize>) -> Vec<Fault> {
        let mut schedule = Schedule::new(seed, 2, servers);
        (0..500).map(|_| schedule.next_fault()).collect()
    }

    #[test]
    fn a_seed_gives_the_same_schedule() {
        assert_eq!(faults(7, vec![0, 1]), faults(7, vec![0, 1]));
        assert_ne!(faults(7, vec![0, 1]), faults(8, vec![0, 1]));
    }

    #[test]
    fn every_kind_comes_and_files_are_not_killed() {
        let kinds: std::collections::BTreeSet<String> =
            faults(1, vec![0, 1]).iter().map(ToString::to_string).collect();
        // Each crash point, three killed, three stopped, a clock, two wires in three states.
        assert_eq!(kinds.len(), COORDINATOR_POINTS.len() + SERVICE_POINTS.len() + 3 + 3 + 1 + 6);
        let is_of_server = |fault: &Fault| fault.to_string().contains("database");
        assert!(!faults(1, Vec::new()).iter().any(is_of_server));
    }
}
