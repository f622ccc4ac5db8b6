//! The engine's handle, which API layers call. Every method may be called from any thread.

use crate::api::{
    flag, AtomicReq, AvId, Completion, Counted, Counter, CqId, EpId, FiAddr, IoVec, LogSink,
    RecvReq, Region, RemoteReq, SendReq, SubmitError,
};
use crate::config::settings::Settings;
use crate::core::{Core, CoreConfig};
use crate::memory::op_table::SendOp;
use crate::platform::bell::Bell;
use crate::platform::sync::{Arc, Ordering};
use crate::platform::system::System;
use crate::progress::process::{self, Process};
use crate::progress::shared::{Parts, Shared};
use marline_auth::JobKey;
use marline_codes::Code;
use marline_rails::InterfaceChange;
use marline_wire::Address;

/// One Marline engine: the rails, protocol and lock of one libfabric domain. Clones are handles to
/// the same engine.
pub struct Engine<S: System = Process> {
    pub(crate) shared: Arc<Shared<S>>,
}

impl<S: System> Clone for Engine<S> {
    fn clone(&self) -> Engine<S> {
        let shared = self.shared.clone();
        Engine { shared }
    }
}

/// Most consecutive reads served from a queue's entries before the sockets are polled.
const SKIPS_MAX: u32 = 8;
/// Nanoseconds for which a blocking wait polls before it sleeps: a sleep costs 20 us.
const SPIN_NS: u64 = 50_000;
/// Longest single sleep in nanoseconds: another thread may take the packets that would end the
/// sleep.
const SLEEP_MAX_NS: u64 = 1_000_000;

impl Engine<Process> {
    /// Opens the rails and starts (or joins) the process's progress thread. Errors are texts for
    /// the user: the cause, the rail, the remedy.
    pub fn open(settings: Settings, log: LogSink) -> Result<Engine, String> {
        let shared = Arc::new(Shared::open(&settings, log)?);
        if settings.progress_thread {
            process::join(&shared)?;
        }
        Ok(Engine { shared })
    }

    /// Closes this use of the engine; the last close joins the thread. Close the endpoints first.
    pub fn close(&self) {
        if !self.shared.is_forked() {
            process::leave(&self.shared);
            self.shared.end_workers();
            self.shared.publish_last();
        }
    }
}

impl<S: System> Engine<S> {
    /// Builds an engine on another system, without a thread: the caller drives it by `thread_turn`.
    pub fn assemble(cfg: CoreConfig, parts: Parts<S>) -> Engine<S> {
        let shared = Arc::new(Shared::new(cfg, parts));
        Engine { shared }
    }

    /// Runs one turn of the progress thread; `rung`: its alarm rang. Returns the time of the next
    /// turn, and whether the rails' descriptors may end the sleep until then.
    pub fn thread_turn(&self, rung: bool) -> (u64, bool) {
        let now = self.shared.clock.now_ns();
        let next = self.shared.work(now, rung);
        (next, self.shared.is_away(now))
    }

    /// Reports a change of a rail's interface, on a system that watches none. Returns whether the
    /// rail continues with it.
    pub fn interface_changed(&self, rail: usize, change: &InterfaceChange) -> bool {
        let now = self.shared.clock.now_ns();
        self.shared.on_change(now, rail, change)
    }

    /// True if calls are refused: after a panic, and in a forked child.
    pub fn is_unusable(&self) -> bool {
        self.shared.usable().is_err()
    }

    /// Runs `look` on the core under the lock.
    pub fn inspect<R>(&self, look: impl FnOnce(&Core<S>) -> R) -> R {
        look(&self.shared.lock())
    }

    /// Gives the job's key to endpoints opened from now on: their packets have tags, and they
    /// discard packets without a valid tag.
    pub fn set_job_key(&self, key: JobKey) {
        self.shared.lock().set_job_key(key);
    }

    /// Opens a completion queue.
    pub fn cq_open(&self) -> CqId {
        self.shared.lock().dir.cq_open()
    }

    /// Closes a queue and drops its entries.
    pub fn cq_close(&self, cq: CqId) {
        if self.shared.is_forked() {
            return;
        }
        self.shared.lock().dir.cq_close(cq);
    }

    /// Rings `bell` for each new entry of a queue, so that an application can sleep until it rings.
    pub fn cq_bell(&self, cq: CqId, bell: std::sync::Arc<Bell>) {
        self.shared.lock().dir.cq_bell(cq, bell);
    }

    /// Makes progress and returns whether a queue is empty.
    pub fn cq_is_empty(&self, cq: CqId) -> bool {
        if self.shared.is_forked() {
            return true;
        }
        self.shared.progress();
        let mut core = self.shared.lock();
        !core.poisoned && core.dir.cq(cq).is_none_or(|queue| queue.is_empty())
    }

    /// True if the engine has a progress thread.
    pub fn is_threaded(&self) -> bool {
        self.shared.threaded
    }

    /// Hands progress over to the thread, for an application that is about to sleep.
    pub fn leave(&self) {
        if !self.shared.is_forked() {
            self.shared.leave();
        }
    }

    /// Makes progress on the whole engine, then moves completions out of a queue. Stops before an
    /// error entry.
    ///
    /// Returns the number of entries written; 0 if there are none, and always 0 in a forked child.
    ///
    /// # Errors
    ///
    /// The first entry is an error (fetch it with `cq_take_error`), or the queue is empty and stays
    /// empty after a panic (`is_unusable`).
    #[allow(clippy::result_unit_err)]
    #[inline]
    pub fn cq_read(&self, cq: CqId, out: &mut [Completion]) -> Result<usize, ()> {
        let shared = &*self.shared;
        if shared.is_forked() {
            return Ok(0);
        }
        // Serves remaining entries without a system call, but polls the sockets after a limit.
        if shared.skips.take() {
            let mut core = shared.lock();
            let taken = core.dir.cq_read(cq, out);
            if taken != Ok(out.len()) {
                shared.skips.end();
            }
            if taken != Ok(0) {
                core.coalescer.ended();
                if core.has_output() {
                    let now = shared.clock.now_ns();
                    core.coalescer.polled(now);
                    core.flush(now);
                }
                return taken;
            }
        }
        let mut core = shared.poll(true);
        let taken = core.dir.cq_read(cq, out);
        if taken == Ok(out.len()) && taken != Ok(0) {
            shared.skips.refill(SKIPS_MAX);
        }
        if taken == Ok(0) && core.poisoned {
            return Err(()); // no more entries will come: report that to the caller
        }
        taken
    }

    /// Called after a poll without packets: true if more packets are likely soon. That is so if
    /// polls since the last call of this function received bytes of long messages and no other
    /// process seems to want the core, or if peers' requests were just served, since the peers are
    /// likely to send more.
    #[inline]
    pub fn expects_more(&self) -> bool {
        let landed = &self.shared.landed;
        let some = landed.load(Ordering::Relaxed);
        if some {
            landed.store(false, Ordering::Relaxed);
        }
        some || self.shared.serve_poll_budget.take()
    }

    /// Takes the error entry at the queue's front.
    pub fn cq_take_error(&self, cq: CqId) -> Option<Completion> {
        self.cq_take_error_from(cq).map(|(entry, _)| entry)
    }

    /// Like [`Engine::cq_take_error`], with the address of an unknown source for `av_insert`.
    pub fn cq_take_error_from(&self, cq: CqId) -> Option<(Completion, Option<[u8; 64]>)> {
        let (entry, stranger) = self.shared.lock().dir.take_error(cq)?;
        self.shared.publish_deaths();
        Some((entry, stranger.map(|address| address.encode().0)))
    }

    /// Ends receives from senders outside the address vector with an error that carries their
    /// address (`FI_SOURCE_ERR`).
    pub fn ep_set_source_err(&self, ep: EpId) {
        if let Some(endpoint) = self.shared.lock().dir.ep(ep) {
            endpoint.source_err = true;
        }
    }

    /// Sleeps until the queue has an entry or the timeout ends (`fi_cq_sread`); negative: no
    /// timeout.
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
                self.shared.progress(); // packets may have come before arming
                if ready() {
                    return;
                }
            }
            let sleep_ns = (end - now).min(SLEEP_MAX_NS);
            self.shared.clock.sleep(&self.shared.fds, sleep_ns);
        }
    }

    /// Opens an address vector of type table: indices of removed addresses are reused.
    pub fn av_open(&self) -> AvId {
        self.shared.lock().dir.av_open(false)
    }

    /// Opens an address vector of type map: indices of removed addresses are never reused.
    pub fn av_open_map(&self) -> AvId {
        self.shared.lock().dir.av_open(true)
    }

    /// Closes an address vector.
    pub fn av_close(&self, av: AvId) {
        if self.shared.is_forked() {
            return;
        }
        if let Some(slot) = self.shared.lock().dir.avs.get_mut(av.0 as usize) {
            *slot = None;
        }
    }

    /// Adds an address; the first gets index 0. A duplicate gets a new index for the same peer.
    pub fn av_insert(&self, av: AvId, blob: &[u8]) -> Result<FiAddr, SubmitError> {
        let mut core = self.shared.usable()?;
        let address = Address::decode(blob).map_err(|why| {
            core.warn(Code::BadAddress, &why.to_string());
            SubmitError::BadAddress
        })?;
        if address.id == 0 {
            core.warn(
                Code::BadAddress,
                "this address has a host and a port, and names nobody there",
            );
            return Err(SubmitError::BadAddress);
        }
        core.check_versions(av, &address)?;
        core.check_key_mark(&address)?;
        core.dir.av_insert(av, address)
    }

    /// Removes an address.
    pub fn av_remove(&self, av: AvId, addr: FiAddr) -> Result<(), SubmitError> {
        self.shared.usable()?.dir.av_remove(av, addr)
    }

    /// The address blob and its length.
    pub fn av_lookup(&self, av: AvId, addr: FiAddr) -> Option<([u8; 64], usize)> {
        self.shared.lock().dir.av_lookup(av, addr)
    }

    /// Opens an endpoint with its own identity, not yet enabled.
    pub fn ep_open(&self) -> Result<EpId, SubmitError> {
        let now = self.shared.clock.now_ns();
        self.shared.usable()?.ep_open(now)
    }

    /// The endpoint's address blob and its length; valid from `ep_open` on.
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

    /// Binds a counter for one kind of completion.
    pub fn ep_bind_counter(&self, ep: EpId, of: Counted, counter: Arc<Counter>) {
        let mut core = self.shared.lock();
        core.counts_messages |= matches!(of, Counted::Sends | Counted::Receives);
        if let Some(endpoint) = core.dir.ep(ep) {
            endpoint.counters[of as usize] = Some(counter);
        }
    }

    /// Enables the endpoint, which needs an address vector.
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

    /// Closes the endpoint: waits for acks of its sends (at most 2 s), sends BYE, and drops posted
    /// receives without completions.
    pub fn ep_close(&self, ep: EpId) {
        self.shared.ep_close(ep);
    }

    /// Posts a send.
    #[inline]
    pub fn send(&self, ep: EpId, req: &SendReq<'_>) -> Result<(), SubmitError> {
        let mut core = self.shared.usable()?;
        let now_please = core.send(ep, req)?;
        let short_poll = core.short_poll_due();
        if now_please || !self.shared.threaded {
            core.flush(self.shared.clock.now_ns());
            core.log_posted();
            drop(core);
        } else {
            self.shared.collect(core);
        }
        if short_poll {
            self.shared.short_poll();
        }
        Ok(())
    }

    /// Posts a receive, peek, claim or discard. The outcome of a peek, even a miss, is a
    /// completion.
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

    /// True if an endpoint has open operations or undelivered messages, for which a fence waits.
    pub fn has_open(&self, ep: EpId) -> bool {
        let mut core = self.shared.lock();
        let remote = core.dir.ep(ep).is_some_and(|e| e.remote_open > 0);
        let sends = |op: &SendOp| op.ep == ep && op.flags & flag::SEND != 0;
        remote || core.ops.sends.any(sends)
    }

    /// Cancels the first posted receive with this context; its entry has `OpError::Cancelled`.
    pub fn cancel(&self, ep: EpId, context: usize) -> Result<(), SubmitError> {
        self.shared.usable()?.cancel(ep, context)
    }

    /// Registers memory for peers to read or to write.
    pub fn mr_open(&self, region: &Region) -> Result<(), SubmitError> {
        let (base, len) = (region.base, region.len);
        self.mr_open_pieces(region, &[IoVec { base, len }])
    }

    /// Registers memory in several pieces, which peers see as contiguous. If peers use virtual
    /// addresses, each access has to stay within one piece or adjacent pieces. The region's base is
    /// that of the first piece, its length the sum of all.
    pub fn mr_open_pieces(&self, region: &Region, pieces: &[IoVec]) -> Result<(), SubmitError> {
        let mut core = self.shared.usable()?;
        core.mr_open(region, pieces)?;
        self.shared.note_open(core.ops.is_open());
        Ok(())
    }

    /// Binds a counter for peers' operations on registered memory: reads, writes, or both for
    /// atomics that fetch and change. Each operation is counted once. There is at most one counter
    /// for each kind.
    pub fn mr_bind_counter(
        &self,
        key: u64,
        counts: [bool; 2],
        counter: &Arc<Counter>,
    ) -> Result<(), SubmitError> {
        self.shared.usable()?.mr_bind_counter(key, counts, counter)
    }

    /// Closes registered memory: afterwards no peer reads or writes it.
    pub fn mr_close(&self, key: u64) {
        // After a panic no packets are sent, so memory is not read; and a forked child must not use
        // the lock.
        let Ok(mut core) = self.shared.usable() else {
            return;
        };
        core.mr_close(self.shared.clock.now_ns(), key);
        self.shared.note_open(core.ops.is_open());
        if core.has_output() {
            core.flush(self.shared.clock.now_ns());
        }
    }

    /// Makes progress without reading a queue, for waits on counters.
    pub fn progress(&self) {
        self.shared.progress();
    }
}
