//! Figures and texts as reports show them.

/// Width of a terminal.
pub(super) const COLUMNS: usize = 80;

/// Formats a byte count with two or three digits and a unit, in at most seven characters.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1e3;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    let decimals = usize::from(value < 99.95);
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Formats a count, exact up to five digits, in at most five characters.
pub fn format_count(count: u64) -> String {
    if count < 100_000 {
        return count.to_string();
    }
    let text = format_bytes(count).replace([' ', 'B'], "");
    text.replace('k', "K")
}

/// Wraps text at 80 columns; all lines but the first are indented.
pub fn wrap(text: &str) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > COLUMNS {
            out += "\n ";
            column = 1;
        }
        if column > 0 {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += width;
    }
    out.push('\n');
    out
}

/// `1 packet`, `2 packets`.
pub fn plural(count: u64, one: &str, more: &str) -> String {
    format!(
        "{} {}",
        format_count(count),
        if count == 1 { one } else { more }
    )
}
