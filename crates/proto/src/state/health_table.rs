//! The states of a path's health and all transitions between them, as one table. The diagram in
//! `docs/design/paths.md` shows the same; a test compares the two.

use crate::base::types::{PathReason, PathState};

/// Condition of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Never answered; it is probed.
    Unproven,
    /// In use.
    Up,
    /// In use, but new packets and acks prefer other paths.
    Suspect,
    /// Out of use; probed.
    Down,
    /// Not in use, because it corrupts packets; it is probed with full packets.
    Isolated,
    /// Isolated, and the last probe arrived.
    Probation,
}

/// Facts that may change the condition of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// An ack with news arrived.
    Ack,
    /// A path that is out of use was answered.
    Answered,
    /// Packets were retransmitted twice, a reliable path stalls, or its rail has no room.
    Late,
    /// A comparison was lost, a rail or link is down, the rail's queue is stuck, the packet size or
    /// the peer's address changed.
    Failed,
    /// The peer receives corrupted packets on the path.
    Corrupt,
    /// A probe of an isolated path arrived.
    ProbePassed,
    /// A probe of an isolated path was lost.
    ProbeLost,
    /// Enough probes of the isolated path arrived, or no other path is healthy.
    Reinstated,
    /// All paths corrupt packets: the isolated ones are no worse.
    NoBetter,
}

use Condition::{Down, Isolated, Probation, Suspect, Unproven, Up};

/// For each input the next condition, by the present one. Conditions that stay are written out, so
/// that no pair is undefined.
#[rustfmt::skip]
const TABLE: [(Input, [Condition; 6]); 9] = [
    //                     Unproven  Up        Suspect   Down  Isolated   Probation
    (Input::Ack,         [Unproven, Up,       Up,       Down, Isolated,  Probation]),
    (Input::Answered,    [Up,       Up,       Up,       Up,   Isolated,  Probation]),
    (Input::Late,        [Unproven, Suspect,  Suspect,  Down, Isolated,  Probation]),
    (Input::Failed,      [Down,     Down,     Down,     Down, Isolated,  Probation]),
    (Input::Corrupt,     [Isolated, Isolated, Isolated, Down, Isolated,  Probation]),
    (Input::ProbePassed, [Unproven, Up,       Suspect,  Down, Probation, Probation]),
    (Input::ProbeLost,   [Unproven, Up,       Suspect,  Down, Isolated,  Isolated]),
    (Input::Reinstated,  [Unproven, Up,       Suspect,  Down, Up,        Up]),
    (Input::NoBetter,    [Unproven, Up,       Suspect,  Down, Up,        Up]),
];

impl Condition {
    /// The condition after `input`.
    #[inline]
    pub(crate) fn after(self, input: Input) -> Condition {
        TABLE[input as usize].1[self as usize]
    }

    /// The state as the owner sees it: an isolated path is down.
    #[inline]
    pub(crate) fn state(self) -> PathState {
        match self {
            Unproven => PathState::Unproven,
            Up => PathState::Up,
            Suspect => PathState::Suspect,
            Down | Isolated | Probation => PathState::Down,
        }
    }

    /// True if the path is out of use because it corrupts.
    #[inline]
    pub(crate) fn is_isolated(self) -> bool {
        matches!(self, Isolated | Probation)
    }
}

impl Input {
    /// The input for a path that is given up for this reason.
    pub(crate) fn of_failure(why: PathReason) -> Input {
        match why {
            PathReason::Corrupt => Input::Corrupt,
            _ => Input::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use alloc::{format, vec};

    const CONDITIONS: [Condition; 6] = [Unproven, Up, Suspect, Down, Isolated, Probation];
    const PATHS: &str = include_str!("../../../../docs/design/paths.md");

    #[test]
    fn rows_and_columns_are_in_order() {
        for (row, (input, _)) in TABLE.iter().enumerate() {
            assert_eq!(*input as usize, row);
        }
        for (column, condition) in CONDITIONS.iter().enumerate() {
            assert_eq!(*condition as usize, column);
        }
    }

    #[test]
    fn an_input_that_is_repeated_changes_nothing_more() {
        for (input, _) in TABLE {
            for from in CONDITIONS {
                let once = from.after(input);
                assert_eq!(once.after(input), once, "{from:?} {input:?}");
            }
        }
    }

    #[test]
    fn no_input_makes_a_path_unproven() {
        for (input, _) in TABLE {
            for from in CONDITIONS.into_iter().filter(|from| *from != Unproven) {
                assert_ne!(from.after(input), Unproven, "{from:?} {input:?}");
            }
        }
    }

    #[test]
    fn a_path_out_of_use_returns_only_by_an_answer_or_for_want_of_a_better_one() {
        for (input, _) in TABLE {
            let back = |from: Condition| from.after(input).state() != PathState::Down;
            let answered = input == Input::Answered;
            let reinstated = matches!(input, Input::Reinstated | Input::NoBetter);
            assert_eq!(back(Down), answered, "{input:?}");
            assert_eq!(back(Isolated), reinstated, "{input:?}");
            assert_eq!(back(Probation), reinstated, "{input:?}");
        }
    }

    #[test]
    fn only_a_path_in_use_becomes_suspect() {
        for from in CONDITIONS {
            let suspect = from.after(Input::Late) == Suspect;
            assert_eq!(suspect, matches!(from, Up | Suspect));
        }
    }

    #[test]
    fn corruption_isolates_and_other_failures_do_not() {
        assert_eq!(Input::of_failure(PathReason::Corrupt), Input::Corrupt);
        for why in [
            PathReason::Unanswered,
            PathReason::LinkDown(3),
            PathReason::Size,
        ] {
            assert_eq!(Up.after(Input::of_failure(why)), Down);
        }
        assert_eq!(Up.after(Input::Corrupt), Isolated);
    }

    #[test]
    fn the_diagram_in_the_documents_is_this_table() {
        let mut expected = vec!["[*] --> Unproven".to_string()];
        for from in CONDITIONS {
            for (input, _) in TABLE {
                let to = from.after(input);
                if to != from {
                    expected.push(format!("{from:?} --> {to:?} : {input:?}"));
                }
            }
        }
        let diagram = PATHS.split("```mermaid\nstateDiagram-v2\n").nth(1);
        let diagram = diagram.and_then(|rest| rest.split("```").next());
        let shown: Vec<_> = diagram.unwrap_or("").lines().map(str::trim).collect();
        assert_eq!(shown, expected, "{}", expected.join("\n    "));
    }
}
