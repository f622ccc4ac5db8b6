//! The planner of chunks against the formula of paper 0, and against chunks of one size.

use marline_proto::Pipeline;
use marline_sim::pipeline::Machine;

/// The paper's cluster: 1.4 us, 3 GB/s, copy and sum at 6 GB/s, a gap of 300 ns.
const JACK: Machine = Machine {
    latency_ns: 1_400.0,
    net: 3.0,
    copy: 6.0,
    gap_ns: 300.0,
};
const BLOCK: u32 = 4_096;

fn lengths() -> impl Iterator<Item = u64> {
    (15..=26).flat_map(|n| [1u64 << n, (1 << n) * 5 / 4, (1 << n) * 3 / 2 + 17])
}

#[test]
fn plans_take_as_long_as_the_formula_says() {
    for q in [1.25, 1.5, 2.0, 3.0, 5.0] {
        let machine = Machine {
            copy: q * JACK.net,
            ..JACK
        };
        let plan = machine.plan(BLOCK);
        for total in lengths().filter(|&n| n > plan.first_bytes as u64) {
            let (took, says) = (
                machine.play(plan.chunks(total)),
                machine.formula(&plan, total),
            );
            // n is fractional in the formula, and chunks are rounded to blocks: two gaps, 2 %.
            let off = (took - says).abs();
            assert!(
                off <= 2.0 * JACK.gap_ns + 0.02 * says,
                "q {q}, {total} B: {took}, not {says}"
            );
        }
    }
}

#[test]
fn summing_costs_less_than_a_percent_of_a_megabyte() {
    // The paper's claim at 1 MB: copy alone at 9 GB/s, with sums at 6.
    let plain = Machine { copy: 9.0, ..JACK };
    let time = |m: &Machine| m.play(m.plan(BLOCK).chunks(1 << 20));
    assert!(
        time(&JACK) < 1.01 * time(&plain),
        "{} {}",
        time(&JACK),
        time(&plain)
    );
}

#[test]
fn no_fixed_chunk_size_is_better() {
    for total in lengths().filter(|&n| n >= 1 << 16) {
        let plan = JACK.play(JACK.plan(BLOCK).chunks(total));
        let sizes = (12..=22).map(|n| 1u32 << n);
        let best = sizes
            .map(|n| JACK.play(Pipeline::fixed(n).chunks(total)))
            .fold(f64::MAX, f64::min);
        assert!(plan < 1.01 * best, "{total} B: {plan} ns, fixed {best} ns");
    }
}

#[test]
fn a_copy_slower_than_the_network_gets_equal_chunks() {
    let slow = Machine { copy: 2.5, ..JACK };
    let plan = Pipeline {
        chunk_max: 65_536,
        ..slow.plan(BLOCK)
    };
    assert!(!plan.grows());
    let took = slow.play(plan.chunks(8 << 20));
    // The copy is the bottleneck; one chunk in flight and one at the receiver add to it.
    let least = (8 << 20) as f64 / slow.copy;
    assert!(
        took > 0.99 * least && took < 1.05 * least,
        "{took}, at least {least}"
    );
}
