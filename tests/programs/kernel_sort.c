/* Integer sort, like NAS IS: every rank counts its keys in buckets, the counts are summed, buckets
 * are assigned to ranks such that all have about as many keys, and the keys move (alltoallv).
 *
 *   kernel_sort [--size KEYS_PER_RANK] [--iterations N]
 *
 * Verified: the order within and between ranks, and that the keys are the original ones (by their
 * number and the sums of two functions of them).
 */
#include "kernel.h"

enum { BUCKETS = 1024, KEY_BITS = 24 };

typedef struct {
    uint64_t count, sum, mixed;
} Multiset;

static void note(Multiset *m, const uint32_t *keys, long n)
{
    m->count += (uint64_t)n;
    for (long i = 0; i < n; i++) {
        m->sum += keys[i];
        m->mixed += mix64(keys[i] + 1);
    }
}

static void make_keys(uint32_t *keys, long n, long iteration)
{
    uint64_t base = pattern_key(rank, 0, (uint64_t)iteration, 7);
    for (long i = 0; i < n; i++) {
        /* The mean of two: more in the middle, as in NAS IS, so that buckets are uneven. */
        uint64_t r = mix64(base + (uint64_t)i);
        uint32_t mask = (1u << KEY_BITS) - 1;
        keys[i] = (((uint32_t)r & mask) + ((uint32_t)(r >> 32) & mask)) / 2;
    }
}

/* owner[b]: the rank of bucket b. */
static void deal(const uint64_t *total, int *owner)
{
    uint64_t all = 0, seen = 0;
    for (int b = 0; b < BUCKETS; b++)
        all += total[b];
    for (int b = 0; b < BUCKETS; b++) {
        int to = (int)(seen * (uint64_t)ranks / (all ? all : 1));
        owner[b] = to < ranks ? to : ranks - 1;
        seen += total[b];
    }
}

static void offsets(const int *counts, int *starts)
{
    for (int r = 0, at = 0; r < ranks; at += counts[r++])
        starts[r] = at;
}

/* Sorts keys of KEY_BITS by two counting passes. */
static void sort_local(uint32_t *keys, uint32_t *spare, long n)
{
    enum { HALF = 1 << (KEY_BITS / 2) };
    static long at[HALF + 1];
    for (int pass = 0; pass < 2; pass++) {
        int shift = pass * KEY_BITS / 2;
        memset(at, 0, sizeof at);
        for (long i = 0; i < n; i++)
            at[((keys[i] >> shift) & (HALF - 1)) + 1]++;
        for (int d = 0; d < HALF; d++)
            at[d + 1] += at[d];
        for (long i = 0; i < n; i++)
            spare[at[(keys[i] >> shift) & (HALF - 1)]++] = keys[i];
        uint32_t *t = keys;
        keys = spare;
        spare = t;
    }
}

static int in_order(const uint32_t *keys, long n)
{
    int good = 1;
    for (long i = 1; i < n; i++)
        good &= keys[i - 1] <= keys[i];
    /* The largest key of all ranks before this one. */
    uint32_t mine = n ? keys[n - 1] : 0, before = 0;
    MPI_Exscan(&mine, &before, 1, MPI_UINT32_T, MPI_MAX, MPI_COMM_WORLD);
    return good && (rank == 0 || n == 0 || before <= keys[0]);
}

int main(int argc, char **argv)
{
    long n = 1 << 20, iterations = 20, got = 0;
    kernel_init(&argc, &argv, "sort", &n, &iterations);
    if (n > 1 << 26)
        fail("at most 2^26 keys per rank");
    size_t room = (size_t)n * 2 + (1 << 20);
    uint32_t *keys = need((size_t)n, 4), *out = need((size_t)n, 4), *in = need(room, 4);
    uint32_t *spare = need(room, 4);
    int *counts = need(4 * (size_t)ranks, sizeof(int));
    int *starts = counts + ranks, *counts_in = starts + ranks, *starts_in = counts_in + ranks;
    static uint64_t mine[BUCKETS], total[BUCKETS];
    static int owner[BUCKETS];
    Multiset made = {0}, found = {0}, m[2];
    int good = 1;

    kernel_begin();
    for (long it = 0; it < iterations; it++) {
        kernel_step();
        make_keys(keys, n, it);
        note(&made, keys, n);
        memset(mine, 0, sizeof mine);
        for (long i = 0; i < n; i++)
            mine[keys[i] >> (KEY_BITS - 10)]++;
        MPI_Allreduce(mine, total, BUCKETS, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        deal(total, owner);
        memset(counts, 0, sizeof(int) * (size_t)ranks);
        for (int b = 0; b < BUCKETS; b++)
            counts[owner[b]] += (int)mine[b];
        MPI_Alltoall(counts, 1, MPI_INT, counts_in, 1, MPI_INT, MPI_COMM_WORLD);
        offsets(counts, starts);
        offsets(counts_in, starts_in);
        got = starts_in[ranks - 1] + counts_in[ranks - 1];
        if ((size_t)got > room)
            MPI_Abort(MPI_COMM_WORLD, 2); /* impossible with this distribution of keys */
        for (long i = 0; i < n; i++)
            out[starts[owner[keys[i] >> (KEY_BITS - 10)]]++] = keys[i];
        offsets(counts, starts);
        MPI_Alltoallv(out, counts, starts, MPI_UINT32_T, in, counts_in, starts_in, MPI_UINT32_T,
                      MPI_COMM_WORLD);
        sort_local(in, spare, got);
        note(&found, in, got);
        good &= in_order(in, got);
    }
    double seconds = kernel_end();

    MPI_Allreduce(&made, &m[0], 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&found, &m[1], 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    good &= !memcmp(&m[0], &m[1], sizeof m[0]);
    return kernel_finish(good, seconds, "%llu keys in order", (unsigned long long)m[1].count);
}
