//! What is simulated: how many of what, and which faults. Drawn from the seed, or written down for
//! a seed that is kept.

mod fault;
mod mode;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::random::Random;

pub use fault::{Fault, Faults};
pub use mode::Mode;

/// The faults that a plan of intensity one has, in thousandths of the chances to strike. Faults
/// that are done to a process or a disk are chosen by the same numbers as weights.
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
    (Fault::WriteUntold, 10),
    (Fault::DiskError, 10),
    (Fault::DiskSlow, 20),
    (Fault::DiskStuck, 10),
    (Fault::ClockStep, 20),
    (Fault::LeadershipTaken, 30),
    (Fault::ClientCrashAtPoint, 15),
    (Fault::BrokerDown, 10),
    (Fault::BrokerAnswerLost, 30),
];

/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where all chance comes from.
    pub seed: u64,
    /// Service processes.
    pub clients: usize,
    /// Databases; the first holds stock, the others accounts.
    pub databases: usize,
    /// Business transactions, all together.
    pub transactions: u64,
    /// Rows of each kind in each database: few rows are hot rows.
    pub rows: u32,
    /// Transactions of one client at a time.
    pub workers: u64,
    /// How long faults strike, in milliseconds.
    pub faults_ms: u64,
    /// The kinds that do not strike.
    pub without: BTreeSet<Fault>,
    /// What is mixed with AT.
    pub modes: BTreeSet<Mode>,
}

impl Plan {
    /// The plan that the seed draws. A good part of the plans leave faults out, so that each kind
    /// is also met without the noise of the others.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let kept_permille = [1_000, 700, 400, 200][random.index(4)];
        let (always, brought): (Vec<_>, Vec<_>) =
            Fault::ALL.into_iter().partition(|fault| fault.brought_by().is_empty());
        let drop_of = |random: &mut Random, faults: Vec<Fault>| -> BTreeSet<Fault> {
            faults.into_iter().filter(|_| !random.happens(kept_permille)).collect()
        };
        let mut plan = Self {
            seed,
            without: drop_of(&mut random, always),
            clients: 2 + random.index(3),
            databases: 2 + random.index(2),
            transactions: random.between(8, 40),
            rows: [1, 2, 4, 8][random.index(4)],
            workers: random.between(1, 4),
            faults_ms: random.between(5_000, 40_000),
            // Drawn last, so that a seed's AT is the same with and without.
            modes: Mode::ALL.into_iter().filter(|_| random.happens(500)).collect(),
        };
        plan.without.extend(drop_of(&mut random, brought));
        plan
    }

    /// How often a fault strikes in a thousand chances, or its weight among those that are done on
    /// purpose.
    #[must_use]
    pub fn permille(&self, fault: Fault) -> u64 {
        let weight = WEIGHTS.iter().find(|(of, _)| *of == fault).map_or(0, |(_, weight)| *weight);
        let brought_by = fault.brought_by();
        let is_there =
            brought_by.is_empty() || brought_by.iter().any(|mode| self.modes.contains(mode));
        if is_there && !self.without.contains(&fault) { weight } else { 0 }
    }

    /// Two coordinators where leadership moves, one where it does not.
    #[must_use]
    pub fn servers(&self) -> usize {
        if self.without.contains(&Fault::LeadershipTaken) { 1 } else { 2 }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed={} clients={} databases={} transactions={} rows={} workers={} faults-ms={}",
            self.seed,
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

/// A line that is no plan.
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

    /// Reads what [`Plan`]'s `Display` writes; what is left out is as the seed draws it.
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
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_reads_what_it_writes() {
        for seed in 0..50 {
            let plan = Plan::of_seed(seed);
            assert_eq!(plan.to_string().parse(), Ok(plan));
        }
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        for wrong in [
            "",
            "seed",
            "seed=a",
            "seed=1 rows",
            "seed=1 color=red",
            "seed=1 without=x",
            "seed=1 modes=x",
        ] {
            assert!(wrong.parse::<Plan>().is_err(), "{wrong}");
        }
    }
}
