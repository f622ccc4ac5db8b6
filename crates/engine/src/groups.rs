//! Groups: what doors call. Every method may be called from any thread.

use crate::api::{EpId, GroupEnd, GroupError, GroupId, GroupOpId, GroupSpec};
use crate::engine::Engine;
use crate::platform::sync::{MutexGuard, Ordering};
use crate::platform::system::System;
use crate::progress::shared::Shared;
use crate::state::core::Core;
use crate::state::group_card::GROUP_CARD_LEN;

impl<S: System> Engine<S> {
    fn for_groups(&self) -> Result<MutexGuard<'_, Core<S>>, GroupError> {
        self.shared.usable().map_err(|_| GroupError::Unusable)
    }

    /// The first endpoint that is in use, for doors that have none of their own.
    pub fn first_ep(&self) -> Option<EpId> {
        let core = self.shared.usable().ok()?;
        let mut eps = core.dir.eps.iter().enumerate();
        let in_use = |ep: &Option<_>| {
            ep.as_ref()
                .is_some_and(|e: &crate::state::directory::Endpoint| e.enabled)
        };
        eps.find_map(|(at, ep)| in_use(ep).then_some(EpId(at as u32)))
    }

    /// The card of an endpoint, for others to make a group with it.
    pub fn group_card(&self, ep: EpId) -> Option<[u8; GROUP_CARD_LEN]> {
        self.shared.usable().ok()?.group_card(ep)
    }

    /// Opens a group. Its packets arrive from now on; it is used once its members have heard each
    /// other.
    pub fn group_open(&self, ep: EpId, spec: &GroupSpec<'_>) -> Result<GroupId, GroupError> {
        let now = self.shared.clock.now_ns();
        self.for_groups()?.group_open(now, ep, spec)
    }

    /// Asks whether the network carries the group's packets: others hear it.
    pub fn group_probe(&self, group: GroupId) -> Result<(), GroupError> {
        let now = self.shared.clock.now_ns();
        self.for_groups()?.group_probe(now, group)
    }

    /// Networks of the group on which everybody was heard that has to be, as bits.
    pub fn group_heard(&self, group: GroupId) -> Result<u8, GroupError> {
        self.for_groups()?.group_heard(group)
    }

    /// Uses these networks and no others: those that all members hear.
    pub fn group_start(&self, group: GroupId, networks: u8) -> Result<(), GroupError> {
        self.for_groups()?.group_start(group, networks)
    }

    /// Bytes that roots of the group may have under way, where receive buffers allow only few.
    pub fn group_narrow_window(&self, group: GroupId) -> Result<Option<u64>, GroupError> {
        self.for_groups()?.group_narrow_window(group)
    }

    /// Posts the next broadcast of a group, which all members post in one order: `len` bytes from
    /// `base` if this member is the root, else to there. The memory is lent until the operation has
    /// ended, or the group is closed.
    pub fn group_post(
        &self,
        group: GroupId,
        root: u16,
        base: *mut u8,
        len: usize,
    ) -> Result<GroupOpId, GroupError> {
        let now = self.shared.clock.now_ns();
        let mut core = self.for_groups()?;
        let posted = core.group_post(now, group, root, (base, len));
        self.shared.await_rails(&core);
        posted
    }

    /// How a broadcast ended, told once. `None`: it has not; [`Engine::progress`] makes it.
    pub fn group_test(&self, group: GroupId, op: GroupOpId) -> Option<GroupEnd> {
        let Ok(mut core) = self.shared.usable() else {
            return Some(GroupEnd::Closed);
        };
        let end = core.group_test(group, op);
        if end.is_some() {
            self.shared.await_rails(&core);
        }
        end
    }

    /// Makes progress for a caller that waits for a broadcast: a single look at the rails. To offer
    /// the processor is up to the caller.
    pub fn look(&self) {
        self.shared.look();
    }

    /// Lets another process run if one waits; whether one did.
    pub fn offer(&self) -> bool {
        !self.shared.is_forked() && self.shared.offer()
    }

    /// Sleeps a millisecond, or until something is due, so that packets come together. `false`: it
    /// does not, as a root may wait for what would come meanwhile.
    pub fn doze(&self) -> bool {
        let core = self.shared.usable();
        let dozes = core.is_ok_and(|core| core.groups.may_doze());
        if dozes {
            self.shared.doze();
        }
        dozes
    }

    /// Tells if nothing of the group is under way: whoever leaves before leaves others waiting.
    pub fn group_is_idle(&self, group: GroupId) -> bool {
        let core = self.shared.usable();
        core.map_or(true, |mut core| core.group_is_idle(group))
    }

    /// Ends a group. What has not ended is forgotten, and its memory not used any more.
    pub fn group_close(&self, group: GroupId) {
        if let Ok(mut core) = self.shared.usable() {
            core.group_close(group);
            self.shared.await_rails(&core);
        }
    }
}

impl<S: System> Shared<S> {
    /// Polls look at the rails of what is waited for.
    fn await_rails(&self, core: &Core<S>) {
        self.awaited
            .store(core.groups.awaited_rails(), Ordering::Relaxed);
    }
}
