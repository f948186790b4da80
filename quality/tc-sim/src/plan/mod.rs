//! The plan of a run: sizes, modes and faults. A plan is drawn from a seed, or parsed from a
//! line that a failing run has printed.

mod fault;
mod mode;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::random::Random;

pub use fault::{Fault, Faults};
pub use mode::Mode;

/// How often each fault strikes, in thousandths of its chances. For a fault that is inflicted on a
/// process, a connection or the store it is the weight of the choice.
const WEIGHTS: &[(Fault, u64)] = &[
    (Fault::MessageLost, 10),
    (Fault::MessageDoubled, 20),
    (Fault::MessageDelayed, 10),
    (Fault::MessageReordered, 20),
    (Fault::ConnectionCut, 30),
    (Fault::ConnectionCutOneWay, 30),
    (Fault::CallLost, 30),
    (Fault::ServerCrash, 30),
    (Fault::ServerFrozen, 15),
    (Fault::ClientCrash, 30),
    (Fault::ClientFrozen, 15),
    (Fault::DatabaseCrash, 20),
    (Fault::DatabaseAnswerLost, 10),
    (Fault::DatabaseSlow, 20),
    (Fault::WriteLost, 10),
    (Fault::WriteTorn, 5),
    (Fault::WriteUnacknowledged, 10),
    (Fault::DiskError, 10),
    (Fault::DiskSlow, 20),
    (Fault::DiskStuck, 10),
    (Fault::ClockStep, 20),
    (Fault::LeadershipTaken, 30),
    (Fault::ClientCrashAtPoint, 15),
    (Fault::BrokerDown, 10),
    (Fault::BrokerAnswerLost, 30),
    (Fault::ServerStopped, 20),
    (Fault::StoreRequestLost, 5),
    (Fault::StoreAnswerLost, 10),
    (Fault::StoreCutOff, 20),
    (Fault::LeaderAsleep, 4),
    (Fault::CandidateAsleep, 60),
];

/// How much longer a long run lasts, in milliseconds.
const LONG_MS: u64 = 180_000;

/// The plan of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed of everything that is drawn.
    pub seed: u64,
    /// The number of coordinators. One has a store of its own; several share one, and one leads.
    pub servers: usize,
    /// The number of services.
    pub clients: usize,
    /// The number of databases. The first holds stock, the others accounts.
    pub databases: usize,
    /// The number of orders of all services together.
    pub transactions: u64,
    /// The number of rows of each kind in each database. Few rows are hot rows.
    pub rows: u32,
    /// The number of concurrent orders of one service.
    pub workers: u64,
    /// How long faults strike, in milliseconds.
    pub faults_ms: u64,
    /// The faults that do not strike.
    pub without: BTreeSet<Fault>,
    /// The modes beside AT.
    pub modes: BTreeSet<Mode>,
}

impl Plan {
    /// Draws the plan of a seed. Most plans leave some faults out, so that each fault is also
    /// tested without the noise of the others.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let kept_permille = [1_000, 700, 400, 200][random.index(4)];
        let early = Fault::ALL.into_iter().filter(|fault| !Fault::DRAWN_LAST.contains(fault));
        let (always, by_mode): (Vec<_>, Vec<_>) =
            early.partition(|fault| fault.requires_one_of().is_empty());
        let drop_of = |random: &mut Random, faults: Vec<Fault>| -> BTreeSet<Fault> {
            faults.into_iter().filter(|_| !random.happens(kept_permille)).collect()
        };
        let mut plan = Self {
            seed,
            servers: 1,
            without: drop_of(&mut random, always),
            clients: 2 + random.index(3),
            databases: 2 + random.index(2),
            transactions: random.between(8, 40),
            rows: [1, 2, 4, 8][random.index(4)],
            workers: random.between(1, 4),
            faults_ms: random.between(5_000, 40_000),
            // Modes are drawn last, so that a seed's AT part does not depend on them.
            modes: Mode::DRAWN_FIRST.into_iter().filter(|_| random.happens(500)).collect(),
        };
        plan.without.extend(drop_of(&mut random, by_mode));
        // Coordinators and their faults come last: the rest of a plan does not depend on them.
        plan.servers = [1, 1, 2, 3, 3][random.index(5)];
        plan.without.extend(drop_of(&mut random, Fault::DRAWN_LAST.to_vec()));
        if random.happens(500) {
            plan.modes.insert(Mode::Counters);
        }
        if random.happens(500) {
            plan.modes.insert(Mode::Guards);
            if random.happens(60) {
                plan.modes.insert(Mode::GuardChanges);
            }
        }
        if random.happens(400) {
            plan.modes.insert(Mode::FewXids);
        }
        plan
    }

    /// Returns whether the run is long enough for guards to take effect that are put on during it.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.modes.contains(&Mode::Guards) && self.modes.contains(&Mode::GuardChanges)
    }

    /// Returns when the faults are over, in milliseconds.
    #[must_use]
    pub fn faults_end_ms(&self) -> u64 {
        self.faults_ms + if self.is_long() { LONG_MS } else { 0 }
    }

    /// Returns how often a fault strikes in a thousand chances, or its weight if it is inflicted.
    #[must_use]
    pub fn permille(&self, fault: Fault) -> u64 {
        let weight = WEIGHTS.iter().find(|(of, _)| *of == fault).map_or(0, |(_, weight)| *weight);
        let modes = fault.requires_one_of();
        let has_mode = modes.is_empty() || modes.iter().any(|mode| self.modes.contains(mode));
        let has_servers = self.servers > 1 || !fault.requires_several_servers();
        if has_mode && has_servers && !self.without.contains(&fault) { weight } else { 0 }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed={} servers={} clients={} databases={} transactions={} rows={} workers={} \
             faults-ms={}",
            self.seed,
            self.servers,
            self.clients,
            self.databases,
            self.transactions,
            self.rows,
            self.workers,
            self.faults_ms,
        )?;
        let without: Vec<&str> = self.without.iter().map(|fault| fault.name()).collect();
        let modes: Vec<&str> = self.modes.iter().map(|mode| mode.name()).collect();
        write!(f, " without={} modes={}", listed(&without), listed(&modes))
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "-".to_owned() } else { names.join(",") }
}

/// A text that is not a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPlan(String);

impl fmt::Display for BadPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not part of a plan: {:?}", self.0)
    }
}

impl std::error::Error for BadPlan {}

impl FromStr for Plan {
    type Err = BadPlan;

    /// Parses what [`Plan`]'s `Display` writes, and `only=` with the faults that strike. What the
    /// text leaves out is drawn from the seed.
    fn from_str(text: &str) -> Result<Self, BadPlan> {
        let bad = |part: &str| BadPlan(part.to_owned());
        let pairs: Vec<(&str, &str)> = text
            .split_whitespace()
            .map(|part| part.split_once('=').ok_or_else(|| bad(part)))
            .collect::<Result<_, _>>()?;
        let seed = pairs.iter().find(|(name, _)| *name == "seed").ok_or_else(|| bad(text))?.1;
        let mut plan = Self::of_seed(seed.parse().map_err(|_| bad(seed))?);
        for (name, value) in pairs {
            plan.set(name, value).ok_or_else(|| bad(&format!("{name}={value}")))?;
        }
        Ok(plan)
    }
}

impl Plan {
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "seed" => {}
            "servers" => self.servers = value.parse().ok().filter(|servers| *servers > 0)?,
            "clients" => self.clients = value.parse().ok()?,
            "databases" => self.databases = value.parse().ok()?,
            "transactions" => self.transactions = value.parse().ok()?,
            "rows" => self.rows = value.parse().ok()?,
            "workers" => self.workers = value.parse().ok()?,
            "faults-ms" => self.faults_ms = value.parse().ok()?,
            "without" if value == "-" => self.without.clear(),
            "modes" if value == "-" => self.modes.clear(),
            "modes" => self.modes = value.split(',').map(Mode::named).collect::<Option<_>>()?,
            "without" => {
                self.without = value.split(',').map(Fault::named).collect::<Option<_>>()?
            }
            "only" => {
                let kept: BTreeSet<_> =
                    value.split(',').map(Fault::named).collect::<Option<_>>()?;
                self.without = Fault::ALL.into_iter().filter(|it| !kept.contains(it)).collect();
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_round_trips_through_its_text() {
        for seed in 0..50 {
            let plan = Plan::of_seed(seed);
            assert_eq!(plan.to_string().parse(), Ok(plan));
        }
    }

    #[test]
    fn faults_are_named_that_strike() {
        let plan: Plan = "seed=1 servers=1 only=server-crash,disk-slow".parse().unwrap();
        let strike: Vec<_> = Fault::ALL.into_iter().filter(|it| plan.permille(*it) > 0).collect();
        assert_eq!(strike, [Fault::ServerCrash, Fault::DiskSlow]);
        assert_eq!(plan.to_string().parse(), Ok(plan));
    }

    #[test]
    fn invalid_plan_is_refused() {
        for invalid in [
            "",
            "seed",
            "seed=a",
            "seed=1 rows",
            "seed=1 color=red",
            "seed=1 without=x",
            "seed=1 modes=x",
            "seed=1 servers=0",
        ] {
            assert!(invalid.parse::<Plan>().is_err(), "{invalid}");
        }
    }
}
