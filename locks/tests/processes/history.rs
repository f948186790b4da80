//! The history of a lock's holders, and whether it is possible.

use std::time::Duration;

use handfast_locks::Moment;

/// One stay in the critical section, as the holder saw it, within the time in which it believed to
/// hold the lock.
#[derive(Clone, Debug)]
pub(crate) struct Stay {
    pub(crate) fencing_token: i64,
    pub(crate) from: Moment,
    pub(crate) to: Moment,
}

impl Stay {
    pub(crate) fn write(&self) -> String {
        let [from, to] = [self.from, self.to].map(|at| at.since_start().as_nanos());
        format!("{} {from} {to}", self.fencing_token)
    }

    pub(crate) fn read(line: &str) -> Self {
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().unwrap());
        let mut next = || numbers.next().unwrap();
        let fencing_token = i64::try_from(next()).unwrap();
        let [from, to] = [next(), next()].map(|nanos| Moment::at(Duration::from_nanos(nanos)));
        Self { fencing_token, from, to }
    }
}

/// Checks that no two stays overlap, and that each has a larger fencing token than the one before.
pub(crate) fn check(stays: &[Stay]) -> Result<(), String> {
    let mut stays = stays.to_vec();
    stays.sort_by_key(|stay| stay.from);
    for pair in stays.windows(2) {
        let [before, after] = pair else { unreachable!("windows of two") };
        if after.from < before.to {
            return Err(format!("{before:?} and {after:?} overlap"));
        }
        if after.fencing_token <= before.fencing_token {
            return Err(format!("{after:?} after {before:?}: the fencing token does not grow"));
        }
    }
    Ok(())
}

#[test]
fn the_checker_finds_what_cannot_be() {
    let stay = |fencing_token, from, to| {
        let [from, to] = [from, to].map(|at| Moment::at(Duration::from_nanos(at)));
        Stay { fencing_token, from, to }
    };
    check(&[stay(2, 20, 30), stay(1, 0, 10), stay(3, 30, 40)]).unwrap();
    check(&[stay(1, 0, 21), stay(2, 20, 30)]).unwrap_err();
    check(&[stay(2, 0, 10), stay(2, 20, 30)]).unwrap_err();
    let reported = stay(7, 1, 2);
    assert_eq!(Stay::read(&reported.write()).write(), "7 1 2");
}
