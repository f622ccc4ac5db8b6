//! Parameters of data calls without their buffers, and the engine's requests with these.

use crate::abi::*;
use crate::ops::flags::INJECT;
use marline_engine::{IoVec, OpFlags, RecvReq, SendReq};
use std::ffi::c_void;
use std::ptr::null_mut;

/// The kind of access to the memory of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The parameters of a send without its payload.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing {
    pub dest: fi_addr_t,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub context: *mut c_void,
    pub flags: OpFlags,
}

/// The parameters of a receive without its buffers.
#[derive(Clone, Copy)]
pub(crate) struct Incoming {
    pub source: fi_addr_t,
    pub tag: Option<(u64, u64)>,
    pub context: *mut c_void,
    pub flags: OpFlags,
}

impl Incoming {
    /// Replaces the endpoint's default options.
    pub(crate) fn with(self, flags: OpFlags) -> Incoming {
        Incoming { flags, ..self }
    }

    /// The engine's request; `undirected` is all ones to receive from any source.
    #[inline]
    pub(crate) fn request(self, iov: &[IoVec], undirected: u64) -> RecvReq<'_> {
        RecvReq {
            source: self.source | undirected,
            iov,
            tag: self.tag,
            context: self.context as usize,
            flags: self.flags,
        }
    }
}

impl Outgoing {
    /// Replaces the endpoint's default options.
    #[inline]
    pub(crate) fn with(self, flags: OpFlags) -> Outgoing {
        Outgoing { flags, ..self }
    }

    /// The engine's request.
    #[inline]
    pub(crate) fn request(self, iov: &[IoVec]) -> SendReq<'_> {
        SendReq {
            dest: self.dest,
            iov,
            tag: self.tag,
            data: self.data,
            context: self.context as usize,
            flags: self.flags,
        }
    }

    /// Parameters of `fi_inject` and its variants: the buffer is free on return, no completion is
    /// reported.
    #[inline]
    pub(crate) fn injected(dest: fi_addr_t, tag: Option<u64>, data: Option<u64>) -> Outgoing {
        let (context, flags) = (null_mut(), INJECT);
        Outgoing {
            dest,
            tag,
            data,
            context,
            flags,
        }
    }
}
