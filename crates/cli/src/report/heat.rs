//! Bytes between hosts as a map: a cell for each pair, the darker the more it carried.

use super::data::Matrix;
use marline_engine::stats::text::format_bytes;
use maud::{html, Markup};

/// Side of a cell in pixels.
const CELL: usize = 14;
/// Width of the names.
const NAMES: usize = 170;
/// Signs of text from nothing to the most.
const SIGNS: [char; 6] = ['.', '-', '+', '*', '#', '@'];
/// Most characters of a name in text.
const NAME_MAX: usize = 15;

/// The greatest number of bytes of a pair.
fn most(matrix: &Matrix) -> u64 {
    matrix.bytes.iter().flatten().copied().max().unwrap_or(0)
}

/// True if there is a pair to be shown.
pub fn has_pairs(matrix: &Matrix) -> bool {
    matrix.hosts.len() > 1 && most(matrix) > 0
}

/// The map as a picture: rows send, columns receive.
pub fn picture(matrix: &Matrix) -> Markup {
    let side = CELL * matrix.hosts.len();
    let most = most(matrix).max(1);
    html! {
        svg.heat viewBox=(format!("0 0 {} {}", NAMES + side, side))
            style=(format!("width: {}px", NAMES + side))
            role="img" aria-label="Bytes between hosts" {
            @for (y, (from, row)) in matrix.hosts.iter().zip(&matrix.bytes).enumerate() {
                text x="0" y=(CELL * y + 11) { (from) }
                @for (x, (to, &bytes)) in matrix.hosts.iter().zip(row).enumerate() {
                    @if bytes > 0 {
                        rect x=(NAMES + CELL * x) y=(CELL * y) fill-opacity=(shade(bytes, most)) {
                            title { (from) " to " (to) ": " (format_bytes(bytes)) }
                        }
                    }
                }
            }
        }
        p { (legend(matrix)) }
    }
}

/// A share of the most, with a least value that can be seen.
fn shade(bytes: u64, most: u64) -> String {
    format!("{:.2}", (bytes as f64 / most as f64).max(0.08))
}

/// Words on rows, columns and the greatest value.
fn legend(matrix: &Matrix) -> String {
    let elsewhere = match matrix.bytes_elsewhere {
        0 => String::new(),
        bytes => format!("; {} went to unknown hosts", format_bytes(bytes)),
    };
    format!(
        "Rows sent to columns, which have the same order; most: {}{elsewhere}.",
        format_bytes(most(matrix))
    )
}

/// The map as text.
pub fn text(matrix: &Matrix) -> String {
    let most = most(matrix).max(1);
    let cut = |name: &str| name.chars().take(NAME_MAX).collect::<String>();
    let names: Vec<String> = matrix.hosts.iter().map(|name| cut(name)).collect();
    let width = names.iter().map(|name| name.chars().count()).max();
    let width = width.unwrap_or(0);
    let mut out = String::new();
    for (name, row) in names.iter().zip(&matrix.bytes) {
        let signs: String = row.iter().map(|&bytes| sign(bytes, most)).collect();
        out += &format!("{name:<width$} {signs}\n");
    }
    out + &marline_engine::stats::text::wrap(&legend(matrix))
}

fn sign(bytes: u64, most: u64) -> char {
    let steps = SIGNS.len() as u128 - 1;
    let at = (u128::from(bytes) * steps).div_ceil(u128::from(most)) as usize;
    SIGNS[at.min(SIGNS.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_byte_differs_from_none() {
        let signs: String = [0, 1, 20, 21, 99, 100]
            .map(|bytes| sign(bytes, 100))
            .iter()
            .collect();
        assert_eq!(signs, ".--+@@");
        assert_eq!(
            (shade(1, 1_000).as_str(), shade(5, 10).as_str()),
            ("0.08", "0.50")
        );
    }
}
