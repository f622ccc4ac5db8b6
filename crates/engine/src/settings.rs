//! Settings `FI_MARLINE_*`: one table.

/// One row of the table of settings.
pub struct Setting {
    /// Name without the `FI_MARLINE_` prefix, lower case (libfabric upper-cases it).
    pub name: &'static str,
    /// Default as text.
    pub default: &'static str,
    /// One-line help with units.
    pub help: &'static str,
}

/// All settings.
pub const TABLE: &[Setting] = &[
    Setting { name: "rails", default: "", help: "interfaces or addresses to use, comma separated; default: every usable one" },
];

/// Parsed settings of one engine.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Interfaces or addresses; empty = all usable.
    pub rails: Vec<String>,
}

impl Settings {
    /// Reads every row through `lookup` (name as in the table); an error is a text for people.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
        let mut s = Settings::default();
        if let Some(r) = lookup("rails") { s.rails = r.split(',').map(str::to_owned).collect(); }
        Ok(s)
    }
}
