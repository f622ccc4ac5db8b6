//! Health of a path. The table of transitions ([`Condition::after`]) decides; this file keeps the
//! state behind its inputs: the comparison with reference paths, the state of the rail, refusals,
//! damage and the probes of an isolated path, and the damping of a path that flaps.

use crate::base::types::PathState;
use crate::state::comparison::Comparison;
use crate::state::damage::{Damage, Isolation};
use crate::state::health_table::{Condition, Input};
use marline_wire::HeadWriter;

/// Hold time of a path that goes down again soon: doubled each time, between these bounds (flap
/// damping).
const HOLD_MIN_NS: u32 = 1_000_000;
const HOLD_CAP_NS: u64 = 1_000_000_000;
/// Time up after which the damping is forgotten.
const HOLD_FORGET_NS: u64 = 10_000_000_000;

/// The health of a path.
#[derive(Debug)]
pub struct Health {
    condition: Condition,
    comparison: Option<Comparison>,
    hold_ns: u32,
    up_since_ns: u64,
    /// Nothing can leave on the path: its rail is down, or its link is not up.
    rail_down: bool,
    /// The peer's host refused a packet on the path after the peer was last heard (see `Refusals`).
    refused: bool,
    /// Corrupted packets that arrived on the path.
    damage: Damage,
    /// Probes of the path while our packets arrive corrupted.
    isolation: Isolation,
}

impl Default for Health {
    fn default() -> Health {
        Health {
            condition: Condition::Unproven,
            comparison: None,
            hold_ns: HOLD_MIN_NS,
            up_since_ns: 0,
            rail_down: false,
            refused: false,
            damage: Damage::default(),
            isolation: Isolation::default(),
        }
    }
}

impl Health {
    /// The state as shown to the owner.
    #[inline]
    pub(crate) fn state(&self) -> PathState {
        self.condition.state()
    }

    /// Applies an input; returns true if the condition changed.
    #[inline]
    fn apply(&mut self, input: Input) -> bool {
        let before = self.condition;
        self.condition = before.after(input);
        self.condition != before
    }

    /// Handles an ack with news; returns true if the path was suspect.
    #[inline]
    pub(crate) fn on_ack(&mut self) -> bool {
        self.comparison = None;
        self.apply(Input::Ack)
    }

    /// Handles late acks, or a rail without room. Returns true if the path was not suspect before.
    pub(crate) fn on_late(&mut self) -> bool {
        self.apply(Input::Late)
    }

    /// Takes the path down. Returns its hold time, before which it does not come up: doubled if the
    /// path had been up only briefly, but at most `hold_max_ns`.
    pub(crate) fn on_failure(&mut self, now: u64, hold_max_ns: u64, input: Input) -> u64 {
        if now.saturating_sub(self.up_since_ns) > HOLD_FORGET_NS {
            self.hold_ns = HOLD_MIN_NS;
        } else {
            let hold_ns = 2 * u64::from(self.hold_ns);
            self.hold_ns = hold_ns.min(HOLD_CAP_NS).min(hold_max_ns) as u32;
        }
        if self.apply(input) && self.is_isolated() {
            self.isolation.begin(now);
        }
        self.comparison = None;
        self.hold_ns.into()
    }

    /// Handles an ack on a path that is not in use. Returns the input that brings the path up, if
    /// it may come up. `alone`: no other path is healthy. `sent_ns`: when the acknowledged packet
    /// left.
    pub(crate) fn on_answer(&mut self, alone: bool, sent_ns: u64) -> Option<Input> {
        if !self.is_isolated() {
            return Some(Input::Answered);
        }
        if self.isolation.passed() || alone {
            self.isolation.end(sent_ns);
            return Some(Input::Reinstated);
        }
        self.apply(Input::ProbePassed);
        None
    }

    /// Ends the isolation because no other path is better.
    pub(crate) fn end_isolation(&mut self, now: u64) {
        self.isolation.end(now);
    }

    /// Brings the path up.
    pub(crate) fn on_up(&mut self, now: u64, input: Input) {
        self.apply(input);
        self.up_since_ns = now;
        self.comparison = None;
    }

    /// True if the peer ever answered on the path.
    #[inline]
    pub(crate) fn is_proven(&self) -> bool {
        self.condition != Condition::Unproven
    }

    /// True if the path is proven and not down (its rail may be down at the moment).
    #[inline]
    pub(crate) fn carries(&self) -> bool {
        matches!(self.condition, Condition::Up | Condition::Suspect)
    }

    /// True if the path may carry data.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        !self.rail_down && self.carries()
    }

    /// True if the path carries its own acks.
    #[inline]
    pub(crate) fn is_healthy(&self) -> bool {
        !self.rail_down && self.condition == Condition::Up
    }

    /// True if the path is out of use because it corrupts.
    #[inline]
    pub(crate) fn is_isolated(&self) -> bool {
        self.condition.is_isolated()
    }

    /// True if nothing leaves on the path.
    #[inline]
    pub(crate) fn rail_down(&self) -> bool {
        self.rail_down
    }

    /// Notes whether packets can leave.
    pub(crate) fn set_rail_down(&mut self, down: bool) {
        self.rail_down = down;
    }

    /// True if the peer's host refused a packet on the path.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Notes a refusal; returns true if it is the first.
    pub(crate) fn on_refusal(&mut self) -> bool {
        !core::mem::replace(&mut self.refused, true)
    }

    /// Forgets refusals: the peer was heard.
    pub(crate) fn forget_refusals(&mut self) {
        self.refused = false;
    }

    /// The running comparison with reference paths.
    #[inline]
    pub(crate) fn comparison(&self) -> Option<&Comparison> {
        self.comparison.as_ref()
    }

    /// The running comparison, for changing it.
    #[inline]
    pub(crate) fn comparison_mut(&mut self) -> Option<&mut Comparison> {
        self.comparison.as_mut()
    }

    /// Begins, prolongs or ends a comparison.
    pub(crate) fn set_comparison(&mut self, comparison: Option<Comparison>) {
        self.comparison = comparison;
    }

    /// True while the path is compared with reference paths.
    #[inline]
    pub(crate) fn is_compared(&self) -> bool {
        self.comparison.is_some()
    }

    /// Counts a corrupted packet that arrived; see [`Damage::on_bad`].
    pub(crate) fn on_damage(&mut self, received: u64, limit_ppm: u32) -> Option<(u32, u64)> {
        self.damage.on_bad(received, limit_ppm)
    }

    /// When the last probe of the isolated path was requested.
    pub(crate) fn isolation_asked_ns(&self) -> u64 {
        self.isolation.asked_ns()
    }

    /// Notes another probe of the isolated path. `lost`: the probe before was not answered.
    pub(crate) fn on_isolation_probe(&mut self, now: u64, lost: bool) {
        if lost {
            self.apply(Input::ProbeLost);
        }
        self.isolation.on_probe(now, lost);
    }

    /// Pads a probe of an isolated path.
    pub(crate) fn fill_probe(&self, writer: &mut HeadWriter<'_>) {
        if self.is_isolated() {
            self.isolation.fill(writer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000_000_000;

    fn up() -> Health {
        let mut health = Health::default();
        assert_eq!(health.on_answer(true, 1), Some(Input::Answered));
        health.on_up(S, Input::Answered);
        health
    }

    #[test]
    fn a_path_in_use_becomes_suspect_once_and_is_cleared_by_an_ack() {
        let mut health = up();
        assert!(health.is_healthy() && !health.on_ack());
        assert!(health.on_late() && !health.on_late());
        assert!(health.is_usable() && !health.is_healthy());
        assert!(health.on_ack() && health.is_healthy());
    }

    #[test]
    fn an_unproven_path_is_not_suspect() {
        let mut health = Health::default();
        assert!(!health.on_late() && !health.is_proven() && !health.carries());
    }

    #[test]
    fn nothing_leaves_on_a_path_whose_rail_is_down() {
        let mut health = up();
        health.set_rail_down(true);
        assert!(health.carries() && !health.is_usable() && !health.is_healthy());
    }

    #[test]
    fn a_path_that_flaps_is_held_down_longer_each_time() {
        let mut health = up();
        let mut holds = Vec::new();
        let mut now = S;
        for _ in 0..4 {
            holds.push(health.on_failure(now, 8 * MS, Input::Failed) / MS);
            assert_eq!(health.state(), PathState::Down);
            now += MS;
            health.on_up(now, Input::Answered);
        }
        assert_eq!(holds, [2, 4, 8, 8]);
        now += HOLD_FORGET_NS + 1;
        assert_eq!(health.on_failure(now, S, Input::Failed), MS);
    }

    #[test]
    fn an_isolated_path_returns_after_sixteen_probes_in_a_row() {
        let mut health = up();
        health.on_failure(2 * S, S, Input::Corrupt);
        assert!(health.is_isolated() && health.state() == PathState::Down);
        assert!((0..15).all(|_| health.on_answer(false, 3 * S).is_none()));
        health.on_isolation_probe(3 * S, true);
        assert_eq!(health.condition, Condition::Isolated);
        assert!((0..15).all(|_| health.on_answer(false, 3 * S).is_none()));
        assert_eq!(health.condition, Condition::Probation);
        assert_eq!(health.on_answer(false, 3 * S), Some(Input::Reinstated));
        health.on_up(4 * S, Input::Reinstated);
        assert!(health.is_healthy());
    }

    #[test]
    fn an_isolated_path_returns_at_once_if_it_is_alone() {
        let mut health = up();
        health.on_failure(2 * S, S, Input::Corrupt);
        assert_eq!(health.on_answer(true, 3 * S), Some(Input::Reinstated));
    }

    #[test]
    fn only_the_first_refusal_is_news() {
        let mut health = up();
        assert!(health.on_refusal() && !health.on_refusal() && health.is_refused());
        health.forget_refusals();
        assert!(!health.is_refused());
    }
}
