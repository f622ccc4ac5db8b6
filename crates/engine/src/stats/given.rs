//! Settings that differ from their defaults, as a page shows them.

use super::layout::{SETTINGS_MAX, SETTING_WORDS};
use super::words::{put_text, Source, Words};
use crate::config::settings::Settings;

/// A setting as `FI_MARLINE_NAME=value`, cut to fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Given(pub String);

impl Words for Given {
    fn put(&self, to: &mut impl FnMut(u64)) {
        put_text(&self.0, SETTING_WORDS, to);
    }
    fn take(from: &mut Source<'_>) -> Self {
        Given(from.text(SETTING_WORDS))
    }
}

/// The settings that differ from their defaults. Values of secrets are not shown.
pub(crate) fn given(settings: &Settings) -> Vec<Given> {
    let all = settings.differing();
    let texts = all.map(|(variable, value)| Given(cut(format!("{variable}={value}"))));
    texts.take(SETTINGS_MAX).collect()
}

/// Ends a text that is too long with `…`.
fn cut(mut text: String) -> String {
    const END: &str = "…";
    let room = 8 * SETTING_WORDS;
    if text.len() > room {
        let fits = |&at: &usize| text.is_char_boundary(at);
        let at = (0..=room - END.len()).rev().find(fits).unwrap_or(0);
        text.truncate(at);
        text += END;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(rows: &[(&str, &str)]) -> Vec<String> {
        let row = |name: &str| rows.iter().find(|(n, _)| *n == name);
        let settings = Settings::from_lookup(|name| Some(row(name)?.1.to_owned())).unwrap();
        given(&settings).into_iter().map(|given| given.0).collect()
    }

    #[test]
    fn what_differs_is_shown_and_no_secret() {
        assert_eq!(set(&[]), [""; 0]);
        let none = set(&[
            ("checksum", "none"),
            ("test", "gso=off"),
            ("reliability", "on"),
        ]);
        assert_eq!(
            none,
            ["FI_MARLINE_CHECKSUM=none", "FI_MARLINE_TEST=gso=off"]
        );
        let key = "5e".repeat(32);
        let with_key = set(&[("key", &key)]);
        assert!(
            with_key.iter().any(|text| text.contains("(secret)")),
            "{with_key:?}"
        );
        assert!(
            with_key.iter().all(|text| !text.contains("5e5e")),
            "{with_key:?}"
        );
    }

    #[test]
    fn a_long_value_is_cut() {
        let [text] = &set(&[("rails", &"ä".repeat(200))])[..] else {
            panic!("one setting")
        };
        assert!(
            text.ends_with("ä…") && text.len() <= 8 * SETTING_WORDS,
            "{text}"
        );
    }
}
