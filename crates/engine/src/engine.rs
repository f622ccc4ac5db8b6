//! The engine's handle: what doors call. Every method may be called from any thread.

use crate::api::{
    flag, AtomicReq, AvId, Completion, Counted, Counter, CqId, EpId, FiAddr, IoVec, LogLevel,
    LogSink, RecvReq, Region, RemoteReq, SendReq, SubmitError,
};
use crate::config::settings::Settings;
use crate::memory::op_table::SendOp;
use crate::platform::bell::Bell;
use crate::platform::sync::{Arc, Ordering};
use crate::platform::system::System;
use crate::progress::process::{self, Process};
use crate::progress::shared::{Parts, Shared};
use crate::state::core::{Core, CoreConfig};
use marline_rails::InterfaceChange;
use marline_wire::Address;

/// One Marline engine: the rails, the protocol and the lock of one libfabric domain. Clones are
/// handles to the same engine.
pub struct Engine<S: System = Process> {
    pub(crate) shared: Arc<Shared<S>>,
}

impl<S: System> Clone for Engine<S> {
    fn clone(&self) -> Engine<S> {
        let shared = self.shared.clone();
        Engine { shared }
    }
}

/// A blocking wait polls this long before it sleeps, in nanoseconds: a sleep costs 20 us.
const SPIN_NS: u64 = 50_000;
/// It then sleeps at most this long at a time, as another thread may take its packets.
const NAP_MAX_NS: u64 = 1_000_000;

impl Engine<Process> {
    /// Opens the rails and starts (or joins) the process's progress thread. Errors are texts for
    /// people: what, which rail, what to do.
    pub fn open(settings: Settings, log: LogSink) -> Result<Engine, String> {
        let shared = Arc::new(Shared::open(&settings, log)?);
        if settings.progress_thread {
            process::join(&shared)?;
        }
        Ok(Engine { shared })
    }

    /// Stops using the engine; the last one joins the thread. Endpoints must be closed before.
    pub fn close(&self) {
        if !self.shared.is_forked() {
            process::leave(&self.shared);
            self.shared.end_workers();
            self.shared.publish_last();
        }
    }
}

impl<S: System> Engine<S> {
    /// An engine on another system. Nobody calls its thread: see `thread_turn`.
    pub fn assemble(cfg: CoreConfig, parts: Parts<S>) -> Engine<S> {
        let shared = Arc::new(Shared::new(cfg, parts));
        Engine { shared }
    }

    /// The turn of the progress thread when it wakes; `rung`: its alarm went off. When it wakes
    /// next, and whether the rails' descriptors wake it, too.
    pub fn thread_turn(&self, rung: bool) -> (u64, bool) {
        let now = self.shared.clock.now_ns();
        let next = self.shared.work(now, rung);
        (next, self.shared.is_away(now))
    }

    /// Something has become of the interface of a rail, on a system that nobody watches. Returns
    /// whether the rail goes by it.
    pub fn interface_changed(&self, rail: usize, change: &InterfaceChange) -> bool {
        let now = self.shared.clock.now_ns();
        self.shared.on_change(now, rail, change)
    }

    /// No call may use it any more: after a panic, and in a forked child.
    pub fn is_unusable(&self) -> bool {
        self.shared.usable().is_err()
    }

    /// Looks inside, under the lock.
    pub fn inspect<R>(&self, look: impl FnOnce(&Core<S>) -> R) -> R {
        look(&self.shared.lock())
    }

    /// A new completion queue.
    pub fn cq_open(&self) -> CqId {
        self.shared.lock().dir.cq_open()
    }

    /// Forgets a queue and what is in it.
    pub fn cq_close(&self, cq: CqId) {
        if self.shared.is_forked() {
            return;
        }
        self.shared.lock().dir.cq_close(cq);
    }

    /// Has a queue ring a bell for each entry, so that an application can sleep on it.
    pub fn cq_bell(&self, cq: CqId, bell: std::sync::Arc<Bell>) {
        self.shared.lock().dir.cq_bell(cq, bell);
    }

    /// Makes progress, and tells if nothing is in a queue.
    pub fn cq_is_empty(&self, cq: CqId) -> bool {
        if self.shared.is_forked() {
            return true;
        }
        self.shared.progress();
        let mut core = self.shared.lock();
        !core.poisoned && core.dir.cq(cq).is_none_or(|queue| queue.is_empty())
    }

    /// There is a progress thread.
    pub fn is_threaded(&self) -> bool {
        self.shared.threaded
    }

    /// The application goes to sleep until something rings: the progress thread takes over.
    pub fn leave(&self) {
        if !self.shared.is_forked() {
            self.shared.leave();
        }
    }

    /// The progress call. Makes progress on the whole engine, then moves finished operations out.
    /// Stops before an error entry: `Ok(n)` with n entries written (0: nothing there), or
    /// `Err(())` when the first entry is an error (fetch it with `cq_take_error`), or when nothing
    /// is there and after a panic nothing will be (`is_unusable`). A forked child gets `Ok(0)`.
    #[allow(clippy::result_unit_err)]
    #[inline]
    pub fn cq_read(&self, cq: CqId, out: &mut [Completion]) -> Result<usize, ()> {
        self.shared.cq_read(cq, out)
    }

    /// Tells if more will be there soon, after a poll that brought nothing: bytes of long messages
    /// came by the polls since this was asked last, and nobody else seems to want the processor; or
    /// peers were served just now, and are likely to ask again.
    #[inline]
    pub fn expects_more(&self) -> bool {
        let landed = &self.shared.landed;
        let some = landed.load(Ordering::Relaxed);
        if some {
            landed.store(false, Ordering::Relaxed);
        }
        some || self.shared.serving.take()
    }

    /// The error entry at the queue's front.
    pub fn cq_take_error(&self, cq: CqId) -> Option<Completion> {
        self.cq_take_error_from(cq).map(|(entry, _)| entry)
    }

    /// As [`Engine::cq_take_error`], with the address of an unknown source for `av_insert`.
    pub fn cq_take_error_from(&self, cq: CqId) -> Option<(Completion, Option<[u8; 64]>)> {
        let (entry, stranger) = self.shared.lock().dir.take_error(cq)?;
        self.shared.publish_deaths();
        Some((entry, stranger.map(|address| address.encode().0)))
    }

    /// Has receives from senders that are not in the address vector end with an error that has
    /// their address (`FI_SOURCE_ERR`).
    pub fn ep_tell_strangers(&self, ep: EpId) {
        if let Some(endpoint) = self.shared.lock().dir.ep(ep) {
            endpoint.tells_strangers = true;
        }
    }

    /// Sleeps until the CQ has an entry or the time is over (`fi_cq_sread`); negative: for ever.
    pub fn cq_wait(&self, cq: CqId, timeout_ms: i32) {
        let start = self.shared.clock.now_ns();
        let end = match u64::try_from(timeout_ms) {
            Ok(ms) => start + ms * 1_000_000,
            Err(_) => u64::MAX,
        };
        let ready = || {
            let mut core = self.shared.lock();
            let filled = core.dir.cq(cq).is_none_or(|q| !q.is_empty());
            core.poisoned || filled || self.shared.is_forked()
        };
        loop {
            self.shared.progress();
            let now = self.shared.clock.now_ns();
            if ready() || now >= end {
                return;
            }
            if now <= start + SPIN_NS {
                continue;
            }
            if self.shared.arm() {
                self.shared.progress(); // the last look before the sleep
                if ready() {
                    return;
                }
            }
            let nap_ns = (end - now).min(NAP_MAX_NS);
            self.shared.clock.nap(&self.shared.fds, nap_ns);
        }
    }

    /// A new address vector: a table, whose indices are plain numbers.
    pub fn av_open(&self) -> AvId {
        self.shared.lock().dir.av_open(false)
    }

    /// A new address vector: a map, in which no index stands for a second address after its own
    /// was removed.
    pub fn av_open_map(&self) -> AvId {
        self.shared.lock().dir.av_open(true)
    }

    /// Forgets an address vector.
    pub fn av_close(&self, av: AvId) {
        if self.shared.is_forked() {
            return;
        }
        if let Some(slot) = self.shared.lock().dir.avs.get_mut(av.0 as usize) {
            *slot = None;
        }
    }

    /// Adds an address; the first gets 0. Duplicates get a new index for the same peer.
    pub fn av_insert(&self, av: AvId, blob: &[u8]) -> Result<FiAddr, SubmitError> {
        let mut core = self.shared.usable()?;
        let address = Address::decode(blob).map_err(|why| {
            core.say(LogLevel::Warn, &why.to_string());
            SubmitError::BadAddress
        })?;
        if address.id == 0 {
            core.say(
                LogLevel::Warn,
                "this address has a host and a port, and names nobody there",
            );
            return Err(SubmitError::BadAddress);
        }
        core.dir.av_insert(av, address)
    }

    /// Forgets an address.
    pub fn av_remove(&self, av: AvId, addr: FiAddr) -> Result<(), SubmitError> {
        self.shared.usable()?.dir.av_remove(av, addr)
    }

    /// The blob and its length.
    pub fn av_lookup(&self, av: AvId, addr: FiAddr) -> Option<([u8; 64], usize)> {
        self.shared.lock().dir.av_lookup(av, addr)
    }

    /// A new endpoint with its own identity, not yet enabled.
    pub fn ep_open(&self) -> Result<EpId, SubmitError> {
        let now = self.shared.clock.now_ns();
        self.shared.usable()?.ep_open(now)
    }

    /// Its address blob and length; valid from `ep_open` on.
    pub fn ep_name(&self, ep: EpId) -> Option<([u8; 64], usize)> {
        self.shared.lock().ep_name(ep)
    }

    /// Binds an address vector.
    pub fn ep_bind_av(&self, ep: EpId, av: AvId) {
        if let Some(endpoint) = self.shared.lock().dir.ep(ep) {
            endpoint.av = Some(av);
        }
    }

    /// Binds the queue of sends and reads.
    pub fn ep_bind_tx_cq(&self, ep: EpId, cq: CqId) {
        if let Some(endpoint) = self.shared.lock().dir.ep(ep) {
            endpoint.tx_cq = Some(cq);
        }
    }

    /// Binds the queue of receives.
    pub fn ep_bind_rx_cq(&self, ep: EpId, cq: CqId) {
        if let Some(endpoint) = self.shared.lock().dir.ep(ep) {
            endpoint.rx_cq = Some(cq);
        }
    }

    /// Binds the counter of what ends at this endpoint.
    pub fn ep_bind_counter(&self, ep: EpId, of: Counted, counter: Arc<Counter>) {
        let mut core = self.shared.lock();
        core.counts_messages |= matches!(of, Counted::Sends | Counted::Receives);
        if let Some(endpoint) = core.dir.ep(ep) {
            endpoint.counters[of as usize] = Some(counter);
        }
    }

    /// Makes the endpoint usable. It needs an address vector.
    pub fn ep_enable(&self, ep: EpId) -> Result<(), SubmitError> {
        let mut core = self.shared.usable()?;
        let endpoint = core.dir.ep(ep).ok_or(SubmitError::Invalid)?;
        endpoint.enabled = endpoint.av.is_some();
        if endpoint.enabled {
            Ok(())
        } else {
            Err(SubmitError::Invalid)
        }
    }

    /// Free space below which a multi-receive buffer is released (`FI_OPT_MIN_MULTI_RECV`).
    pub fn ep_set_min_multi_recv(&self, ep: EpId, bytes: usize) {
        if let Some(endpoint) = self.shared.lock().dir.ep(ep) {
            endpoint.min_multi = bytes as u64;
        }
    }

    /// Drains own sends (at most 2 s), says BYE, drops posted receives without completions.
    pub fn ep_close(&self, ep: EpId) {
        self.shared.ep_close(ep);
    }

    /// Posts a send.
    #[inline]
    pub fn send(&self, ep: EpId, req: &SendReq<'_>) -> Result<(), SubmitError> {
        let mut core = self.shared.usable()?;
        let (now_please, now) = core.send(ep, req, || self.shared.clock.now_ns())?;
        let glance = core.glance_due();
        if now_please || !self.shared.threaded {
            core.flush(now.unwrap_or_else(|| self.shared.clock.now_ns()));
            core.log_posted();
            drop(core);
        } else {
            self.shared.collect(core);
        }
        if glance {
            self.shared.glance();
        }
        Ok(())
    }

    /// Receive, peek, claim, discard. A peek's outcome (also a miss) is a completion.
    #[inline]
    pub fn recv(&self, ep: EpId, req: &RecvReq<'_>) -> Result<(), SubmitError> {
        let mut core = self.shared.usable()?;
        let named = req.source != crate::api::ADDR_UNSPEC;
        let now = if named || core.deferred {
            self.shared.clock.now_ns()
        } else {
            0
        };
        core.recv(now, ep, req)?;
        if core.has_output() {
            let now = self.shared.clock.now_ns();
            core.coalescer.polled(now);
            core.flush(now);
        }
        Ok(())
    }

    /// Posts a remote read.
    pub fn read(&self, ep: EpId, req: &RemoteReq<'_>) -> Result<(), SubmitError> {
        let mut core = self.shared.usable()?;
        core.read(ep, req)?;
        let leaves = core.posted_remote((ep, req.dest), req.iov, false);
        self.shared.flush_or_collect(core, leaves, None);
        Ok(())
    }

    /// Posts a remote write.
    pub fn put(&self, ep: EpId, req: &RemoteReq<'_>) -> Result<(), SubmitError> {
        let mut core = self.shared.usable()?;
        let now = self.shared.clock.now_ns();
        core.put(now, ep, req)?;
        let leaves = core.posted_remote((ep, req.dest), req.iov, true);
        self.shared.flush_or_collect(core, leaves, Some(now));
        Ok(())
    }

    /// Posts an atomic operation.
    pub fn atomic(&self, ep: EpId, req: &AtomicReq<'_>) -> Result<(), SubmitError> {
        let mut core = self.shared.usable()?;
        let now = self.shared.clock.now_ns();
        core.atomic(now, ep, req)?;
        let leaves = core.posted_remote((ep, req.dest), req.operands, true);
        self.shared.flush_or_collect(core, leaves, Some(now));
        Ok(())
    }

    /// Tells if an endpoint has operations that are not over, or messages that are not delivered:
    /// what a fence waits for.
    pub fn has_open(&self, ep: EpId) -> bool {
        let mut core = self.shared.lock();
        let remote = core.dir.ep(ep).is_some_and(|e| e.remote_open > 0);
        let sends = |op: &SendOp| op.ep == ep && op.flags & flag::SEND != 0;
        remote || core.ops.sends.any(sends)
    }

    /// Cancels the first posted receive with this context; its entry is `OpError::Cancelled`.
    pub fn cancel(&self, ep: EpId, context: usize) -> Result<(), SubmitError> {
        self.shared.usable()?.cancel(ep, context)
    }

    /// Registers memory for peers to read, or to write, too.
    pub fn mr_open(&self, region: &Region) -> Result<(), SubmitError> {
        let (base, len) = (region.base, region.len);
        self.mr_open_pieces(region, &[IoVec { base, len }])
    }

    /// Registers memory of several pieces, which peers see as one behind the other; where they name
    /// addresses, in one piece each (or in some without a gap). Base and length of the region are
    /// the first's and of all.
    pub fn mr_open_pieces(&self, region: &Region, pieces: &[IoVec]) -> Result<(), SubmitError> {
        let mut core = self.shared.usable()?;
        core.mr_open(region, pieces)?;
        self.shared.note_open(core.ops.is_open());
        Ok(())
    }

    /// Has a counter count operations of peers on registered memory, each once: those that read it,
    /// and those that write or change it (or both, as atomics that fetch do). There is one at most
    /// for either.
    pub fn mr_bind_counter(
        &self,
        key: u64,
        counts: [bool; 2],
        counter: &Arc<Counter>,
    ) -> Result<(), SubmitError> {
        self.shared.usable()?.mr_bind_counter(key, counts, counter)
    }

    /// Forgets registered memory: nobody reads or writes it after this.
    pub fn mr_close(&self, key: u64) {
        // After a panic nothing is sent any more, so nothing is read; a forked child has no lock.
        let Ok(mut core) = self.shared.usable() else {
            return;
        };
        core.mr_close(self.shared.clock.now_ns(), key);
        self.shared.note_open(core.ops.is_open());
        if core.has_output() {
            core.flush(self.shared.clock.now_ns());
        }
    }

    /// Progress without reading a queue (counter waits).
    pub fn progress(&self) {
        self.shared.progress();
    }
}
