//! Figures and names for narrow columns.

/// Splits text into lines of at most `width` columns, between words where there are any; all lines
/// but the first are indented.
pub fn fold(text: &str, width: usize) -> Vec<String> {
    const INDENT: &str = "  ";
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let long = line.chars().count() + 1 + word.chars().count() > width;
        if long && !line.trim().is_empty() {
            lines.push(std::mem::replace(&mut line, INDENT.to_owned()));
        } else if !line.trim().is_empty() {
            line.push(' ');
        }
        line += word;
    }
    if !line.trim().is_empty() {
        lines.push(line);
    }
    lines
}

/// Adds a code to the last of a text's lines, in its short form (`E203`), if that line has room.
pub fn add_code(lines: &mut [String], code: &str, width: usize) {
    let short = code.rsplit('-').next().unwrap_or(code);
    if let Some(last) = lines.last_mut() {
        if last.chars().count() + 1 + short.chars().count() <= width {
            *last += &format!(" {short}");
        }
    }
}

/// `host:rail` in at most `room` columns. Of a long host name, the domain is left out, then the
/// beginning, since numbers stand at the end.
pub fn place(host: &str, rail: &str, room: usize) -> String {
    let whole = format!("{host}:{rail}");
    if whole.chars().count() <= room {
        return whole;
    }
    let host = host.split('.').next().unwrap_or_default();
    let short = format!("{host}:{rail}");
    match short.chars().count() {
        length if length <= room => short,
        length => {
            let left_out = length - room.saturating_sub(2);
            format!("..{}", short.chars().skip(left_out).collect::<String>())
        }
    }
}

/// A share in percent, in at most six characters.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0%".to_owned(),
        percent if percent < 0.01 => "<0.01%".to_owned(),
        percent if percent < 9.995 => format!("{percent:.2}%"),
        percent => format!("{percent:.1}%"),
    }
}

/// A round trip, in at most eight characters.
pub fn round_trip(ns: u64) -> String {
    match ns as f64 / 1e3 {
        0.0 => "-".to_owned(),
        us if us < 999.95 => format!("{us:.1} us"),
        us if us < 999_950.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_takes_no_line_of_its_own() {
        for (width, says) in [(12, "rail is E203"), (11, "rail is")] {
            let mut lines = vec!["first".to_owned(), "rail is".to_owned()];
            add_code(&mut lines, "MARLINE-E203", width);
            assert_eq!(lines, ["first", says]);
        }
    }

    #[test]
    fn lines_are_no_longer_than_the_width() {
        let text = "14:10:26.123 rank 1 on h1: path rail1 to rail1 of rank 0 on h0 is down";
        let lines = fold(text, 30);
        assert!(
            lines.len() > 2 && lines.iter().all(|line| line.len() <= 30),
            "{lines:?}"
        );
        let words: Vec<&str> = lines
            .iter()
            .flat_map(|line| line.split_whitespace())
            .collect();
        assert_eq!(words.join(" "), text);
        assert!(lines[1].starts_with("  "));
        assert!(fold("", 30).is_empty());
    }

    #[test]
    fn long_names_keep_the_rail_and_the_number() {
        assert_eq!(place("h0", "rail1", 17), "h0:rail1");
        assert_eq!(place("node17.cluster.example", "eth0", 17), "node17:eth0");
        assert_eq!(place("test-of-outages-h1", "rail1", 12), "..s-h1:rail1");
    }

    #[test]
    fn figures_are_short() {
        let shares = [0.0, 0.000_001, 0.01, 0.123_45, 1.0].map(percent);
        assert_eq!(shares, ["0%", "<0.01%", "1.00%", "12.3%", "100.0%"]);
        let times = [0, 12_345, 999_949, 1_900_000, 999_949_000, 2_000_000_000].map(round_trip);
        assert_eq!(
            times,
            ["-", "12.3 us", "999.9 us", "1.9 ms", "999.9 ms", "2.0 s"]
        );
    }
}
