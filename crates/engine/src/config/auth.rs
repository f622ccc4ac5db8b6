//! The setting for packets of a job with a key.

/// The parts of packets that a job's key protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Nothing.
    Off,
    /// Heads of packets: they have tags.
    On,
    /// Heads, and payloads: the sums of these have keys.
    Payload,
    /// The same, and payloads are encrypted.
    Encrypt,
}

impl Auth {
    const ALL: [(&'static str, Auth); 4] = [
        ("off", Auth::Off),
        ("on", Auth::On),
        ("payload", Auth::Payload),
        ("encrypt", Auth::Encrypt),
    ];

    /// Parses the setting.
    pub fn parse(text: &str) -> Option<Auth> {
        let row = Auth::ALL.iter();
        let mut row = row.filter(|(name, _)| name.eq_ignore_ascii_case(text));
        row.next().map(|(_, auth)| *auth)
    }

    /// Formats the setting.
    pub fn name(&self) -> String {
        let row = Auth::ALL.iter().find(|(_, auth)| auth == self);
        row.map_or(String::new(), |(name, _)| (*name).to_owned())
    }

    /// Describes the allowed values.
    pub fn allowed() -> String {
        Auth::ALL.map(|(name, _)| name).join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for (name, auth) in Auth::ALL {
            assert_eq!((Auth::parse(name), auth.name()), (Some(auth), name.into()));
            assert!(Auth::allowed().contains(name));
        }
        assert_eq!(Auth::parse("Payload"), Some(Auth::Payload));
        assert_eq!(Auth::parse("yes"), None);
    }
}
