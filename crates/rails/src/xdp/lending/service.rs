//! The service: answers rails at a socket.

use super::lent::Lent;
use super::messages::{Answer, Request, LEN_MAX};
use super::rules::Rules;
use crate::sys::xdp::{group_number, network_of, open_socket, udp_name};
use crate::sys::{errno_text, own_uid, Epoll, Errno, SeqPacket};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The number of the listener; connections have others.
const LISTENER: u64 = 0;

/// Settings of a service: its interfaces, users and limits.
pub struct XdpServiceConfig {
    /// Names of interfaces.
    pub interfaces: Vec<String>,
    /// Groups, by name or number, whose members may use the service beside root and its own user.
    pub groups: Vec<String>,
    /// Path of the socket.
    pub socket: PathBuf,
    /// Most sockets of a user.
    pub sockets_max: usize,
    /// The lowest and the highest port that is redirected.
    pub ports: (u16, u16),
}

/// Lends AF_XDP sockets and the datagrams of ports.
pub struct XdpService {
    listener: SeqPacket,
    /// The service's network namespace.
    network: u64,
    set: Epoll,
    lent: Vec<Lent>,
    rules: Rules,
    connections: HashMap<u64, Connection>,
    next: u64,
    /// Gets a line of text about each refusal.
    log: Box<dyn FnMut(&str)>,
}

/// A connection, which stands for one rail.
struct Connection {
    socket: SeqPacket,
    user: u32,
    /// The port that is redirected.
    port: Option<u16>,
}

impl XdpService {
    /// Attaches the program to all interfaces and opens the socket. `log` gets lines for people.
    /// The error says what to do.
    pub fn open(
        config: &XdpServiceConfig,
        mut log: Box<dyn FnMut(&str)>,
    ) -> Result<XdpService, String> {
        let known = |name: &String| {
            let number = group_number(name).ok_or_else(|| format!("there is no group {name}"))?;
            Ok((number, name.clone()))
        };
        let groups = config
            .groups
            .iter()
            .map(known)
            .collect::<Result<_, String>>()?;
        let ports = config.ports.0..=config.ports.1;
        let path = config.socket.display();
        let failed = |errno: Errno| format!("{path}: {}", errno_text(errno));
        let listener = listen(&config.socket)?;
        let set = Epoll::new().map_err(failed)?;
        set.add(listener.fd(), LISTENER).map_err(failed)?;
        let network = network_of(listener.as_fd())
            .map_err(|errno| format!("this kernel is older than 5.14 ({})", errno_text(errno)))?;
        let attached = config.interfaces.iter().map(|name| Lent::attach(name));
        let lent = attached.collect::<Result<Vec<_>, _>>()?;
        for one in &lent {
            let place = match one.steering.is_in_driver() {
                true => "the driver",
                false => "the stack",
            };
            let (name, ip, queues) = (&one.name, one.ip, one.users.len());
            log(&format!(
                "lends {name} ({ip}), program in {place}, queues: {queues}, at {path}"
            ));
        }
        Ok(XdpService {
            listener,
            network,
            set,
            lent,
            rules: Rules::new(own_uid(), groups, config.sockets_max, ports),
            connections: HashMap::new(),
            next: LISTENER + 1,
            log,
        })
    }

    /// Serves without end. The kernel detaches the programs when the process ends, in any way.
    pub fn run(&mut self) -> ! {
        loop {
            let mut ready = Vec::new();
            self.set.wait(|number| ready.push(number));
            for number in ready {
                match number {
                    LISTENER => self.accept(),
                    number => self.read(number),
                }
            }
        }
    }

    fn accept(&mut self) {
        let Ok(socket) = self.listener.accept() else {
            return;
        };
        let who = socket
            .peer()
            .and_then(|peer| Ok((peer, socket.peer_groups()?)));
        let Ok((peer, groups)) = who else { return };
        if let Err(why) = self.rules.admit(peer.uid, &groups) {
            self.refuse(&socket, peer.uid, why);
            return;
        }
        let number = self.next;
        self.next += 1;
        if self.set.add(socket.fd(), number).is_err() {
            self.rules.leave(peer.uid);
            return;
        }
        let connection = Connection {
            socket,
            user: peer.uid,
            port: None,
        };
        self.connections.insert(number, connection);
    }

    /// Reads a message of a connection, or its end.
    fn read(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else {
            return;
        };
        let mut bytes = [0; LEN_MAX];
        let message = match connection.socket.recv(&mut bytes) {
            Err(libc::EAGAIN | libc::EINTR) => return,
            Ok(message) if message.len > 0 => message,
            _ => return self.end(number),
        };
        let answered = Request::parse(&bytes[..message.len])
            .and_then(|request| self.answer(number, request, &message.fds));
        let Some(connection) = self.connections.get(&number) else {
            return;
        };
        let sent = match answered {
            Ok((answer, socket)) => {
                let beside = socket.as_ref().map(AsFd::as_fd);
                let sent = connection.socket.send(&answer.bytes(), beside.as_slice());
                sent.is_ok()
            }
            Err(why) => {
                let user = connection.user;
                (self.log)(&in_log(user, &why));
                let answer = Answer::Refused(why).bytes();
                let _ = connection.socket.send(&answer, &[]);
                false
            }
        };
        if !sent {
            self.end(number);
        }
    }

    /// Does what a request asks for; the error is a refusal, which ends the connection.
    fn answer(
        &mut self,
        number: u64,
        request: Request,
        beside: &[OwnedFd],
    ) -> Result<(Answer, Option<OwnedFd>), String> {
        let connection = self.connections.get_mut(&number);
        let connection = connection.ok_or("the connection has ended")?;
        match request {
            Request::Socket { interface } => {
                let lent = find(&mut self.lent, interface)?;
                let queue = lent.free_queue()?;
                if lent.users.contains(&Some(number)) {
                    return Err("a connection gets one socket".to_owned());
                }
                let socket = open_socket()
                    .map_err(|errno| format!("an AF_XDP socket: {}", errno_text(errno)))?;
                lent.take_queue(queue, number)?;
                let in_driver = lent.steering.is_in_driver();
                Ok((Answer::Lent { queue, in_driver }, Some(socket)))
            }
            Request::Redirect {
                interface,
                queue,
                ip,
                port,
            } => {
                let lent = find(&mut self.lent, interface)?;
                let [socket, udp] = beside else {
                    return Err("two sockets have to be sent with a redirection".to_owned());
                };
                prove(udp.as_fd(), self.network, (ip, port))?;
                self.rules.allow(port)?;
                if ip != lent.ip {
                    return Err(format!("{ip} is not {}'s address {}", lent.name, lent.ip));
                }
                if connection.port.is_some() {
                    return Err("a connection gets one port".to_owned());
                }
                lent.take_queue(queue, number)?;
                lent.redirect(queue, port, socket.as_fd())?;
                connection.port = Some(port);
                let (name, user) = (&lent.name, connection.user);
                (self.log)(&format!(
                    "{name}: queue {queue} and port {port} to user {user}"
                ));
                Ok((Answer::Redirected, None))
            }
        }
    }

    /// Takes back all that a connection has, and forgets it.
    fn end(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        self.set.remove(connection.socket.fd());
        for lent in &mut self.lent {
            lent.take_back(number, connection.port);
        }
        self.rules.leave(connection.user);
        if let Some(port) = connection.port {
            let user = connection.user;
            (self.log)(&format!("port {port} back from user {user}"));
        }
    }

    fn refuse(&mut self, socket: &SeqPacket, user: u32, why: String) {
        (self.log)(&in_log(user, &why));
        let _ = socket.send(&Answer::Refused(why).bytes(), &[]);
    }
}

fn in_log(user: u32, why: &str) -> String {
    format!("refuses user {user}: {why}")
}

/// The interface with an index, if sockets of it are lent.
fn find(all: &mut [Lent], index: u32) -> Result<&mut Lent, String> {
    let names: Vec<String> = all.iter().map(|one| one.name.clone()).collect();
    let mut failed = None;
    for one in all {
        let refreshed = one.refresh();
        if one.index == index {
            return refreshed.map(|()| one);
        }
        failed = refreshed.err().or(failed);
    }
    Err(failed.unwrap_or_else(|| {
        let names = names.join(", ");
        format!("it lends {names}, and not the interface with index {index}")
    }))
}

/// Checks that a UDP socket has an address and port in the service's network namespace: others'
/// datagrams are not redirected.
fn prove(udp: BorrowedFd<'_>, network: u64, (ip, port): (IpAddr, u16)) -> Result<(), String> {
    if network_of(udp) != Ok(network) {
        return Err("the process is in another network namespace than the service".to_owned());
    }
    match udp_name(udp) {
        Some(name) if (name.ip(), name.port()) == (ip, port) => Ok(()),
        _ => Err(format!(
            "the process has no UDP socket at {}",
            SocketAddr::new(ip, port)
        )),
    }
}

/// Listens at a path, in the place of a service that has ended; all users may connect.
fn listen(path: &Path) -> Result<SeqPacket, String> {
    if SeqPacket::connect_to(path).is_ok() {
        return Err(format!("{}: a service is there already", path.display()));
    }
    let failed = |why: String| format!("{}: {why}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|e| failed(e.to_string()))?;
    }
    let listener = SeqPacket::listen_at(path).or_else(|errno| match errno {
        libc::EADDRINUSE => {
            std::fs::remove_file(path).map_err(|_| errno)?;
            SeqPacket::listen_at(path)
        }
        errno => Err(errno),
    });
    let listener = listener.map_err(|errno| failed(errno_text(errno)))?;
    let all_users = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(path, all_users).map_err(|e| failed(e.to_string()))?;
    Ok(listener)
}

#[cfg(test)]
#[path = "service_test.rs"]
mod tests;
