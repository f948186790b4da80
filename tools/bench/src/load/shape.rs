//! The shape of a global: branches, rows and its end.

use std::fmt;

use clap::Args;
use handfast_proto::v1;
use rand::RngExt;
use rand::rngs::SmallRng;

/// How long a registration waits for a row that another global has locked.
const LOCK_WAIT_MS: u64 = 30_000;
const TABLE: &str = "public.stock_item";

/// Branches, rows and how the global ends.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Shape {
    /// Branches of each global.
    #[arg(long, default_value_t = 2)]
    pub(crate) branches: u32,
    /// Rows that each branch locks.
    #[arg(long, default_value_t = 1)]
    pub(crate) rows: u32,
    /// The number of rows to choose from, with equal probability.
    #[arg(long, default_value_t = 10_000_000)]
    pub(crate) keys: u64,
    /// Hot rows among them.
    #[arg(long, default_value_t = 1)]
    pub(crate) hot_keys: u64,
    /// The share of rows that are chosen among the hot ones.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) hot_share: f64,
    /// The share of globals that are rolled back.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) rollback_share: f64,
    /// Commits by the local commit of the last branch, which is reported and not answered, in place
    /// of a request to commit.
    #[arg(long)]
    pub(crate) last_decides: bool,
    /// Waits for the answer to each begin before the first branch is registered. Otherwise a stream
    /// begins with XIDs that the server lends, as the client library does.
    #[arg(long)]
    pub(crate) waits_for_begin: bool,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{} rows", self.branches, self.rows)?;
        if self.hot_share > 0.0 {
            write!(f, ", {} of them among {} hot", self.hot_share, self.hot_keys)?;
        }
        if self.rollback_share > 0.0 {
            write!(f, ", {} rolled back", self.rollback_share)?;
        }
        if self.last_decides {
            write!(f, ", decided by the last")?;
        }
        if self.waits_for_begin {
            write!(f, ", begins waited for")?;
        }
        Ok(())
    }
}

impl Shape {
    /// Returns a shape of one row for each branch, chosen among so many rows that two globals
    /// hardly ever conflict.
    pub(crate) fn of_one_row() -> Self {
        Self {
            branches: 2,
            rows: 1,
            keys: 1 << 40,
            hot_keys: 1,
            hot_share: 0.0,
            rollback_share: 0.0,
            last_decides: false,
            waits_for_begin: false,
        }
    }

    pub(crate) fn begin() -> v1::BeginRequest {
        v1::BeginRequest {
            application: "handfast-bench".to_owned(),
            name: "place-order".to_owned(),
            timeout_ms: 0,
            ..v1::BeginRequest::default()
        }
    }

    /// Returns the registration of a branch with rows chosen at random.
    pub(crate) fn registration(
        &self,
        xid: &str,
        resource: &str,
        random: &mut SmallRng,
    ) -> v1::RegisterBranchRequest {
        let keys: Vec<u64> = (0..self.rows).map(|_| self.key(random)).collect();
        Self::registration_of(xid, resource, &keys, random)
    }

    /// Returns the registration of a branch with the given rows.
    pub(crate) fn registration_of(
        xid: &str,
        resource: &str,
        keys: &[u64],
        random: &mut SmallRng,
    ) -> v1::RegisterBranchRequest {
        let mode = v1::LockMode::Exclusive.into();
        let keys = keys.iter().map(|key| key_bytes(*key)).collect();
        v1::RegisterBranchRequest {
            xid: xid.to_owned(),
            branch_id: random.random_range(1..=i64::MAX.cast_unsigned()),
            resource_id: resource.to_owned(),
            mode: v1::Mode::At.into(),
            rows: vec![v1::RowKeys { table: TABLE.to_owned(), mode, keys, delta_tag: 0 }],
            wait: Some(v1::LockWait {
                timeout_ms: LOCK_WAIT_MS,
                holding: v1::Holding::Nothing.into(),
            }),
            application_data: Vec::new(),
            client_id: String::new(),
            traceparent: String::new(),
            is_last: false,
            may_be_lost: false,
        }
    }

    /// Returns the report of a local commit that has decided its global.
    pub(crate) fn decided(xid: &str, branch_id: u64) -> v1::ReportBranchRequest {
        v1::ReportBranchRequest {
            xid: xid.to_owned(),
            branch_id,
            outcome: v1::PhaseOneOutcome::Done.into(),
        }
    }

    pub(crate) fn decision(&self, random: &mut SmallRng) -> v1::Decision {
        let rolls_back = self.rollback_share > 0.0 && random.random_bool(self.rollback_share);
        if rolls_back { v1::Decision::RollBack } else { v1::Decision::Commit }
    }

    pub(crate) fn end(xid: &str, decision: v1::Decision) -> v1::EndRequest {
        v1::EndRequest {
            xid: xid.to_owned(),
            decision: decision.into(),
            reply_when: v1::ReplyWhen::Decided.into(),
            ..v1::EndRequest::default()
        }
    }

    fn key(&self, random: &mut SmallRng) -> u64 {
        let hot = self.hot_share > 0.0 && random.random_bool(self.hot_share);
        random.random_range(0..if hot { self.hot_keys } else { self.keys }.max(1))
    }
}

/// Returns a canonical key of one column, of 20 bytes as for an order number.
fn key_bytes(key: u64) -> Vec<u8> {
    format!("17:{key:017}").into_bytes()
}

/// Returns the resource id of a database: about 60 bytes, as a real one has.
pub(crate) fn resource_id(number: usize) -> String {
    format!("postgres:7312456789012345678/shop-{number:04}/5f0c9ad2e1b34a6f")
}

pub(crate) fn resource(number: usize) -> v1::Resource {
    v1::Resource {
        id: resource_id(number),
        mode: v1::Mode::At.into(),
        label: format!("shop database {number} of the benchmark"),
    }
}

/// Returns the handshake of a connection: one process with one database.
pub(crate) fn hello(number: usize) -> v1::Hello {
    v1::Hello {
        client_id: format!("handfast-bench-{}-{number}", std::process::id()),
        application: "handfast-bench".to_owned(),
        agent: "handfast-bench".to_owned(),
        resources: vec![resource(number)],
    }
}

/// Returns a successful outcome for every branch of a phase-two call.
pub(crate) fn done(call: v1::PhaseTwoCall) -> Vec<v1::BranchOutcome> {
    let decision = call.decision;
    let outcome = |branch: v1::PhaseTwoBranch| v1::BranchOutcome {
        xid: branch.xid,
        branch_id: branch.branch_id,
        decision,
        result: Some(v1::branch_outcome::Result::Done(v1::Done {})),
        ..v1::BranchOutcome::default()
    };
    call.branches.into_iter().map(outcome).collect()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn shape() -> Shape {
        Shape { rows: 3, keys: 9, ..Shape::of_one_row() }
    }

    #[test]
    fn a_branch_has_as_many_rows_as_the_shape_says() {
        let mut random = SmallRng::seed_from_u64(1);
        let request = shape().registration("a:1", "r", &mut random);
        assert_eq!(request.rows[0].keys.len(), 3);
        assert!(request.rows[0].keys.iter().all(|key| key.len() == 20));
        assert!((1..1 << 63).contains(&request.branch_id));
    }

    #[test]
    fn hot_rows_and_rollbacks_come_in_their_shares() {
        let mut random = SmallRng::seed_from_u64(1);
        let shape = Shape { hot_share: 0.5, rollback_share: 0.25, keys: 1 << 40, ..shape() };
        let hot = (0..10_000).filter(|_| shape.key(&mut random) == 0).count();
        assert!((4_500..5_500).contains(&hot), "{hot}");
        let rolled_back = |_: &i32| shape.decision(&mut SmallRng::seed_from_u64(7));
        assert_eq!(rolled_back(&0), rolled_back(&1), "a seed gives the same load");
        let share =
            (0..10_000).filter(|_| shape.decision(&mut random) == v1::Decision::RollBack).count();
        assert!((2_200..2_800).contains(&share), "{share}");
    }
}
