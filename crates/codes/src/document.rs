//! The text of `docs/errors.md`.

use crate::{Code, GROUPS};

/// The beginning of a page's name in the table.
const DOCS: &str = "docs/";

/// The text of `docs/errors.md`: a heading, which is the anchor, for each code.
pub fn document() -> String {
    let mut out = String::from(
        "# Messages by code\n\n\
         Warnings, refusals and events end with a code (`code` in JSON); `marline explain E301` \
         prints its entry.\nCodes keep their meaning.\n",
    );
    for (hundred, name) in GROUPS {
        out += &format!("\n## {name}\n");
        let of_group = |code: &&Code| code.number() / 100 == hundred;
        for code in Code::ALL.iter().filter(of_group) {
            let (title, remedy) = (code.title(), linked(code.remedy()));
            out += &format!("\n### {code}\n\n**{title}.** {remedy}\n");
        }
    }
    out
}

/// A text in which names of pages are links.
fn linked(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let Some((before, rest)) = word.split_once(DOCS) else {
            return word.to_owned();
        };
        let in_name = |c: char| c.is_ascii_alphanumeric() || "/.#-".contains(c);
        let end = rest.find(|c| !in_name(c)).unwrap_or(rest.len());
        let name = rest[..end].trim_end_matches('.');
        let shown = name.split('#').next().unwrap_or(name);
        format!("{before}[{shown}]({name}){}", &rest[name.len()..])
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::linked;

    #[test]
    fn names_of_pages_are_links() {
        for (text, says) in [
            ("See docs/xdp.md.", "See [xdp.md](xdp.md)."),
            (
                "It (docs/design/wire.md#head): e.",
                "It ([design/wire.md](design/wire.md#head)): e.",
            ),
            ("no docs here.", "no docs here."),
        ] {
            assert_eq!(linked(text), says);
        }
    }
}
