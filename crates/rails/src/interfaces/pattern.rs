//! Patterns of interface names, and subnets, as in settings.

use std::net::IpAddr;

/// Parses an address (with all its bits) or a subnet; `None` for other text.
pub(super) fn parse_subnet(name: &str) -> Result<Option<(IpAddr, u8)>, String> {
    let (ip, bits) = match name.split_once('/') {
        Some((ip, bits)) => (ip, Some(bits)),
        None => (name, None),
    };
    let width = |ip: &IpAddr| if ip.is_ipv4() { 32 } else { 128 };
    match (ip.parse::<IpAddr>(), bits) {
        (Ok(ip), None) => Ok(Some((ip, width(&ip)))),
        (Ok(ip), Some(bits)) => match bits.parse::<u8>() {
            Ok(bits) if bits <= width(&ip) => Ok(Some((ip, bits))),
            _ => Err(format!(
                "{name}: /{bits} is not a number of bits up to {}",
                width(&ip)
            )),
        },
        (Err(_), Some(_)) => Err(format!("{name}: {ip} is not an IP address")),
        (Err(_), None) => Ok(None),
    }
}

/// Returns whether `text` matches `pattern`, in which `*` matches any run and `?` any one byte.
pub(super) fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None; // after the last star, and the end of its match
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((after, end)) => {
                    retry = Some((after, end + 1));
                    p = after;
                    t = end + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_like_a_shells() {
        for (pattern, text, fits) in [
            ("eth*", "eth0", true),
            ("eth*", "eth", true),
            ("*0", "eth10", true),
            ("e*h?", "eth1", true),
            ("e*h?", "eth", false),
            ("**", "", true),
            ("eth", "eth0", false),
            ("*a*b", "xaybzb", true),
            ("*a*b", "xaybz", false),
        ] {
            assert_eq!(
                glob(pattern.as_bytes(), text.as_bytes()),
                fits,
                "{pattern} {text}"
            );
        }
    }
}
