//! The part of the libfabric ABI (see `abi/mod.rs`) that describes a NIC.

#![allow(non_camel_case_types, dead_code)]

use crate::abi::fid;
use std::ffi::{c_char, c_int, c_void};

pub const FI_CLASS_NIC: usize = 20;
pub const FI_DUP: c_int = 15;
pub const FI_BUS_UNKNOWN: c_int = 0;
pub const FI_BUS_PCI: c_int = 1;
pub const FI_LINK_UNKNOWN: c_int = 0;
pub const FI_LINK_DOWN: c_int = 1;
pub const FI_LINK_UP: c_int = 2;

#[repr(C)]
pub struct fi_device_attr {
    pub name: *mut c_char,
    pub device_id: *mut c_char,
    pub device_version: *mut c_char,
    pub vendor_id: *mut c_char,
    pub driver: *mut c_char,
    pub firmware: *mut c_char,
}

#[repr(C)]
pub struct fi_pci_attr {
    pub domain_id: u16,
    pub bus_id: u8,
    pub device_id: u8,
    pub function_id: u8,
}

#[repr(C)]
pub struct fi_bus_attr {
    pub bus_type: c_int,
    /// The only member of a union.
    pub pci: fi_pci_attr,
}

#[repr(C)]
pub struct fi_link_attr {
    pub address: *mut c_char,
    pub mtu: usize,
    /// Bits per second.
    pub speed: usize,
    pub state: c_int,
    pub network_type: *mut c_char,
}

#[repr(C)]
pub struct fid_nic {
    pub fid: fid,
    pub device_attr: *mut fi_device_attr,
    pub bus_attr: *mut fi_bus_attr,
    pub link_attr: *mut fi_link_attr,
    pub prov_attr: *mut c_void,
}

const _: () = {
    assert!(std::mem::size_of::<fid_nic>() == 56);
    assert!(std::mem::size_of::<fi_device_attr>() == 48);
    assert!(std::mem::size_of::<fi_bus_attr>() == 12);
    assert!(std::mem::size_of::<fi_link_attr>() == 40);
};
