//! Multicast groups for API layers. Every method may be called from any thread.

use crate::api::{EpId, GroupEnd, GroupError, GroupId, GroupOpId, GroupSpec};
use crate::core::Core;
use crate::engine::Engine;
use crate::platform::sync::{MutexGuard, Ordering};
use crate::platform::system::System;
use crate::progress::shared::Shared;
use crate::state::member_descriptor::MEMBER_DESCRIPTOR_LEN;

impl<S: System> Engine<S> {
    fn for_groups(&self) -> Result<MutexGuard<'_, Core<S>>, GroupError> {
        self.shared.usable().map_err(|_| GroupError::Unusable)
    }

    /// The first open endpoint, for API layers without an endpoint of their own.
    pub fn first_ep(&self) -> Option<EpId> {
        let core = self.shared.usable().ok()?;
        let mut eps = core.dir.eps.iter().enumerate();
        let in_use = |ep: &Option<_>| {
            ep.as_ref()
                .is_some_and(|e: &crate::state::directory::Endpoint| e.enabled)
        };
        eps.find_map(|(at, ep)| in_use(ep).then_some(EpId(at as u32)))
    }

    /// The member descriptor of an endpoint, from which other members make a group.
    pub fn member_descriptor(&self, ep: EpId) -> Option<[u8; MEMBER_DESCRIPTOR_LEN]> {
        self.shared.usable().ok()?.member_descriptor(ep)
    }

    /// Opens a group. Its packets arrive from now on; broadcasts follow once its members have heard
    /// each other.
    pub fn group_open(&self, ep: EpId, spec: &GroupSpec<'_>) -> Result<GroupId, GroupError> {
        let now = self.shared.clock.now_ns();
        self.for_groups()?.group_open(now, ep, spec)
    }

    /// Sends a multicast probe, by which other members learn that the network carries the group.
    pub fn group_probe(&self, group: GroupId) -> Result<(), GroupError> {
        let now = self.shared.clock.now_ns();
        self.for_groups()?.group_probe(now, group)
    }

    /// Networks of the group on which all required members were heard, as bits.
    pub fn group_heard(&self, group: GroupId) -> Result<u8, GroupError> {
        self.for_groups()?.group_heard(group)
    }

    /// Restricts the group to these networks, which all members hear.
    pub fn group_start(&self, group: GroupId, networks: u8) -> Result<(), GroupError> {
        self.for_groups()?.group_start(group, networks)
    }

    /// Window of the group's roots in bytes, if receive buffers limit it.
    pub fn group_narrow_window(&self, group: GroupId) -> Result<Option<u64>, GroupError> {
        self.for_groups()?.group_narrow_window(group)
    }

    /// Posts the next broadcast of a group; all members post broadcasts in the same order. Sends
    /// `len` bytes from `base` if this member is the root, otherwise receives them there. The
    /// memory is lent until the operation has ended or the group is closed.
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

    /// Takes the result of a broadcast, once. `None`: not ended; [`Engine::progress`] continues it.
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

    /// Makes progress for a caller that waits for a broadcast: polls the rails once. The caller
    /// decides about yielding.
    pub fn look(&self) {
        self.shared.look();
    }

    /// Lets another process run if one is waiting for the core. Returns whether one ran.
    pub fn yield_cpu(&self) -> bool {
        !self.shared.is_forked() && self.shared.yield_cpu()
    }

    /// Sleeps for a millisecond or until a deadline, so that several packets arrive meanwhile.
    /// `false`: did not sleep, since a root may be waiting for this member.
    pub fn sleep_briefly(&self) -> bool {
        let core = self.shared.usable();
        let sleeps = core.is_ok_and(|core| core.groups.may_sleep());
        if sleeps {
            self.shared.sleep_briefly();
        }
        sleeps
    }

    /// True if no operation of the group is in flight. A member that leaves earlier makes others
    /// wait.
    pub fn group_is_idle(&self, group: GroupId) -> bool {
        let core = self.shared.usable();
        core.map_or(true, |mut core| core.group_is_idle(group))
    }

    /// Closes a group and forgets its open operations; afterwards their memory is no longer used.
    pub fn group_close(&self, group: GroupId) {
        if let Ok(mut core) = self.shared.usable() {
            core.group_close(group);
            self.shared.await_rails(&core);
        }
    }
}

impl<S: System> Shared<S> {
    /// Has every poll cover the rails on which broadcasts are awaited.
    fn await_rails(&self, core: &Core<S>) {
        self.awaited
            .store(core.groups.awaited_rails(), Ordering::Relaxed);
    }
}
