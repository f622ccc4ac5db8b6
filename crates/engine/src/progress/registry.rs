//! Whom the progress thread looks after, and that it runs exactly while there is somebody.
//! `tests/shuttle.rs` tries orders of this file's steps.

use crate::platform::sync::{
    Arc, AtomicBool, AtomicU32, JoinHandle, Mutex, MutexGuard, Ordering, PoisonError, Weak,
};

/// The members and their thread.
pub(crate) struct Registry<M> {
    /// Held while members come and go: somebody who joins while the last one leaves must not
    /// take the thread that is about to end for theirs. The thread itself never locks it.
    thread: Mutex<Option<JoinHandle<()>>>,
    members: Mutex<Vec<Weak<M>>>,
    /// How many have joined, ever.
    joined: AtomicU32,
    stop: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M> Registry<M> {
    /// Nobody, and no thread.
    pub fn new() -> Registry<M> {
        Registry {
            thread: Mutex::new(None),
            members: Mutex::new(Vec::new()),
            joined: AtomicU32::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Adds a member, and has `start` start the thread if there is none.
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

    /// Takes a member out. The last one ends the thread: `wake` wakes it, to look at `is_over`.
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

    /// The members that still live.
    pub fn members(&self) -> Vec<Arc<M>> {
        lock(&self.members)
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// How many have joined, ever: taken before `members`, it tells later whether there are more.
    pub fn joined(&self) -> u32 {
        self.joined.load(Ordering::SeqCst)
    }

    /// The thread is to end.
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}
