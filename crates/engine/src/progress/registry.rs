//! The members that the progress thread serves; the thread runs as long as there are members.
//! `tests/shuttle.rs` checks interleavings of this file.

use crate::platform::sync::{
    Arc, AtomicBool, AtomicU32, JoinHandle, Mutex, MutexGuard, Ordering, PoisonError, Weak,
};

/// The members and their thread.
pub(crate) struct Registry<M> {
    /// Locked while members join and leave: a member that joins while the last one leaves must not
    /// rely on the thread that is ending. The thread itself never takes this lock.
    thread: Mutex<Option<JoinHandle<()>>>,
    members: Mutex<Vec<Weak<M>>>,
    /// Number of joins so far.
    joined: AtomicU32,
    stop: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M> Registry<M> {
    /// Creates a registry without members and thread.
    pub fn new() -> Registry<M> {
        Registry {
            thread: Mutex::new(None),
            members: Mutex::new(Vec::new()),
            joined: AtomicU32::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Adds a member; `start` starts the thread if there is none.
    pub fn join<E>(
        &self,
        member: &Arc<M>,
        start: impl FnOnce() -> Result<JoinHandle<()>, E>,
    ) -> Result<(), E> {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            self.stop.store(false, Ordering::SeqCst);
            *thread = Some(start()?);
        }
        lock(&self.members).push(Arc::downgrade(member));
        self.joined.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Removes a member. The last member to leave ends the thread: `wake` wakes it to check
    /// `is_over`.
    pub fn leave(&self, member: &Arc<M>, wake: impl FnOnce()) {
        let mut thread = lock(&self.thread);
        let mut members = lock(&self.members);
        members.retain(|m| m.upgrade().is_some_and(|m| !Arc::ptr_eq(&m, member)));
        let last = members.is_empty();
        drop(members);
        if let Some(handle) = thread.take_if(|_| last) {
            self.stop.store(true, Ordering::SeqCst);
            wake();
            let _ = handle.join();
        }
    }

    /// The members that are still alive.
    pub fn members(&self) -> Vec<Arc<M>> {
        lock(&self.members)
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Number of joins so far. Read this before `members`; a later change shows that members were
    /// added.
    pub fn joined(&self) -> u32 {
        self.joined.load(Ordering::SeqCst)
    }

    /// True if the thread has to end.
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}
