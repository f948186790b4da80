//! How relays share the lanes: each lane has one owner at a time, by a lease.

/// The owner of a lane, as the relay that asks sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneOwner {
    /// The relay that asks.
    Ours,
    /// Another relay, whose lease goes on.
    Others,
    /// No relay: the lane was never owned, or its lease has ended.
    Free,
}

/// The actions of a relay on its lanes.
#[derive(Debug, PartialEq, Eq)]
pub struct LaneShares {
    /// The lanes that it has from here on.
    pub keep: Vec<i64>,
    /// The lanes of its own that it gives back.
    pub give: Vec<i64>,
}

/// Keeps the relay's own lanes up to a fair share, and takes free ones if that is not enough.
#[must_use]
pub fn shares(lanes: &[(i64, LaneOwner)], relays: usize) -> LaneShares {
    // Rounded up, so that the shares together cover all lanes.
    let fair = lanes.len().div_ceil(relays.max(1));
    let of =
        |wanted| lanes.iter().filter(move |(_, owner)| *owner == wanted).map(|(lane, _)| *lane);
    let give = of(LaneOwner::Ours).skip(fair).collect();
    let keep = of(LaneOwner::Ours).chain(of(LaneOwner::Free)).take(fair).collect();
    LaneShares { keep, give }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(text: &str) -> Vec<(i64, LaneOwner)> {
        let owner = |c| match c {
            'o' => LaneOwner::Ours,
            'x' => LaneOwner::Others,
            _ => LaneOwner::Free,
        };
        text.chars().map(owner).zip(0..).map(|(owner, lane)| (lane, owner)).collect()
    }

    fn check(text: &str, relays: usize, keep: &[i64], give: &[i64]) {
        let expected = LaneShares { keep: keep.to_vec(), give: give.to_vec() };
        assert_eq!(shares(&lanes(text), relays), expected, "{text} among {relays}");
    }

    #[test]
    fn lanes_are_shared_fairly() {
        check("....", 1, &[0, 1, 2, 3], &[]);
        check("oooo", 2, &[0, 1], &[2, 3]);
        check("xxxx", 2, &[], &[]);
        check("xx..", 2, &[2, 3], &[]);
        check("oox.", 3, &[0, 1], &[]);
        check(".oxx.", 2, &[1, 0, 4], &[]);
        check("oooo", 5, &[0], &[1, 2, 3]);
    }
}
