//! The setting for a range of ports.

/// `LO-HI`; `None`: any port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortRange(pub Option<(u16, u16)>);

impl PortRange {
    /// Describes the allowed values.
    pub fn allowed() -> String {
        "LO-HI, two ports from 1 to 65535, the lower first".to_owned()
    }

    /// Parses a range; empty means any port.
    pub fn parse(text: &str) -> Option<PortRange> {
        if text.is_empty() {
            return Some(PortRange(None));
        }
        let (least, most) = text.split_once('-')?;
        let port = |text: &str| text.trim().parse().ok().filter(|&port: &u16| port > 0);
        let range = (port(least)?, port(most)?);
        (range.0 <= range.1).then_some(PortRange(Some(range)))
    }

    /// Formats the range.
    pub fn text(&self) -> String {
        self.0
            .map_or_else(String::new, |(least, most)| format!("{least}-{most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::PortRange;

    #[test]
    fn ranges_are_read_and_shown() {
        for (text, range) in [("", None), ("20-30", Some((20, 30))), ("7-7", Some((7, 7)))] {
            assert_eq!(PortRange::parse(text), Some(PortRange(range)));
            assert_eq!(PortRange(range).text(), text);
        }
        for text in [
            "20", "30-20", "0-5", "20-65536", "a-b", "20-30-40", "-", "20-",
        ] {
            assert_eq!(PortRange::parse(text), None, "{text}");
        }
    }
}
