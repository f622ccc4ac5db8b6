/* Accumulates on long doubles, real and complex, with exact results: sums that need more bits than
 * a double has, maxima, and tickets from a counter.
 *
 *   wide [--rounds N] [--seed N]
 *
 * Prints "wide ok operations=N" at rank 0. */
#include "pattern.h"
#include <complex.h>
#include <mpi.h>
#include <stdlib.h>

/* At most 8 KiB of the longest kind: above, Intel MPI passes wrong addresses and MPICH uses
 * messages. */
enum { ELEMENTS = 250 };
typedef enum { REAL_SUM, COMPLEX_SUM, REAL_MAX, KINDS } Kind;

static int rank, size, rounds = 40;
static uint64_t seed = 1, state;
static long operations;

static uint64_t draw(uint64_t below)
{
    state += 0x9e3779b97f4a7c15ull;
    return mix64(state) % below;
}

/* A number that uses all mantissa bits: a sum in doubles would differ. */
static long double wide(int64_t n)
{
    return n + n * 0x1p-40L;
}

static long double _Complex wide_complex(int64_t n)
{
    return CMPLXL(wide(n), wide(-3 * n));
}

static void put_element(Kind kind, void *array, int at, int64_t n)
{
    if (kind == COMPLEX_SUM)
        ((long double _Complex *)array)[at] = wide_complex(n);
    else
        ((long double *)array)[at] = wide(n);
}

static int is_element(Kind kind, const void *array, int at, int64_t n)
{
    if (kind == COMPLEX_SUM)
        return ((const long double _Complex *)array)[at] == wide_complex(n);
    return ((const long double *)array)[at] == wide(n);
}

static void fail(const char *what, Kind kind, int at)
{
    fprintf(stderr, "rank %d: %s of kind %d at %d is wrong\n", rank, what, kind, at);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A window of one kind, with the info keys that let an MPI use the network's atomics. */
static MPI_Win open_window(size_t bytes, int unit, const char *op, void *memory)
{
    MPI_Info info;
    MPI_Win win;
    MPI_Info_create(&info);
    MPI_Info_set(info, "accumulate_ops", "same_op_no_op");
    MPI_Info_set(info, "accumulate_ordering", "none");
    MPI_Info_set(info, "which_accumulate_ops", op);
    MPI_Info_set(info, "disable_shm_accumulate", "true");
    MPI_Win_allocate(bytes, unit, info, MPI_COMM_WORLD, memory, &win);
    MPI_Info_free(&info);
    memset(*(void **)memory, 0, bytes);
    MPI_Win_lock_all(0, win);
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
    return win;
}

/* All ranks add to (or raise) the same elements; each computes the expected results itself. */
static void accumulate(Kind kind)
{
    int complex_ = kind == COMPLEX_SUM, max = kind == REAL_MAX;
    MPI_Datatype type = complex_ ? MPI_C_LONG_DOUBLE_COMPLEX : MPI_LONG_DOUBLE;
    MPI_Op op = max ? MPI_MAX : MPI_SUM;
    int unit = complex_ ? sizeof(long double _Complex) : sizeof(long double);
    int64_t *known = calloc((size_t)size * ELEMENTS, sizeof *known);
    void *memory, *from = calloc(ELEMENTS, unit), *old = calloc(ELEMENTS, unit);
    MPI_Win win = open_window((size_t)ELEMENTS * unit, unit, max ? "max,no_op" : "sum,no_op", &memory);
    for (int i = 0; i < rounds; i++) {
        int target = draw(size), count = draw(4) ? 1 + draw(16) : 1 + draw(ELEMENTS);
        int at = draw(ELEMENTS - count + 1);
        for (int k = 0; k < count; k++) {
            int64_t n = 1 + draw(1000), *all = &known[target * ELEMENTS + at + k];
            put_element(kind, from, k, n);
            *all = !max ? *all + n : n > *all ? n : *all;
        }
        if (draw(2))
            MPI_Accumulate(from, count, type, target, at, count, type, op, win);
        else
            MPI_Get_accumulate(from, count, type, old, count, type, target, at, count, type, op, win);
        MPI_Win_flush(target, win);
        operations++;
    }
    MPI_Allreduce(MPI_IN_PLACE, known, size * ELEMENTS, MPI_INT64_T, op, MPI_COMM_WORLD);
    MPI_Win_sync(win);
    for (int k = 0; k < ELEMENTS; k++)
        if (!is_element(kind, memory, k, known[rank * ELEMENTS + k]))
            fail("an element", kind, k);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    free(known);
    free(from);
    free(old);
}

/* All ranks increment a counter: each value is returned once. */
static void tickets(void)
{
    long double *memory, step = wide(1), old;
    int64_t n = (int64_t)rounds * size, *seen = calloc(n, sizeof *seen);
    MPI_Win win = open_window(sizeof *memory, sizeof *memory, "sum,no_op", &memory);
    for (int i = 0; i < rounds; i++) {
        MPI_Fetch_and_op(&step, &old, MPI_LONG_DOUBLE, 0, 0, MPI_SUM, win);
        MPI_Win_flush(0, win);
        int64_t ticket = (int64_t)old;
        if (ticket < 0 || ticket >= n || old != wide(ticket))
            fail("a ticket", REAL_SUM, i);
        seen[ticket]++;
        operations++;
    }
    MPI_Allreduce(MPI_IN_PLACE, seen, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (int64_t i = 0; i < n; i++)
        if (seen[i] != 1)
            fail("how often a ticket was handed out", REAL_SUM, i);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    free(seen);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--rounds"))
            rounds = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--seed"))
            seed = atoll(argv[i + 1]);
    }
    state = pattern_key(rank, 0, 0, seed);
    for (Kind kind = 0; kind < KINDS; kind++)
        accumulate(kind);
    tickets();
    MPI_Allreduce(MPI_IN_PLACE, &operations, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("wide ok operations=%ld\n", operations);
    MPI_Finalize();
    return 0;
}
