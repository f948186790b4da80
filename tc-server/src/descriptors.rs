//! File descriptors: the limit of the process, and the connections that fit into it.
//!
//! Each connection takes one descriptor, and so does each file that the store opens. A store
//! without a descriptor cannot carry its journal over, which ends the process. So the descriptors
//! of the store and the process itself are reserved, and connections share the rest (BOUNDED).

use std::io;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::config::Config;

/// Descriptors reserved for other uses than connections: 64 for standard streams, listening
/// sockets, the runtime, logs and files that are read again, and 128 for the store, whose first
/// start on a directory of an earlier version reads the many files of that version's engine.
pub(crate) const RESERVE: usize = 192;

/// The connections that each port keeps, however many the others are configured for: operators must
/// be able to connect.
const PORT_MIN: usize = 32;

/// Descriptors per call over HTTP: tries and phase-two calls have separate limits.
const PER_CALL: usize = 2;

/// Descriptors per connection of a Seata client where another node may lead: it is passed on by a
/// second one.
const PER_PASSED_ON: usize = 2;

/// The limit of file descriptors leaves no room for connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the process may have {limit} file descriptors, of which it needs {RESERVE} for itself and at \
     least {least} for connections: raise the limit (`ulimit -n`, or `LimitNOFILE=` of systemd)"
)]
pub struct TooFewDescriptors {
    limit: usize,
    least: usize,
}

/// Raises the process's soft limit of file descriptors to the hard one.
///
/// # Errors
///
/// The system does not allow it; the limit stays as it was.
pub fn raise_limit() -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(())
}

/// Lowers the connection limits of a configuration to fit the process, and logs them.
pub(crate) fn fit(config: Config) -> Result<Config, TooFewDescriptors> {
    let asked = ConnectionLimits::configured(&config);
    let limits = asked.within(limit())?;
    let ConnectionLimits { grpc, admin, seata, http } = limits;
    let (limit, reserve) = (limit(), RESERVE);
    if limits == asked {
        tracing::info!(limit, reserve, grpc, admin, seata, http, "file descriptors");
    } else {
        tracing::warn!(
            limit,
            reserve,
            grpc,
            admin,
            seata,
            http,
            "file descriptors: fewer connections than configured"
        );
    }
    Ok(limits.applied_to(config))
}

/// Returns the most connections for a coordinator that shares the process with other code: half of
/// the descriptors beside the reserve.
pub(crate) fn connections_beside(asked: usize) -> usize {
    asked.min(limit().saturating_sub(RESERVE) / 2).max(PORT_MIN)
}

/// Returns whether the error means that the process or the machine has no file descriptor left.
/// That is temporary, and says nothing about a disk or a socket.
pub(crate) fn are_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::EMFILE, Errno::ENFILE].map(|errno| errno as i32);
    error.raw_os_error().is_some_and(|code| exhausted.contains(&code))
}

/// Returns the limit of the process, or the largest number if the system does not report one.
fn limit() -> usize {
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    usize::try_from(soft).unwrap_or(usize::MAX)
}

/// The limits of connections at a time, per port and for calls over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ConnectionLimits {
    grpc: usize,
    admin: usize,
    seata: usize,
    http: usize,
}

impl ConnectionLimits {
    fn configured(config: &Config) -> Self {
        let calls = config.http.participants.len().saturating_mul(config.http.calls_max);
        Self {
            grpc: config.grpc.connections_max,
            admin: config.admin.connections_max,
            seata: if config.seata.enabled {
                config.seata.connections_max.saturating_mul(per_seata_connection(config))
            } else {
                0
            },
            http: calls.saturating_mul(PER_CALL),
        }
    }

    /// Shares the descriptors beside the reserve: each gets its minimum, and the rest is shared in
    /// proportion.
    fn within(self, limit: usize) -> Result<Self, TooFewDescriptors> {
        let room = limit.saturating_sub(RESERVE);
        let asked = self.each();
        let total = asked.iter().fold(0, |sum: usize, it| sum.saturating_add(*it));
        if total <= room {
            return Ok(self);
        }
        let least = asked.map(|it| it.min(PORT_MIN));
        let left = room.checked_sub(least.iter().sum());
        let left = left.ok_or(TooFewDescriptors { limit, least: least.iter().sum() })?;
        // In 128 bits, since configured limits may be as large as `usize::MAX` and are multiplied.
        let wanted: u128 = asked.iter().zip(least).map(|(it, least)| (it - least) as u128).sum();
        let share = |port: usize| {
            let more = (asked[port] - least[port]) as u128 * left as u128 / wanted.max(1);
            least[port] + usize::try_from(more).unwrap_or(usize::MAX)
        };
        Ok(Self { grpc: share(0), admin: share(1), seata: share(2), http: share(3) })
    }

    fn each(self) -> [usize; 4] {
        [self.grpc, self.admin, self.seata, self.http]
    }

    fn applied_to(self, mut config: Config) -> Config {
        config.grpc.connections_max = self.grpc;
        config.admin.connections_max = self.admin;
        if config.seata.enabled {
            let connections = self.seata / per_seata_connection(&config);
            config.seata.connections_max = connections.min(config.seata.connections_max);
        }
        let participants = config.http.participants.len();
        if let Some(calls) = (self.http / PER_CALL).checked_div(participants) {
            config.http.calls_max = calls.clamp(1, config.http.calls_max);
        }
        config
    }
}

fn per_seata_connection(config: &Config) -> usize {
    if config.store.is_shared() { PER_PASSED_ON } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreKind;

    /// Regression: connections that are passed on would take the descriptors of the store.
    #[test]
    fn a_connection_that_may_be_passed_on_counts_twice() {
        let mut config = Config { store: StoreKind::Sql, ..Config::default() };
        (config.seata.enabled, config.seata.connections_max) = (true, 1_000);
        let asked = ConnectionLimits::configured(&config);
        assert_eq!(asked.seata, 2_000);
        assert_eq!(asked.applied_to(config.clone()).seata.connections_max, 1_000);
        let shared = ConnectionLimits { seata: 501, ..asked };
        assert_eq!(shared.applied_to(config).seata.connections_max, 250);
    }

    fn limits(grpc: usize, admin: usize, seata: usize, http: usize) -> ConnectionLimits {
        ConnectionLimits { grpc, admin, seata, http }
    }

    #[test]
    fn limits_that_do_not_fit_are_shared_out() {
        let cases = [
            (limits(8_192, 256, 0, 0), 20_000, limits(8_192, 256, 0, 0)),
            (limits(8_192, 256, 0, 0), 1_024, limits(779, 52, 0, 0)),
            (limits(8_192, 256, 8_192, 128), 1_024, limits(377, 41, 377, 36)),
            (limits(8_192, 8, 0, 0), 1_024, limits(824, 8, 0, 0)),
            (limits(8_192, 256, 0, 0), 256, limits(32, 32, 0, 0)),
            (limits(usize::MAX, usize::MAX, 0, 0), 1_024, limits(416, 416, 0, 0)),
        ];
        for (asked, limit, shared) in cases {
            assert_eq!(asked.within(limit), Ok(shared), "{asked:?} of {limit}");
        }
    }

    /// With more connections than descriptors the store would have none.
    #[test]
    fn the_reserve_stays_free_for_any_configuration() {
        for limit in 330..3_000 {
            let shared = limits(8_192, 256, 4_096, 640).within(limit).expect("there is room");
            let taken: usize = shared.each().iter().sum();
            assert!(taken + RESERVE <= limit, "{taken} of {limit}");
            assert!(shared.each().iter().all(|it| *it >= PORT_MIN), "{shared:?} of {limit}");
        }
    }

    #[test]
    fn a_limit_without_room_for_connections_is_refused() {
        let refused = limits(8_192, 256, 0, 0).within(200).expect_err("there is no room");
        assert_eq!(refused, TooFewDescriptors { limit: 200, least: 64 });
        assert!(refused.to_string().contains("LimitNOFILE"), "{refused}");
    }
}
