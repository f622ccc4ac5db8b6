//! Makes address handles of peers on a separate thread: over Ethernet the kernel resolves the MAC
//! address, and waits up to a second for the answer of a host that may be dead.

use super::shared::{Notification, Shared, WayName};
use crate::sys::verbs::{AddressHandle, Path};
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A request: the name to return with the answer, and the path.
type Question = (WayName, Path);

/// The thread, started at the first request.
pub(super) struct Resolver {
    shared: Arc<Shared>,
    thread: Option<(Sender<Question>, JoinHandle<()>)>,
}

impl Resolver {
    pub(super) fn new(shared: Arc<Shared>) -> Resolver {
        let thread = None;
        Resolver { shared, thread }
    }

    /// Requests the address handle of a peer; a notice with this name brings the result.
    pub(super) fn ask(&mut self, name: WayName, path: Path) {
        if self.thread.is_none() {
            self.begin();
        }
        let asked = self
            .thread
            .as_ref()
            .map(|(sender, _)| sender.send((name, path)));
        if !matches!(asked, Some(Ok(()))) {
            answer(&self.shared, name, &path); // no thread: resolve here
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
    shared.note_and_wake(Notification::Resolved(name, found));
}

impl Drop for Resolver {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            // The library may be unloaded after this.
            let _ = thread.join();
        }
    }
}
