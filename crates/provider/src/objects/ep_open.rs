//! Opens an endpoint, with the tables of all its functions.

use crate::abi::ep::*;
use crate::abi::*;
use crate::addresses::Form;
use crate::base::boundary::Errno;
use crate::base::log::{self, trace};
use crate::base::object::{self, absent};
use crate::info::build;
use crate::info::hints::{caps_of, decide};
use crate::objects::domain::{self, DomainShared};
use crate::objects::ep::{self, Ep};
use crate::objects::ep_ctl;
use crate::ops::messages::{msg, tagged};
use crate::ops::{atomic, rma};
use marline_codes::Code;
use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::sync::Arc;

static OPS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel: ep_ctl::cancel,
    getopt: ep_ctl::getopt,
    setopt: ep_ctl::setopt,
    tx_ctx: absent,
    rx_ctx: absent,
    rx_size_left: absent,
    tx_size_left: absent,
    export_xpu: absent,
};

static COLLECTIVE: fi_ops_collective = fi_ops_collective {
    size: size_of::<fi_ops_collective>(),
    slots: [absent; 11],
};

/// `fi_endpoint`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    info: *mut fi_info,
    out: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    let make = |shared: &Arc<DomainShared>| {
        // SAFETY: checked for null.
        let wanted = unsafe { build::read_hints(shared.api_version, info) };
        decide(&wanted).map_err(|why| {
            let text = format!("fi_endpoint: its fi_info asks for {why}");
            log::warn(Code::HintsRefused, &text);
            Errno::INVAL
        })?;
        if Form::of(wanted.addr_format) == Some(Form::Text) && shared.form != Form::Text {
            let text = "fi_endpoint: its fi_info has FI_ADDR_STR, that of its domain had not";
            log::warn(Code::HintsRefused, text);
            return Err(Errno::INVAL);
        }
        // SAFETY: checked for null; these structs have the same size in every version.
        let (caps, tx_flags, rx_flags) = unsafe {
            let (tx, rx) = ((*info).tx_attr.as_ref(), (*info).rx_attr.as_ref());
            let caps = if (*info).caps == 0 {
                caps_of(wanted.remote)
            } else {
                (*info).caps
            };
            (
                caps,
                tx.map_or(0, |a| a.op_flags),
                rx.map_or(0, |a| a.op_flags),
            )
        };
        let id = shared.engine.ep_open()?;
        if caps & FI_SOURCE_ERR != 0 {
            shared.engine.ep_set_source_err(id);
        }
        trace!("ep open caps {caps:#x} tx {tx_flags:#x} rx {rx_flags:#x} -> {id:?}");
        Ok(ep::new(
            handle(context),
            shared,
            id,
            caps,
            [tx_flags, rx_flags],
        ))
    };
    // SAFETY: the domain is ours.
    unsafe { domain::open_in(domain, info, out, make) }
}

/// The application's handle of an endpoint.
fn handle(context: *mut c_void) -> fid_ep {
    fid_ep {
        fid: object::header::<Ep>(context),
        ops: &OPS,
        cm: &ep_ctl::CM,
        msg: &msg::OPS,
        rma: &rma::OPS,
        tagged: &tagged::OPS,
        atomic: &atomic::OPS,
        collective: &COLLECTIVE,
    }
}
