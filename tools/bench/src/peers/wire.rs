//! Coordinators over Seata's wire. Each run is that of a fresh server, so that what one has put off
//! does not run beside the next.

use std::time::Duration;

use anyhow::Result;
use handfast_interop::seata_server::{Flush, VERSION};

use super::set_times;
use crate::child::Server;
use crate::load::{self, Load, Pace, Shape, Wire};
use crate::measure::{Measure, RunDirectory};
use crate::report::Row;
use crate::sample::Sample;

const IN_FLIGHT: usize = 64;
/// The branches by which phase two may be behind: each server shows what it keeps up with.
const BEHIND_MAX: u64 = 20_000;

/// A server that speaks the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coordinator {
    Handfast,
    SeataServer(Flush),
}

const ALL: [Coordinator; 3] = [
    Coordinator::Handfast,
    Coordinator::SeataServer(Flush::Later),
    Coordinator::SeataServer(Flush::BeforeReply),
];

/// Measures them in turns.
pub(super) async fn rows(
    measure: &Measure,
    place: &RunDirectory,
    jvm_warm_up: Duration,
) -> Result<Vec<Row>> {
    let names = ALL.map(Coordinator::name);
    let run = async |which: usize| {
        let warm_up = match ALL[which] {
            Coordinator::Handfast => measure.warm_up(),
            Coordinator::SeataServer(_) => jvm_warm_up,
        };
        ALL[which].run(place, (warm_up, measure.length())).await
    };
    let mut rows = measure.rows(&names, run).await?;
    compare(&mut rows);
    Ok(rows)
}

/// Compares the peers with the first row, which is Handfast's.
fn compare(rows: &mut [Row]) {
    let [handfast, peers @ ..] = rows else { return };
    peers.iter_mut().for_each(|peer| set_times(handfast.per_second.median, peer));
}

impl Coordinator {
    fn name(self) -> String {
        let server = match self {
            Self::Handfast => "Handfast, synced".to_owned(),
            Self::SeataServer(flush) => {
                format!("Seata Server {VERSION}, file mode, {}", flush.name())
            }
        };
        format!("{IN_FLIGHT} in flight: {server}")
    }

    async fn run(self, place: &RunDirectory, times: (Duration, Duration)) -> Result<(Sample, f64)> {
        let directory = place.directory()?;
        let folder = directory.path();
        let server = match self {
            Self::Handfast => Server::seata_coordinator(folder, &[]).await?,
            Self::SeataServer(flush) => Server::seata_server(folder, flush).await?,
        };
        let load = Load {
            wire: Wire::Seata,
            connections: 1,
            shape: Shape::of_one_row(),
            pace: Pace::Closed { in_flight: IN_FLIGHT },
            behind_max: Some(BEHIND_MAX),
        };
        load::measure(server.target()?, &load, times.0, times.1).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::TIMES;
    use crate::statistics::Spread;

    #[test]
    fn peers_are_compared_with_handfast() {
        let row = |median| Row { per_second: Spread::of([median]), ..Row::default() };
        let mut rows = [60.0, 10.0, 0.0].map(row);
        compare(&mut rows);
        assert_eq!(rows[0].figure(TIMES), None);
        assert!((rows[1].figure(TIMES).unwrap() - 6.0).abs() < 1e-9);
        assert_eq!(rows[2].figure(TIMES), None, "a peer that did nothing has no figure");
    }

    #[test]
    fn rows_say_what_is_synced() {
        assert!(ALL[1].name().ends_with("file mode, not synced"));
        assert!(ALL[2].name().ends_with("file mode, synced"));
    }
}
