//! `marline explain`: what the code behind a message means, and what to do about it.

use crate::outcome::Outcome;
use crate::tool;
use marline_codes::{Code, Coded, Message};
use marline_engine::stats::text::wrap;

/// Arguments of `explain`.
#[derive(clap::Args)]
pub struct ExplainArgs {
    /// Codes, as MARLINE-E301, E301 or 301. Default: all.
    codes: Vec<String>,
}

/// Prints the entries.
pub fn main(args: &ExplainArgs) -> Outcome {
    let named: Result<Vec<Code>, Message> = args.codes.iter().map(|text| code(text)).collect();
    let text: String = match &named?[..] {
        [] => Code::ALL.iter().map(entry).collect(),
        named => named.iter().map(entry).collect(),
    };
    tool::print(&text).coded(Code::Output)?;
    Ok(0)
}

fn code(text: &str) -> Result<Code, Message> {
    Code::named(text).ok_or_else(|| {
        let text = format!("there is no code {text}: `marline explain` prints all");
        Code::CommandLine.message(text)
    })
}

fn entry(code: &Code) -> String {
    wrap(&format!("{code}: {}. {}", code.title(), code.remedy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_title_and_remedy_within_80_columns() {
        for code in Code::ALL {
            let text = entry(code);
            assert!(text.starts_with(&format!("{code}: {}", code.title())) || text.contains('\n'));
            let word = code.remedy().split_whitespace().last().unwrap();
            assert!(text.ends_with(&format!("{word}\n")), "{text}");
            assert!(
                text.lines().all(|line| line.chars().count() <= 80),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_code_is_named() {
        let error = code("E999").unwrap_err();
        assert!(error.text.contains("no code E999"), "{error}");
    }
}
