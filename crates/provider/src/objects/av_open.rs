//! Opens an address vector, with the table of all its functions.

use crate::abi::*;
use crate::base::boundary::Errno;
use crate::base::log::trace;
use crate::base::object::{self, absent};
use crate::objects::av::{self, Av};
use crate::objects::av_names;
use crate::objects::domain::{self, DomainShared};
use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::sync::Arc;

static OPS: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert: av::insert,
    insertsvc: av_names::insertsvc,
    insertsym: av_names::insertsym,
    remove: av::remove,
    lookup: av::lookup,
    straddr: av::straddr,
    av_set: absent,
    insert_auth_key: absent,
    lookup_auth_key: absent,
    set_user_id: absent,
    lookup2: absent,
};

/// `fi_av_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    out: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    let make = |shared: &Arc<DomainShared>| {
        // SAFETY: checked for null.
        unsafe {
            if !(*attr).name.is_null() {
                return Err(Errno::NOSYS); // shared between processes
            }
            if (*attr).flags & (FI_EVENT | FI_AV_USER_ID) != 0 {
                return Err(Errno::NOSYS); // asynchronous insertion, the application's own numbers
            }
            // FI_READ concerns named vectors; FI_SYMMETRIC is a hint.
            if (*attr).flags & !(FI_READ | FI_SYMMETRIC) != 0 {
                return Err(Errno::BADFLAGS);
            }
            match (*attr).type_ {
                FI_AV_UNSPEC => (*attr).type_ = FI_AV_TABLE,
                FI_AV_MAP | FI_AV_TABLE => {}
                _ => return Err(Errno::INVAL),
            }
        }
        // SAFETY: checked for null.
        let id = match unsafe { (*attr).type_ } {
            FI_AV_MAP => shared.engine.av_open_map(),
            _ => shared.engine.av_open(),
        };
        trace!("av open -> {id:?}");
        let fid = object::header::<Av>(context);
        Ok(Av {
            fid: fid_av { fid, ops: &OPS },
            shared: shared.clone(),
            id,
            users: Arc::new(()),
        })
    };
    // SAFETY: the domain is ours.
    unsafe { domain::open_in(domain, attr, out, make) }
}
