//! The reasons, for people, why a rail past the stack cannot be opened.

use crate::interfaces::InterfaceChoice;
use crate::sys::{self, Errno};
use crate::xdp::occupant::occupant;

/// Explains the error of a step of opening.
pub(super) fn explain(interface: &InterfaceChoice, step: &str, errno: Errno) -> String {
    let name = &interface.name;
    match (step, errno) {
        (_, libc::EPERM | libc::EACCES) => {
            "this process lacks a privilege (CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW are needed)"
                .to_owned()
        }
        ("map" | "program", libc::ENOSYS | libc::EINVAL) | ("socket", libc::EAFNOSUPPORT) => {
            format!("this kernel has no AF_XDP ({})", sys::errno_text(errno))
        }
        ("link", libc::EBUSY | libc::EEXIST) => {
            let which = occupant(name).map_or(String::new(), |which| format!(" ({which})"));
            format!("{name} has an XDP program already{which}, of another process or another tool")
        }
        ("bind", libc::EBUSY) => {
            format!("no queue of {name} is free: other processes have AF_XDP sockets on all")
        }
        ("memory", libc::ENOBUFS | libc::ENOMEM) => {
            "the memory of its frames cannot be locked (`ulimit -l`)".to_owned()
        }
        ("link", libc::ERANGE) => format!("the driver of {name} takes no program with its MTU"),
        ("link", libc::EINVAL | libc::EOPNOTSUPP) => {
            format!("{name} takes no XDP program ({})", sys::errno_text(errno))
        }
        _ => format!("{name}: {step}: {}", sys::errno_text(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_what_is_missing_or_in_the_way() {
        let eth0 = InterfaceChoice::none("eth0");
        for (step, errno, part) in [
            ("map", libc::EPERM, "CAP_BPF"),
            ("socket", libc::EAFNOSUPPORT, "no AF_XDP"),
            ("link", libc::EBUSY, "eth0 has an XDP program already"),
            ("bind", libc::EBUSY, "no queue of eth0 is free"),
            ("memory", libc::ENOBUFS, "ulimit -l"),
            ("link", libc::ERANGE, "MTU"),
            ("rings", libc::ENOMEM, "eth0: rings: "),
        ] {
            let said = explain(&eth0, step, errno);
            assert!(said.contains(part), "{said}");
        }
    }
}
