//! The order in which pairs of hosts are measured: rounds of pairs that share no host.

/// Most rounds; with more hosts each has partners around it in the list.
const ROUNDS_MAX: usize = 16;

/// Rounds in which each host has at most one partner (a round-robin tournament), until all have met
/// or [`ROUNDS_MAX`] are over.
pub fn rounds(hosts: usize) -> Vec<Vec<(usize, usize)>> {
    let (seats, circle) = (seats(hosts), circle(hosts));
    let round = |number: usize| {
        // The last seat meets the one whose number the round has; the others meet across it.
        let across = (1..seats / 2).map(|step| {
            let (a, b) = (number + step, number + circle - step);
            (a % circle, b % circle)
        });
        let pairs = std::iter::once((number, circle)).chain(across);
        let pairs = pairs.map(|(a, b)| (a.min(b), a.max(b)));
        pairs.filter(|&(_, b)| b < hosts).collect()
    };
    (0..circle.min(ROUNDS_MAX)).map(round).collect()
}

/// Seats of the tournament: with an odd number of hosts one stays free.
fn seats(hosts: usize) -> usize {
    hosts + hosts % 2
}

/// Rounds until all have met.
fn circle(hosts: usize) -> usize {
    seats(hosts).saturating_sub(1)
}

/// The most partners of a host if these are not all others.
pub fn partners(hosts: usize) -> Option<usize> {
    (circle(hosts) > ROUNDS_MAX).then_some(ROUNDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn all_hosts_meet_once_and_are_in_one_pair_of_a_round() {
        for hosts in 0..=16 {
            let mut met = BTreeSet::new();
            for round in rounds(hosts) {
                let mut busy = BTreeSet::new();
                for (a, b) in round {
                    assert!(a < b && b < hosts, "{hosts}: {a} {b}");
                    assert!(busy.insert(a) && busy.insert(b), "{hosts}: {a} {b}");
                    assert!(met.insert((a, b)), "{hosts}: {a} {b} again");
                }
            }
            assert_eq!(met.len(), hosts * hosts.saturating_sub(1) / 2, "{hosts}");
            assert_eq!(partners(hosts), None);
        }
    }

    #[test]
    fn many_hosts_meet_some() {
        let rounds = rounds(200);
        assert_eq!(rounds.len(), ROUNDS_MAX);
        assert!(rounds.iter().all(|round| round.len() == 100));
        for hosts in [17, 18, 200] {
            assert_eq!(partners(hosts), Some(ROUNDS_MAX), "{hosts}");
        }
    }
}
