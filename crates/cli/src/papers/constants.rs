//! Constants of the papers: cluster `jack`, dual-core Xeon X5650 with ConnectX2 QDR InfiniBand.

use crate::tune::cost::{Network, Work};

/// λ = 1.4 µs, B_net = 3 GB/s (paper 0, section 4.2), g = 300 ns (section 4.3).
pub const JACK: Network = Network {
    latency: 1.4e-6,
    rate: 3e9,
    gap: 300e-9,
};
/// Copy rate from memory (both papers).
pub const COPY: f64 = 4.53e9;
/// Fletcher-64 alone, and copy and sum in one pass: both 6 GB/s (paper 0).
pub const SUM: f64 = 6e9;
/// Copy and sum in one pass, in cache (paper 0, section 4.2).
pub const FUSED: Work = Work::Fused(6e9);
/// A copy at 4.5 GB/s, then the sum of data in cache (paper 2, section 5.2).
pub const PAPER_2: Work = Work::CopyThenSum(4.5e9, 24.1e9);
/// Paper 2 without checksums.
pub const PAPER_2_COPY: Work = Work::Copy(4.5e9);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::cost::*;

    /// Asserts that `value` rounds to the paper's number.
    fn states(value: f64, stated: f64) {
        assert!((value - stated).abs() <= 0.5, "{value} % is not {stated} %");
    }

    #[test]
    fn naive_sums_halve_the_bandwidth() {
        // Section 3: asymptotically 1 / (1/B_net + 2/B_csum) = 1.5 GB/s, "50 % of the network
        // bandwidth".
        let len = 1e12;
        let rate = len / naive(&JACK, SUM, len);
        assert!((rate - 1.5e9).abs() < 1e6, "{rate}");
        states(loss_percent(naive(&JACK, SUM, len), JACK.time(len)), 50.0);
    }

    #[test]
    fn eager_with_one_pass_loses_a_third_at_4_kb() {
        // Section 4.2: "34 % on 4 kB messages". The constants as printed give 33.1 %; 34 % needs a
        // latency of 1.3 µs (printed as 1.4 µs), or 3.2 GB/s.
        let len = 4096.0;
        let loss = |network: &Network| loss_percent(eager(network, &FUSED, len), network.time(len));
        assert!((loss(&JACK) - 33.1).abs() < 0.1, "{}", loss(&JACK));
        states(
            loss(&Network {
                latency: 1.3e-6,
                ..JACK
            }),
            34.0,
        );
        states(
            loss(&Network {
                rate: 3.2e9,
                ..JACK
            }),
            34.0,
        );
        // "lower than the asymptotic cost"
        let long = loss_percent(eager(&JACK, &FUSED, 1e12), JACK.time(1e12));
        assert!(loss(&JACK) < long);
    }

    #[test]
    fn eager_with_a_copy_and_then_a_sum_costs_7_and_10_percent() {
        // Paper 2, section 5.2: "7 % on 4 kB messages and 10 % on 32 kB messages", relative to the
        // copy that is needed in any case.
        let overhead = |len| {
            overhead_percent(
                eager(&JACK, &PAPER_2, len),
                eager(&JACK, &PAPER_2_COPY, len),
            )
        };
        states(overhead(4096.0), 7.0);
        states(overhead(32_768.0), 10.0);
    }

    #[test]
    fn the_super_pipeline_hides_the_sum_at_1_mb() {
        // Section 4.3: the sum of a 4 kB block, "half a micro-second", and "one gap, i.e. 300 ns":
        // less than 1 % of 1 MB. A copy-and-sum rate of 4.3 GB/s costs one gap.
        let len = 1_048_576.0;
        let time = |work: &Work| {
            let pipeline = Pipeline {
                last_block: 4096.0,
                ..Pipeline::fit(&JACK, work)
            };
            (pipeline.time(&JACK, work, len), pipeline.chunks(len))
        };
        let (plain, chunks) = time(&Work::Copy(COPY));
        let (summed, more_chunks) = time(&Work::Fused(4.3e9));
        assert!(
            (more_chunks - chunks - 1.0).abs() < 0.1,
            "{chunks} {more_chunks}"
        );
        let overhead = overhead_percent(summed, plain);
        assert!(overhead > 0.0 && overhead < 1.0, "{overhead} %");
        // The block's sum alone, at FNV-1a's 6.1 GB/s, and the gap: the paper's own estimate.
        let stated = 4096.0 / 6.1e9 + JACK.gap;
        assert!(stated / plain < 0.01, "{}", stated / plain);
        // A separate pass at the plain sum's rate still costs less than 1 %.
        let (separate, _) = time(&Work::CopyThenSum(COPY, 24.1e9));
        assert!(overhead_percent(separate, plain) < 1.0);
        // Without any overlap the same work costs more than half.
        let eager = eager(&JACK, &Work::Fused(4.3e9), len);
        assert!(overhead_percent(eager, JACK.time(len)) > 50.0);
    }

    #[test]
    fn the_first_chunk_hides_the_round_trip_and_chunks_grow_by_q() {
        let work = Work::Copy(COPY);
        let p = Pipeline::fit(&JACK, &work);
        assert!((p.first * work.per_byte() - 2.0 * JACK.latency).abs() < 1e-12);
        assert!((p.growth - 4.53 / 3.0).abs() < 1e-9);
        // n chunks of C0·qⁱ add up to the message: C0·(qⁿ - 1)/(q - 1) = L.
        for len in [1e5, 1e6, 1e8] {
            let n = p.chunks(len);
            let held = p.first * (p.growth.powf(n) - 1.0) / (p.growth - 1.0);
            assert!((held / len - 1.0).abs() < 1e-9, "{held} of {len}");
        }
    }

    #[test]
    fn a_pipeline_slower_than_the_network_has_equal_chunks() {
        // A copy followed by a sum at 6 GB/s is slower than the network: q would be below 1.
        let slow = Work::CopyThenSum(COPY, SUM);
        assert!(slow.rate() < JACK.rate);
        let p = Pipeline::fit(&JACK, &slow);
        assert_eq!(p.growth, 1.0);
        assert!((p.chunks(10.0 * p.first) - 10.0).abs() < 1e-9);
        // A long message takes the time of the work plus a gap per chunk.
        let time = p.time(&JACK, &slow, 1e9);
        let expected = 1e9 / slow.rate() + JACK.gap * p.chunks(1e9);
        assert!((time / expected - 1.0).abs() < 1e-3, "{time} {expected}");
    }

    #[test]
    fn the_eager_threshold_is_where_both_cost_the_same() {
        let limit = 1 << 30;
        let at = eager_threshold(&JACK, &FUSED, &FUSED, limit);
        let pipeline = Pipeline::fit(&JACK, &FUSED);
        let both = |len: usize| {
            let len = len as f64;
            (
                eager(&JACK, &FUSED, len),
                rendezvous(&JACK, &FUSED, &pipeline, len),
            )
        };
        let (e, r) = both(at);
        assert!(e <= r, "{e} {r}");
        let (e, r) = both(at + 1);
        assert!(e > r, "{e} {r}");
        // Both costs are equal at some 10 KiB, close to the papers' 16 KiB.
        assert!((8_192..20_000).contains(&at), "{at}");
        assert_eq!(eager_threshold(&JACK, &FUSED, &FUSED, 1000), 1000);
        assert_eq!(eager_threshold(&JACK, &FUSED, &FUSED, 0), 0);
    }
}
