//! `fid_nic`: the NIC of a reply's first rail. The object belongs to its `fi_info`, which libfabric
//! copies (FI_DUP) and frees (`fi_close`).

use crate::abi::nic::*;
use crate::abi::*;
use crate::base::boundary::{guard_free, Errno};
use crate::base::object::{self, absent};
use marline_engine::{nic_of, NicInfo, RailHere};
use std::ffi::{c_char, c_int, c_void, CString};
use std::mem::size_of;
use std::ptr::null_mut;

static OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close,
    control,
    tostr,
    bind: object::no_bind,
    ops_open: absent,
    ops_set: absent,
};

/// A NIC's description.
#[derive(Clone, Debug, Default)]
struct About {
    name: String,
    address: Option<String>,
    mtu: usize,
    bits_per_s: usize,
    info: NicInfo,
}

/// A NIC object with the texts that its pointers refer to.
#[repr(C)]
struct Nic {
    fid: fid_nic,
    device: fi_device_attr,
    bus: fi_bus_attr,
    link: fi_link_attr,
    about: About,
    /// The texts that the attributes point to.
    texts: [Option<CString>; 6],
}

/// The NIC of a rail; null for a rail without one.
pub(crate) fn of_rail(rail: Option<&RailHere>) -> *mut c_void {
    let Some(rail) = rail.filter(|rail| rail.mtu > 0) else {
        return null_mut();
    };
    let about = About {
        name: rail.interface.clone(),
        address: rail.ip.map(|ip| ip.to_string()),
        mtu: rail.mtu,
        bits_per_s: 8 * rail.bytes_per_s as usize,
        info: nic_of(&rail.interface),
    };
    give(about).cast()
}

fn give(about: About) -> *mut fid_nic {
    let text = |text: Option<&str>| text.and_then(|text| CString::new(text).ok());
    let info = &about.info;
    let texts = [
        text(Some(&about.name)),
        text(info.model.as_deref()),
        text(info.maker.as_deref()),
        text(info.driver.as_deref()),
        text(about.address.as_deref()),
        text(info.network),
    ];
    let at = |of: usize| -> *mut c_char {
        texts[of]
            .as_ref()
            .map_or(null_mut(), |text| text.as_ptr().cast_mut())
    };
    let (domain_id, bus_id, device_id, function_id) = info.pci.unwrap_or_default();
    let mut nic = Box::new(Nic {
        fid: fid_nic {
            fid: fid {
                fclass: FI_CLASS_NIC,
                context: null_mut(),
                ops: &OPS,
            },
            device_attr: null_mut(),
            bus_attr: null_mut(),
            link_attr: null_mut(),
            prov_attr: null_mut(),
        },
        device: fi_device_attr {
            name: at(0),
            device_id: at(1),
            device_version: null_mut(),
            vendor_id: at(2),
            driver: at(3),
            firmware: null_mut(),
        },
        bus: fi_bus_attr {
            bus_type: match info.pci {
                Some(_) => FI_BUS_PCI,
                None => FI_BUS_UNKNOWN,
            },
            pci: fi_pci_attr {
                domain_id,
                bus_id,
                device_id,
                function_id,
            },
        },
        link: fi_link_attr {
            address: at(4),
            mtu: about.mtu,
            speed: about.bits_per_s,
            state: match info.up {
                Some(true) => FI_LINK_UP,
                // Not "down": libfabric drops an info with a link that is down, but the job has
                // other rails.
                Some(false) | None => FI_LINK_UNKNOWN,
            },
            network_type: at(5),
        },
        about,
        texts,
    });
    nic.fid.device_attr = &raw mut nic.device;
    nic.fid.bus_attr = &raw mut nic.bus;
    nic.fid.link_attr = &raw mut nic.link;
    Box::into_raw(nic).cast()
}

unsafe extern "C" fn close(nic: *mut fid) -> c_int {
    guard_free(|| {
        // SAFETY: made by `give`, and given up now.
        drop(unsafe { Box::from_raw(nic.cast::<Nic>()) });
        Ok(0)
    })
}

/// FI_DUP: makes an independent copy.
unsafe extern "C" fn control(nic: *mut fid, command: c_int, out: *mut c_void) -> c_int {
    guard_free(|| {
        if command != FI_DUP {
            return Err(Errno::NOSYS);
        }
        if out.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: ours, and a place for a pointer.
        unsafe { *out.cast::<*mut fid_nic>() = give((*nic.cast::<Nic>()).about.clone()) };
        Ok(0)
    })
}

/// Appends the NIC to the output of `fi_info -v`, truncated to the buffer.
unsafe extern "C" fn tostr(nic: *const fid, out: *mut c_char, len: usize) -> c_int {
    guard_free(|| {
        // SAFETY: ours; a C string in a buffer of `len` bytes.
        unsafe {
            let text = (*nic.cast::<Nic>()).about.show();
            let used = libc::strnlen(out, len);
            let room = len.saturating_sub(used + 1).min(text.len());
            if room > 0 {
                std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out.add(used), room);
                *out.add(used + room) = 0;
            }
        }
        Ok(0)
    })
}

impl About {
    fn show(&self) -> String {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "(null)".into());
        let info = &self.info;
        let bus = match info.pci {
            Some((domain, bus, device, function)) => {
                format!("FI_BUS_PCI {domain:04x}:{bus:02x}:{device:02x}.{function:x}")
            }
            None => "FI_BUS_UNKNOWN".to_owned(),
        };
        let state = match info.up {
            Some(true) => "FI_LINK_UP",
            Some(false) => "FI_LINK_DOWN",
            None => "FI_LINK_UNKNOWN",
        };
        let lines = [
            "    nic:".to_owned(),
            // No other field of a reply is displayed as free text.
            format!("        marline: {}", marline_version::TEXT),
            "        fi_device_attr:".to_owned(),
            format!("            name: {}", self.name),
            format!("            device_id: {}", or_none(&info.model)),
            format!("            vendor_id: {}", or_none(&info.maker)),
            format!("            driver: {}", or_none(&info.driver)),
            "        fi_bus_attr:".to_owned(),
            format!("            bus_type: {bus}"),
            "        fi_link_attr:".to_owned(),
            format!("            address: {}", or_none(&self.address)),
            format!("            mtu: {}", self.mtu),
            format!("            speed: {}", self.bits_per_s),
            format!("            state: {state}"),
            format!(
                "            network_type: {}",
                info.network.unwrap_or("(null)")
            ),
        ];
        lines.map(|line| line + "\n").concat()
    }
}
