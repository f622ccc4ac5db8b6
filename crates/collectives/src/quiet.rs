//! This library's own calls on a communicator of the program's do not call the program's error
//! handler.

use crate::mpi::{Handle, Mpi};

/// Errors of a communicator are returned as long as this lives. Other threads have their errors
/// returned as well meanwhile.
pub struct Quiet<'a> {
    mpi: &'a Mpi,
    comm: Handle,
    handler: Handle,
}

impl Quiet<'_> {
    /// Has errors returned on a communicator whose handler does not end the job; `None`: the
    /// handler ends the job, and stays.
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
