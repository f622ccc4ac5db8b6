//! Opens a domain, and lists the functions that open all other objects in a domain.

use crate::abi::*;
use crate::addresses::Form;
use crate::base::boundary::{guard_free, Errno, Health};
use crate::base::log::{self, trace};
use crate::base::object::{self, absent};
use crate::base::settings;
use crate::info::addrs;
use crate::objects::domain::{lock_open, Domain, DomainShared, Keys};
use crate::objects::{av_open, ep_open, fabric, mr};
use crate::queues::{cntr, cq, poll};
use marline_codes::Code;
use marline_engine::Engine;
use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::sync::Arc;

static OPS: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: av_open::open,
    cq_open: cq::open,
    endpoint: ep_open::open,
    scalable_ep: absent,
    cntr_open: cntr::open,
    poll_open: poll::open,
    stx_ctx: absent,
    srx_ctx: absent,
    query_atomic: crate::ops::atomic::query,
    query_collective: absent,
    endpoint2: absent,
    xpu_ctx: absent,
};

static MR_OPS: fi_ops_mr = fi_ops_mr {
    size: size_of::<fi_ops_mr>(),
    reg: mr::reg,
    regv: mr::regv,
    regattr: mr::regattr,
};

/// The table that identifies Marline's domains.
pub(crate) fn ops() -> *const fi_ops_domain {
    &OPS
}

/// `fi_domain`: opens the engine.
pub(crate) unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    guard_free(|| {
        log::refresh();
        if info.is_null() || out.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: fabric is ours, info valid; mr_mode is a field of every version.
        let (parent, api_version, mr_mode, format) = unsafe {
            let (parent, api_version) = fabric::of(fabric);
            let attr = (*info).domain_attr;
            (
                parent,
                api_version,
                if attr.is_null() { 0 } else { (*attr).mr_mode },
                (*info).addr_format,
            )
        };
        trace!("domain open, API version {api_version:#x}, mr_mode {mr_mode:#x}");
        let form = Form::of(format).ok_or(Errno::INVAL)?;
        let shared = Arc::new(DomainShared {
            form,
            // SAFETY: as above.
            engine: unsafe { open_engine(info) }?,
            health: Health::default(),
            api_version,
            mr_mode,
            keys: Keys::default(),
            fabric: parent,
        });
        lock_open().push(shared.clone());
        let domain = Domain {
            fid: fid_domain {
                fid: object::header::<Domain>(context),
                ops: &OPS,
                mr: &MR_OPS,
            },
            shared,
        };
        // SAFETY: `out` was checked.
        unsafe { object::give(domain, out) };
        Ok(0)
    })
}

/// # Safety
/// `info` is valid.
unsafe fn open_engine(info: *const fi_info) -> Result<Engine, Errno> {
    settings::warn_once();
    // SAFETY: the caller's promise.
    let settings = unsafe { addrs::settings_for(info) }.map_err(|why| {
        log::warn(Code::SettingWrong, &format!("settings: {why}"));
        Errno::INVAL
    })?;
    log::info(&format!("settings in force:\n{}", settings.show()));
    Engine::open(settings, log::sink()).map_err(|why| {
        log::warn(Code::CannotStart, &format!("cannot start: {why}"));
        Errno::NODEV
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::domain::close_all;
    use marline_engine::settings::Settings;
    use marline_engine::LogSink;
    use std::mem::zeroed;
    use std::ptr::{null, null_mut};
    use std::sync::mpsc::channel;

    /// Seconds after which a signal ends a child that hangs.
    const HANGS_S: u32 = 20;

    /// A domain whose one rail is the loopback interface.
    fn domain() -> Domain {
        let lookup = |name: &str| (name == "rails").then(|| "lo".to_owned());
        let settings = Settings::from_lookup(lookup).unwrap();
        let engine = Engine::open(settings, LogSink(Arc::new(|_, _| ()))).unwrap();
        let shared = Arc::new(DomainShared {
            engine,
            health: Health::default(),
            api_version: 0,
            mr_mode: 0,
            form: Form::default(),
            keys: Keys::default(),
            fabric: Arc::default(),
        });
        lock_open().push(shared.clone());
        let fid = object::header::<Domain>(null_mut());
        Domain {
            fid: fid_domain {
                fid,
                ops: &OPS,
                mr: &MR_OPS,
            },
            shared,
        }
    }

    /// A forked child closes its parent's domain, then the library is unloaded. Returns 0 unless
    /// the child hangs or frees the engine.
    fn in_a_child(domain: *mut Domain) -> c_int {
        // SAFETY: the child closes its copy of the parent's domain, which may take no lock there,
        // and exits without running anything else. The parent still owns its own copy.
        unsafe {
            let shared = Arc::downgrade(&(*domain).shared);
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                libc::alarm(HANGS_S);
                marline_engine::mark_forked();
                drop(Box::from_raw(domain));
                close_all();
                libc::_exit((shared.strong_count() != 1) as c_int);
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        }
    }

    /// Forks while another thread of the parent opens or closes a domain, holding the lock. The
    /// child must free nothing of the engine, whose progress thread may have stopped anywhere.
    #[test]
    fn a_forked_child_closes_its_parents_domain_without_the_lock_and_frees_nothing_of_it() {
        let domain = domain();
        let shared = Arc::downgrade(&domain.shared);
        let domain = Box::into_raw(Box::new(domain));
        assert_eq!(in_a_child(domain), 0);
        let (locked, is_locked) = channel();
        let (let_go, may_go) = channel::<()>();
        let other = std::thread::spawn(move || {
            let _open = lock_open();
            locked.send(()).unwrap();
            let _ = may_go.recv(); // also ends when the other half is dropped
        });
        is_locked.recv().unwrap();
        assert_eq!(in_a_child(domain), 0, "while a thread has the lock");
        drop(let_go);
        other.join().unwrap();
        // SAFETY: made by `Box::into_raw`.
        drop(unsafe { Box::from_raw(domain) });
        assert_eq!(shared.strong_count(), 0);
    }

    /// The progress thread panics while the application waits.
    #[test]
    fn waits_fail_after_a_panic_of_the_progress_thread() {
        let mut domain = domain();
        let engine = domain.shared.engine.clone();
        // SAFETY: objects of this domain, used as the libfabric headers say, and closed at the end.
        unsafe {
            let (mut cq, mut cntr) = (null_mut(), null_mut());
            let mut cq_attr: fi_cq_attr = zeroed();
            let mut cntr_attr: fi_cntr_attr = zeroed();
            let of = &raw mut domain.fid;
            assert_eq!(cq::open(of, &mut cq_attr, &mut cq, null_mut()), 0);
            assert_eq!(cntr::open(of, &mut cntr_attr, &mut cntr, null_mut()), 0);
            let mut entry: fi_cq_tagged_entry = zeroed();
            let to = (&raw mut entry).cast();
            let ops = (*cq).ops;
            let errno = |e: Errno| -(e.0 as isize);
            assert_eq!(((*ops).read)(cq, to, 1), errno(Errno::AGAIN));
            let panics = move || engine.inspect(|_| panic!("on purpose"));
            assert!(std::thread::spawn(panics).join().is_err());
            assert_eq!(((*ops).read)(cq, to, 1), errno(Errno::OTHER));
            let for_ever = -1;
            let slept = ((*ops).sread)(cq, to, 1, null(), for_ever);
            assert_eq!(slept, errno(Errno::OTHER));
            let counted = ((*(*cntr).ops).wait)(cntr, 1, for_ever);
            assert_eq!(counted as isize, errno(Errno::OTHER));
            for fid in [cq.cast::<fid>(), cntr.cast()] {
                assert_eq!(((*(*fid).ops).close)(fid), 0);
            }
        }
    }
}
