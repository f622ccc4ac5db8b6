//! The ports that a rail's sockets may use.

use crate::sys::Errno;

/// A range of ports that are tried in turn, since each port serves one socket per address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    least: u16,
    most: u16,
    /// The port that is tried next, and the number of ports left to try.
    next: u16,
    left: u32,
    /// The setting is a range, possibly of one port.
    range: bool,
}

impl Ports {
    /// Any free port; the kernel chooses.
    pub const ANY: Ports = Ports::one(0);

    /// A single port.
    pub const fn one(port: u16) -> Ports {
        Ports {
            least: port,
            most: port,
            next: port,
            left: 1,
            range: false,
        }
    }

    /// The ports from `least` to `most`. `process` differs between processes that start together,
    /// so that they do not all try the same ports first.
    pub fn range(least: u16, most: u16, process: u32) -> Ports {
        let most = most.max(least);
        let count = u32::from(most - least) + 1;
        Ports {
            least,
            most,
            next: least + (process % count) as u16,
            left: count,
            range: true,
        }
    }

    /// The port that is tried first.
    pub fn first(&self) -> u16 {
        self.next
    }

    fn count(&self) -> u32 {
        u32::from(self.most - self.least) + 1
    }

    fn at(&self, step: u32) -> u16 {
        let from_least = u32::from(self.next - self.least) + step;
        self.least + (from_least % self.count()) as u16
    }

    /// The ports left to try after this one; `None` if there are none. With [`Ports::ANY`] the
    /// kernel chooses anew on each call.
    pub fn after(&self, port: u16) -> Option<Ports> {
        if *self == Ports::ANY {
            return Some(Ports::ANY);
        }
        let tried = (0..self.left).find(|&step| self.at(step) == port)? + 1;
        (tried < self.left).then(|| Ports {
            next: self.at(tried),
            left: self.left - tried,
            ..*self
        })
    }

    /// Opens a socket on the first free port; returns the result or error of `open`.
    pub(crate) fn first_free<T>(
        &self,
        mut open: impl FnMut(u16) -> Result<T, (&'static str, Errno)>,
    ) -> Result<T, (&'static str, Errno)> {
        let mut opened = open(self.next);
        for step in 1..self.left {
            if !matches!(opened, Err((_, libc::EADDRINUSE))) {
                break;
            }
            opened = open(self.at(step));
        }
        opened
    }

    /// The port of a group that asks for `port`: within the range, and the same in all processes. A
    /// group has its own IP address, so it does not take a rail's port.
    pub(crate) fn of_group(&self, port: u16) -> u16 {
        match self.range {
            false => port,
            true => self.least + (u32::from(port) % self.count()) as u16,
        }
    }

    /// Advice for people when all ports failed with this error.
    pub(crate) fn advice(&self, errno: Errno) -> String {
        match (errno, self.range, self.most) {
            (libc::EADDRINUSE, false, 1..) => {
                "; FI_MARLINE_PORT serves one process per host: unset it, or name a range \
                 (FI_MARLINE_PORTS)"
                    .to_owned()
            }
            (libc::EADDRINUSE, true, _) => format!(
                "; all ports of FI_MARLINE_PORTS={}-{} are taken on this address: each process of \
                 a host wants one, or two where its MPI opens two domains",
                self.least, self.most
            ),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(ports: Ports) -> Vec<u16> {
        let mut seen = Vec::new();
        let _ = ports.first_free::<()>(|port| {
            seen.push(port);
            Err(("bind", libc::EADDRINUSE))
        });
        seen
    }

    #[test]
    fn each_port_of_a_range_is_tried_once() {
        assert_eq!(all(Ports::range(20, 23, 6)), [22, 23, 20, 21]);
        assert_eq!(all(Ports::range(65_534, 65_535, 1)), [65_535, 65_534]);
        assert_eq!(all(Ports::range(20, 20, 6)), [20]);
        assert_eq!(all(Ports::one(7)), [7]);
        assert_eq!(all(Ports::ANY), [0]);
    }

    #[test]
    fn the_ports_after_one_are_the_remaining_ones() {
        let ports = Ports::range(20, 23, 2);
        let after = ports.after(23).unwrap();
        assert_eq!(all(after), [20, 21]);
        assert_eq!(after.after(21), None);
        assert_eq!(after.after(23), None, "it was tried before");
        assert_eq!(Ports::one(7).after(7), None);
        assert_eq!(Ports::ANY.after(7), Some(Ports::ANY));
    }

    #[test]
    fn the_first_free_one_is_taken_and_other_errors_end_the_search() {
        let taken = |port| match port {
            22 | 23 => Err(("bind", libc::EADDRINUSE)),
            _ => Ok(port),
        };
        assert_eq!(Ports::range(20, 23, 2).first_free(taken), Ok(20));
        let mut tries = 0;
        let denied = Ports::range(20, 23, 2).first_free::<()>(|_| {
            tries += 1;
            Err(("bind", libc::EACCES))
        });
        assert_eq!((denied, tries), (Err(("bind", libc::EACCES)), 1));
    }

    #[test]
    fn a_groups_port_is_in_the_range() {
        for port in 61_000..=u16::MAX {
            assert!((20..=23).contains(&Ports::range(20, 23, 1).of_group(port)));
        }
        assert_eq!(Ports::range(20, 20, 1).of_group(61_007), 20);
        assert_eq!(Ports::one(20).of_group(61_007), 61_007);
        assert_eq!(
            Ports::range(20, 23, 1).of_group(7),
            Ports::range(20, 23, 2).of_group(7)
        );
    }
}
