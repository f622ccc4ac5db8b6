/* One-sided operations of every kind, verified: puts and gets of sizes around all thresholds, with
 * and without requests; accumulates and fetches with exact sums; locks by compare-and-swap;
 * exclusive locks; fences; dynamic windows.
 *
 *   rma [--rounds N] [--max-size BYTES] [--seed N] [--compute MS] [--gets N] [--increments N]
 *
 * --increments: each rank only increments a counter N times. --gets: each rank only gets N pieces
 * of 64 KiB at once from the next rank, in every round. --compute: rank 0 computes, up to MS ms,
 * until the others have finished with its memory: its library serves it meanwhile, and each rank
 * prints the duration. Prints "rma ok operations=N" at rank 0. */
#include "pattern.h"
#include <mpi.h>
#include <stdlib.h>

enum { ELEMENTS = 700, SPINS = 12 };

static int rank, size;
static int rounds = 40, compute_ms = 0, gets = 0, increments = 0;
static size_t max_size = 300000;
static uint64_t seed = 1, state;
static long operations;

static const size_t edges[] = { 1, 8, 64, 448, 1024, 1472, 4000, 4072, 4073, 4096, 8192, 16384,
                                16385, 65536, 65537, 131072, 262144 };

static uint64_t draw(uint64_t below)
{
    state += 0x9e3779b97f4a7c15ull;
    return mix64(state) % below;
}

static void fail(const char *what, long got, long want)
{
    fprintf(stderr, "rank %d: %s: %ld, not %ld\n", rank, what, got, want);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(const void *buf, size_t len, uint64_t key, const char *what)
{
    size_t first = 0, wrong = pattern_check(buf, len, key, &first);
    if (wrong) {
        fprintf(stderr, "rank %d: %s of %zu bytes: %zu wrong, first at %zu\n", rank, what, len, wrong,
                first);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static size_t draw_size(void)
{
    size_t edge = edges[draw(sizeof edges / sizeof *edges)];
    size_t len = draw(3) ? edge + draw(3) - (edge > 1) : 1 + draw(max_size);
    return len < 1 ? 1 : len > max_size ? max_size : len;
}

static long total_of(long mine)
{
    long all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* Each rank has its own slot at every target. */
static void put_and_get(void)
{
    unsigned char *base, *from = malloc(max_size), *to = malloc(max_size);
    MPI_Win win;
    MPI_Win_allocate(max_size * size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_lock_all(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < rounds; i++) {
        int target = draw(size);
        size_t len = draw_size(), at = draw(max_size - len + 1);
        uint64_t key = pattern_key(rank, target, i, seed);
        MPI_Aint disp = (MPI_Aint)(max_size * rank + at);
        pattern_fill(from, len, key);
        if (draw(2)) {
            MPI_Put(from, len, MPI_BYTE, target, disp, len, MPI_BYTE, win);
            MPI_Win_flush(target, win);
            MPI_Get(to, len, MPI_BYTE, target, disp, len, MPI_BYTE, win);
            MPI_Win_flush(target, win);
        } else {
            MPI_Request request;
            MPI_Rput(from, len, MPI_BYTE, target, disp, len, MPI_BYTE, win, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Win_flush(target, win);
            MPI_Rget(to, len, MPI_BYTE, target, disp, len, MPI_BYTE, win, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        check(to, len, key, "put and got");
        operations += 2;
    }
    /* Many operations in flight at once, in pieces; the target checks them. */
    for (int target = 0; target < size; target++) {
        uint64_t key = pattern_key(rank, target, 1u << 20, seed);
        pattern_fill(from, max_size, key);
        for (size_t at = 0; at < max_size;) {
            size_t len = draw_size();
            len = len < max_size - at ? len : max_size - at;
            MPI_Put(from + at, len, MPI_BYTE, target, (MPI_Aint)(max_size * rank + at), len, MPI_BYTE,
                    win);
            at += len;
            operations++;
        }
        MPI_Win_flush(target, win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(win);
    for (int source = 0; source < size; source++)
        check(base + max_size * source, max_size, pattern_key(source, rank, 1u << 20, seed), "put");
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    free(from);
    free(to);
}

static MPI_Info hints(int on)
{
    if (!on)
        return MPI_INFO_NULL;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "accumulate_ops", "same_op");
    MPI_Info_set(info, "accumulate_ordering", "none");
    MPI_Info_set(info, "which_accumulate_ops", "sum,no_op,replace,cswap");
    /* Otherwise MPICH and Intel MPI do not use the network's atomics, as ranks of a host may
     * update. */
    MPI_Info_set(info, "disable_shm_accumulate", "true");
    return info;
}

/* All ranks increment a counter at rank 0 from its current value: each value is returned once. */
static void tickets(MPI_Win win, int64_t start, long each)
{
    int64_t ticket, step = 1;
    long seen = 0, n = each * size;
    MPI_Bcast(&start, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
    for (long i = 0; i < each; i++) {
        MPI_Fetch_and_op(&step, &ticket, MPI_INT64_T, 0, 0, MPI_SUM, win);
        MPI_Win_flush(0, win);
        seen += ticket - start;
        operations++;
    }
    if ((seen = total_of(seen)) != n * (n - 1) / 2)
        fail("tickets handed out", seen, n * (n - 1) / 2);
    MPI_Get_accumulate(NULL, 0, MPI_INT64_T, &ticket, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_NO_OP,
                       win);
    MPI_Win_flush(0, win);
    if (ticket != start + n)
        fail("value of the counter", ticket, start + n);
}

/* All ranks add to the same elements: sums are exact. Each window has one type and operation. */
static void accumulate(int hinted)
{
    MPI_Info info = hints(hinted);
    int64_t *sums, *one = malloc(ELEMENTS * sizeof *one), *old = malloc(ELEMENTS * sizeof *old);
    MPI_Win win;
    MPI_Win_allocate(ELEMENTS * sizeof *sums, sizeof *sums, info, MPI_COMM_WORLD, &sums, &win);
    memset(sums, 0, ELEMENTS * sizeof *sums);
    MPI_Win_lock_all(0, win);
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
    long added = 0, got = 0;
    for (int i = 0; i < rounds; i++) {
        int target = draw(size), count = draw(4) ? 1 + draw(16) : 1 + draw(ELEMENTS);
        int at = draw(ELEMENTS - count + 1);
        for (int k = 0; k < count; k++)
            one[k] = 1 + draw(1000), added += one[k];
        if (draw(2)) {
            MPI_Accumulate(one, count, MPI_INT64_T, target, at, count, MPI_INT64_T, MPI_SUM, win);
        } else {
            MPI_Get_accumulate(one, count, MPI_INT64_T, old, count, MPI_INT64_T, target, at, count,
                               MPI_INT64_T, MPI_SUM, win);
        }
        MPI_Win_flush(target, win);
        operations++;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(win);
    for (int k = 0; k < ELEMENTS; k++)
        got += sums[k];
    if ((got = total_of(got)) != (added = total_of(added)))
        fail("sum of accumulates", got, added);

    MPI_Barrier(MPI_COMM_WORLD);
    tickets(win, sums[0], 3 * rounds);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    if (hinted)
        MPI_Info_free(&info);
    free(one);
    free(old);
}

/* Only a counter that all ranks increment. */
static void count(void)
{
    MPI_Info info = hints(1);
    int64_t *counter;
    MPI_Win win;
    MPI_Win_allocate(sizeof *counter, sizeof *counter, info, MPI_COMM_WORLD, &counter, &win);
    *counter = 0;
    MPI_Win_lock_all(0, win);
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
    tickets(win, 0, increments);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    MPI_Info_free(&info);
}

/* A compare-and-swap lock protects a number that is read by get and written by put. */
static void swap_lock(int hinted)
{
    MPI_Info info = hints(hinted);
    int64_t *words;
    MPI_Win win;
    MPI_Win_allocate(2 * sizeof *words, sizeof *words, info, MPI_COMM_WORLD, &words, &win);
    words[0] = words[1] = 0;
    int owner = size - 1;
    MPI_Win_lock_all(0, win);
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < SPINS; i++) {
        int64_t free_ = 0, mine = rank + 1, found, value;
        do {
            MPI_Compare_and_swap(&mine, &free_, &found, MPI_INT64_T, owner, 0, win);
            MPI_Win_flush(owner, win);
            operations++;
        } while (found != 0);
        MPI_Get(&value, 1, MPI_INT64_T, owner, 1, 1, MPI_INT64_T, win);
        MPI_Win_flush(owner, win);
        value++;
        MPI_Put(&value, 1, MPI_INT64_T, owner, 1, 1, MPI_INT64_T, win);
        MPI_Win_flush(owner, win);
        MPI_Compare_and_swap(&free_, &mine, &found, MPI_INT64_T, owner, 0, win);
        MPI_Win_flush(owner, win);
        if (found != mine)
            fail("holder of the lock", found, mine);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(win);
    if (rank == owner && words[1] != (int64_t)SPINS * size)
        fail("number behind a lock", words[1], (long)SPINS * size);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    if (hinted)
        MPI_Info_free(&info);
}

static void exclusive(void)
{
    int64_t *number, value;
    MPI_Win win;
    MPI_Win_allocate(sizeof *number, sizeof *number, MPI_INFO_NULL, MPI_COMM_WORLD, &number, &win);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    *number = 0;
    MPI_Win_unlock(rank, win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < SPINS; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Get(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, win);
        MPI_Win_flush(0, win);
        value++;
        MPI_Put(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, win);
        MPI_Win_unlock(0, win);
        operations += 2;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        if (*number != (int64_t)SPINS * size)
            fail("number behind exclusive locks", *number, (long)SPINS * size);
        MPI_Win_unlock(0, win);
    }
    MPI_Win_free(&win);
}

/* Operations between fences on attached memory. */
static void dynamic(void)
{
    size_t len = max_size < 100000 ? max_size : 100000;
    unsigned char *mine = malloc(len), *from = malloc(len);
    MPI_Aint here, *all = malloc(size * sizeof *all);
    MPI_Win win;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_attach(win, mine, len);
    MPI_Get_address(mine, &here);
    MPI_Allgather(&here, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
    for (int i = 0; i < 4; i++) {
        int target = (rank + 1) % size, source = (rank + size - 1) % size;
        size_t part = i == 0 ? len : 1 + mix64(seed + i) % len;
        pattern_fill(from, part, pattern_key(rank, target, 900 + i, seed));
        MPI_Win_fence(0, win);
        MPI_Put(from, part, MPI_BYTE, target, all[target], part, MPI_BYTE, win);
        MPI_Win_fence(0, win);
        check(mine, part, pattern_key(source, rank, 900 + i, seed), "put between fences");
        operations++;
    }
    MPI_Win_detach(win, mine);
    MPI_Win_free(&win);
    free(mine);
    free(from);
    free(all);
}

/* Rank 0 computes without calling MPI until the others have put, got, counted and noted so in its
 * memory: if they needed its calls, it would compute to the end. */
static void compute(void)
{
    enum { COUNTS = 1000 };
    volatile int64_t *words;
    int64_t old, one = 1;
    MPI_Info info; /* otherwise MPICH and Intel MPI execute them in the target's calls */
    MPI_Info_create(&info);
    MPI_Info_set(info, "accumulate_ops", "same_op");
    MPI_Info_set(info, "disable_shm_accumulate", "true");
    MPI_Win win;
    MPI_Win_allocate((2 * size + 1) * sizeof *words, sizeof *words, info, MPI_COMM_WORLD, &words,
                     &win);
    MPI_Info_free(&info);
    for (int i = 0; i <= 2 * size; i++)
        words[i] = 0;
    MPI_Win_lock_all(0, win);
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        double end = now_s() + 1e-3 * compute_ms;
        for (int i = 1; i < size; i++) {
            while (words[size + i] != i && now_s() < end)
                ;
            if (words[size + i] != i)
                fail("word of a rank that nobody served", words[size + i], i);
        }
        if (words[2 * size] != COUNTS * (size - 1))
            fail("increments of ranks that were served", words[2 * size], COUNTS * (size - 1));
    } else {
        int64_t value = 1000 + rank, mark = rank;
        MPI_Put(&value, 1, MPI_INT64_T, 0, rank, 1, MPI_INT64_T, win);
        MPI_Win_flush(0, win);
        MPI_Get(&old, 1, MPI_INT64_T, 0, rank, 1, MPI_INT64_T, win);
        MPI_Win_flush(0, win);
        if (old != value)
            fail("value put and got", old, value);
        double start = now_s();
        for (int i = 0; i < COUNTS; i++) {
            MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 2 * size, MPI_SUM, win);
            MPI_Win_flush(0, win);
        }
        printf("rma rank=%d was served in %.2f us each\n", rank, 1e6 * (now_s() - start) / COUNTS);
        MPI_Put(&mark, 1, MPI_INT64_T, 0, size + rank, 1, MPI_INT64_T, win);
        MPI_Win_flush(0, win);
        operations += 3 + COUNTS;
    }
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
}

static void many_gets(void)
{
    const size_t len = 65536, all = gets * len;
    const int from = (rank + 1) % size;
    char *memory, *got = malloc(all);
    MPI_Win win;
    MPI_Win_allocate(all, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    pattern_fill(memory, all, pattern_key(rank, 0, 0, seed));
    MPI_Win_lock_all(0, win);
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < rounds; round++) {
        memset(got, 0, all);
        for (int i = 0; i < gets; i++)
            MPI_Get(got + i * len, len, MPI_BYTE, from, i * len, len, MPI_BYTE, win);
        MPI_Win_flush(from, win);
        check(got, all, pattern_key(from, 0, 0, seed), "gets at once");
        operations += gets;
    }
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    free(got);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i + 1 < argc; i += 2) {
        long value = atol(argv[i + 1]);
        if (!strcmp(argv[i], "--rounds"))
            rounds = value;
        else if (!strcmp(argv[i], "--max-size"))
            max_size = value;
        else if (!strcmp(argv[i], "--seed"))
            seed = value;
        else if (!strcmp(argv[i], "--compute"))
            compute_ms = value;
        else if (!strcmp(argv[i], "--gets"))
            gets = value;
        else if (!strcmp(argv[i], "--increments"))
            increments = value;
    }
    state = pattern_key(rank, 0, 0, seed);
    if (compute_ms) {
        compute();
    } else if (gets) {
        many_gets();
    } else if (increments) {
        count();
    } else {
        put_and_get();
        for (int hinted = 0; hinted < 2; hinted++) {
            accumulate(hinted);
            swap_lock(hinted);
        }
        exclusive();
        dynamic();
    }
    operations = total_of(operations);
    if (rank == 0)
        printf("rma ok operations=%ld\n", operations);
    MPI_Finalize();
    return 0;
}
