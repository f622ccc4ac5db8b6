//! Finds the ways to peers, on a thread of its own: over Ethernet the kernel asks for the address
//! of a card and waits up to a second for an answer that a dead host does not give.

use super::shared::{Notice, Shared, WayName};
use crate::sys::verbs::{AddressHandle, Path};
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A question: the name that the answer bears, and the path.
type Question = (WayName, Path);

/// The thread, begun when it is first asked.
pub(super) struct Resolver {
    shared: Arc<Shared>,
    thread: Option<(Sender<Question>, JoinHandle<()>)>,
}

impl Resolver {
    pub(super) fn new(shared: Arc<Shared>) -> Resolver {
        let thread = None;
        Resolver { shared, thread }
    }

    /// Finds the way to a peer; a notice with this name tells of it.
    pub(super) fn ask(&mut self, name: WayName, path: Path) {
        if self.thread.is_none() {
            self.begin();
        }
        let asked = self
            .thread
            .as_ref()
            .map(|(sender, _)| sender.send((name, path)));
        if !matches!(asked, Some(Ok(()))) {
            answer(&self.shared, name, &path); // without a thread: here
        }
    }

    fn begin(&mut self) {
        let (sender, receiver) = channel::<Question>();
        let shared = self.shared.clone();
        let run = move || {
            while let Ok((name, path)) = receiver.recv() {
                answer(&shared, name, &path);
            }
        };
        let thread = std::thread::Builder::new().name("marline-verbs".to_owned());
        self.thread = thread.spawn(run).ok().map(|thread| (sender, thread));
    }
}

fn answer(shared: &Shared, name: WayName, path: &Path) {
    let found = AddressHandle::new(&shared.domain, path);
    shared.note_and_wake(Notice::Resolved(name, found));
}

impl Drop for Resolver {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            // Its code may be unloaded after this.
            let _ = thread.join();
        }
    }
}
