//! The setting for checksum threads.

/// The name of [`Workers::OnIdleCores`].
const AUTO: &str = "auto";
/// Most workers allowed.
pub(crate) const WORKERS_MAX: usize = 8;

/// Number and placement of the threads that sum long messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// Some workers on idle cores; none without idle cores.
    OnIdleCores,
    /// This many workers on any cores of the job.
    Always(usize),
}

impl Workers {
    /// Parses the setting.
    pub fn parse(text: &str) -> Option<Workers> {
        if text.eq_ignore_ascii_case(AUTO) {
            return Some(Workers::OnIdleCores);
        }
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let count = text.parse().ok().filter(|n| digits && *n <= WORKERS_MAX)?;
        Some(Workers::Always(count))
    }

    /// Formats the setting.
    pub fn name(&self) -> String {
        match self {
            Workers::OnIdleCores => AUTO.to_owned(),
            Workers::Always(count) => count.to_string(),
        }
    }

    /// Describes the allowed values.
    pub fn allowed() -> String {
        format!("{AUTO}, or a whole number from 0 to {WORKERS_MAX}")
    }

    /// Most workers in all; `idle` is the limit if they need idle cores.
    pub(crate) fn most(&self, idle: usize) -> usize {
        match self {
            Workers::OnIdleCores => idle,
            Workers::Always(count) => *count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_a_number_or_automatic() {
        for text in ["auto", "0", "8"] {
            assert_eq!(
                Workers::parse(text).map(|w| w.name()).as_deref(),
                Some(text)
            );
        }
        for text in ["", "9", "-1", "+1", "on"] {
            assert_eq!(Workers::parse(text), None, "{text}");
        }
        assert_eq!(Workers::parse("AUTO"), Some(Workers::OnIdleCores));
    }
}
