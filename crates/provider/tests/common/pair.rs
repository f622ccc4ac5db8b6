//! Two endpoints of one domain, opened as libfabric's inline functions do.

use super::Library;
use crate::abi::ep::*;
use crate::abi::*;
use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

/// A timeout that only a hang reaches.
pub const HANG: Duration = Duration::from_secs(30);
pub const API: u32 = fi_version_of(1, 20);

/// A domain and two endpoints with one queue; address 0 is the first endpoint, 1 the second.
pub struct Pair {
    pub fabric: *mut fid_fabric,
    pub domain: *mut fid_domain,
    pub cq: *mut fid_cq,
    pub av: *mut fid_av,
    pub counter: *mut fid_cntr,
    pub ep: [*mut fid_ep; 2],
    _library: Library,
}

/// A completion with its source.
pub type Entry = (fi_cq_tagged_entry, fi_addr_t);

impl Pair {
    pub fn open() -> Pair {
        Pair::with(API, FI_AV_TABLE)
    }

    /// With this API version and type of address vector.
    pub fn with(api: u32, av_type: c_int) -> Pair {
        Pair::waiting(api, av_type, [FI_WAIT_NONE, FI_WAIT_UNSPEC])
    }

    /// With these wait objects for the queue and the counter.
    pub fn waiting(api: u32, av_type: c_int, wait_objs: [c_int; 2]) -> Pair {
        let p = Pair::opened(api, av_type, wait_objs, |_| ());
        // SAFETY: objects of the provider.
        unsafe { p.exchange_names() };
        p
    }

    /// With these capabilities.
    pub fn offering(caps: u64) -> Pair {
        let p = Pair::strangers(|hints| hints.caps = caps);
        // SAFETY: objects of the provider.
        unsafe { p.exchange_names() };
        p
    }

    /// With hints changed by `ask`; no addresses are inserted.
    pub fn strangers(ask: impl FnOnce(&mut fi_info)) -> Pair {
        Pair::opened(API, FI_AV_TABLE, [FI_WAIT_NONE, FI_WAIT_UNSPEC], ask)
    }

    fn opened(
        api: u32,
        av_type: c_int,
        wait_objs: [c_int; 2],
        ask: impl FnOnce(&mut fi_info),
    ) -> Pair {
        let library = Library::open();
        // SAFETY: all zero is what `fi_allocinfo` gives.
        let mut hints: fi_info = unsafe { zeroed() };
        ask(&mut hints);
        let info = library.getinfo(api, &hints).unwrap();
        let fabric = library.fabric(api);
        // SAFETY: objects of the provider, used as the libfabric headers say.
        unsafe {
            (*(*info).tx_attr).op_flags = FI_COMPLETION;
            (*(*info).rx_attr).op_flags = FI_COMPLETION;
            let mut p = Pair {
                fabric,
                domain: null_mut(),
                cq: null_mut(),
                av: null_mut(),
                counter: null_mut(),
                ep: [null_mut(); 2],
                _library: library,
            };
            let rc = ((*(*fabric).ops).domain)(fabric, info, &mut p.domain, null_mut());
            assert_eq!(rc, 0, "fi_domain");
            let ops = &*(*p.domain).ops;
            let mut cq_attr: fi_cq_attr = zeroed();
            cq_attr.format = FI_CQ_FORMAT_TAGGED;
            cq_attr.wait_obj = wait_objs[0];
            assert_eq!(
                (ops.cq_open)(p.domain, &mut cq_attr, &mut p.cq, null_mut()),
                0
            );
            let mut av_attr: fi_av_attr = zeroed();
            av_attr.type_ = av_type;
            assert_eq!(
                (ops.av_open)(p.domain, &mut av_attr, &mut p.av, null_mut()),
                0
            );
            let mut cntr_attr: fi_cntr_attr = zeroed();
            cntr_attr.wait_obj = wait_objs[1];
            assert_eq!(
                (ops.cntr_open)(p.domain, &mut cntr_attr, &mut p.counter, null_mut()),
                0
            );
            for i in 0..2 {
                assert_eq!((ops.endpoint)(p.domain, info, &mut p.ep[i], null_mut()), 0);
                p.bind_and_enable(p.ep[i].cast());
            }
            super::free_info(info);
            p
        }
    }

    pub unsafe fn bind_and_enable(&self, ep: *mut fid) {
        // SAFETY: objects of the provider.
        unsafe {
            let ops = &*(*ep).ops;
            let flags = FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION;
            assert_eq!((ops.control)(ep, FI_ENABLE, null_mut()), -267, "FI_ENOAV");
            assert_eq!((ops.bind)(ep, self.av.cast(), 0), 0);
            assert_eq!((ops.control)(ep, FI_ENABLE, null_mut()), -263, "FI_ENOCQ");
            assert_eq!((ops.bind)(ep, self.cq.cast(), flags), 0);
            assert_eq!((ops.bind)(ep, self.counter.cast(), FI_READ | FI_WRITE), 0);
            assert_eq!((ops.control)(ep, FI_ENABLE, null_mut()), 0);
        }
    }

    /// As Open MPI: first the length, then all names in one insertion.
    pub unsafe fn exchange_names(&self) {
        let mut names = [0u8; 128];
        let mut addresses = [9 as fi_addr_t; 2];
        // SAFETY: objects of the provider and buffers of the sizes named.
        unsafe {
            for (i, ep) in self.ep.into_iter().enumerate() {
                let getname = (*(*ep).cm).getname;
                let mut len = 0;
                assert_eq!(
                    getname(ep.cast(), null_mut(), &mut len),
                    -257,
                    "FI_ETOOSMALL"
                );
                assert_eq!(len, 64);
                let room = names[i * 64..].as_mut_ptr().cast();
                assert_eq!(getname(ep.cast(), room, &mut len), 0);
            }
            let av = &*(*self.av).ops;
            let all = names.as_ptr().cast();
            let n = (av.insert)(self.av, all, 2, addresses.as_mut_ptr(), 0, null_mut());
            assert_eq!((n, addresses), (2, [0, 1]));
            let (mut back, mut len) = ([0u8; 64], 64);
            assert_eq!(
                (av.lookup)(self.av, 1, back.as_mut_ptr().cast(), &mut len),
                0
            );
            assert_eq!((&back[..], len), (&names[64..], 64));
        }
    }

    pub fn tagged(&self) -> &fi_ops_tagged {
        // SAFETY: tables are static.
        unsafe { &*(*self.ep[0]).tagged }
    }

    pub fn msg(&self) -> &fi_ops_msg {
        // SAFETY: tables are static.
        unsafe { &*(*self.ep[0]).msg }
    }

    /// Reads at most one entry.
    pub fn poll(&self) -> Result<Entry, isize> {
        // SAFETY: an entry of the queue's format.
        unsafe {
            let mut entry: fi_cq_tagged_entry = zeroed();
            let mut source = 0;
            let to = (&raw mut entry).cast();
            match ((*(*self.cq).ops).readfrom)(self.cq, to, 1, &mut source) {
                1 => Ok((entry, source)),
                0 => panic!("fi_cq_read must never return 0"),
                error => Err(error),
            }
        }
    }

    /// Waits for one entry.
    pub fn entry(&self) -> Entry {
        let start = Instant::now();
        loop {
            match self.poll() {
                Ok(entry) => return entry,
                Err(e) if e == -(libc::EAGAIN as isize) => {}
                Err(e) => panic!("cq_read {e}"),
            }
            assert!(start.elapsed() < HANG, "no completion");
        }
    }

    /// Waits for one error entry.
    pub fn error(&self) -> fi_cq_err_entry {
        self.error_into(&mut [])
    }

    /// Waits for one error entry; its data goes into `room`, unless that is empty.
    pub fn error_into(&self, room: &mut [u8]) -> fi_cq_err_entry {
        let start = Instant::now();
        while self.poll().err() != Some(-259) {
            assert!(start.elapsed() < HANG, "no error entry");
        }
        // SAFETY: an entry in the layout of API version 1.20.
        unsafe {
            let mut entry: fi_cq_err_entry = zeroed();
            if !room.is_empty() {
                (entry.err_data, entry.err_data_size) = (room.as_mut_ptr().cast(), room.len());
            }
            let readerr = (*(*self.cq).ops).readerr;
            assert_eq!(readerr(self.cq, &mut entry, 0), 1);
            assert_eq!(readerr(self.cq, &mut entry, 0), -(libc::EAGAIN as isize));
            entry
        }
    }

    pub fn trecv(&self, buf: &mut [u8], tag: u64, ignore: u64, context: usize) {
        let (ep, source) = (self.ep[1], FI_ADDR_UNSPEC);
        let (to, len, context) = (buf.as_mut_ptr().cast(), buf.len(), context as *mut c_void);
        // SAFETY: the caller keeps the buffer until the entry is read.
        let rc =
            unsafe { (self.tagged().recv)(ep, to, len, null_mut(), source, tag, ignore, context) };
        assert_eq!(rc, 0);
    }

    pub fn tinject(&self, body: &[u8], tag: u64) {
        let (from, len) = (body.as_ptr().cast(), body.len());
        // SAFETY: the buffer is free when the call returns.
        let rc = unsafe { (self.tagged().inject)(self.ep[0], from, len, 1, tag) };
        assert_eq!(rc, 0);
    }

    pub fn trecvmsg(&self, buf: &mut [u8], tag: u64, context: usize, flags: u64) -> isize {
        let iov = libc::iovec {
            iov_base: buf.as_mut_ptr().cast(),
            iov_len: buf.len(),
        };
        let msg = fi_msg_tagged {
            // Peeks of Open MPI and MPICH pass no iovec.
            msg_iov: if buf.is_empty() { null() } else { &iov },
            desc: null_mut(),
            iov_count: usize::from(!buf.is_empty()),
            addr: FI_ADDR_UNSPEC,
            tag,
            ignore: 0,
            context: context as *mut c_void,
            data: 0,
        };
        // SAFETY: as for `trecv`.
        unsafe { (self.tagged().recvmsg)(self.ep[1], &msg, flags) }
    }

    pub fn close(self) {
        // SAFETY: objects of the provider, each closed once.
        unsafe {
            assert_eq!(
                super::close(self.cq.cast()),
                -libc::EBUSY,
                "an endpoint uses it"
            );
            for ep in self.ep {
                assert_eq!(super::close(ep.cast()), 0);
            }
            // Open MPI's order.
            assert_eq!(super::close(self.av.cast()), 0);
            assert_eq!(super::close(self.cq.cast()), 0);
            assert_eq!(
                super::close(self.domain.cast()),
                -libc::EBUSY,
                "the counter is open"
            );
            assert_eq!(super::close(self.counter.cast()), 0);
            assert_eq!(super::close(self.domain.cast()), 0);
            assert_eq!(super::close(self.fabric.cast()), 0);
        }
    }
}
