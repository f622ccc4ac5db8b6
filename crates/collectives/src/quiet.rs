//! This library's own calls on a communicator of the program's do not call the program's error
//! handler.

use crate::mpi::{Handle, Mpi};

/// While this exists, errors of a communicator are returned, also to other threads.
pub struct Quiet<'a> {
    mpi: &'a Mpi,
    comm: Handle,
    handler: Handle,
}

impl Quiet<'_> {
    /// Makes errors be returned on a communicator whose handler does not end the job; `None`: the
    /// handler ends the job, and is left in place.
    pub fn of(mpi: &Mpi, comm: Handle) -> Option<Quiet<'_>> {
        let handler = mpi
            .handler(comm)
            .filter(|handler| !mpi.ends_job(*handler))?;
        mpi.set_handler(comm, mpi.handlers().returns);
        Some(Quiet { mpi, comm, handler })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.mpi.set_handler(self.comm, self.handler);
        self.mpi.release_handler(self.handler);
    }
}
