/* Latency and bandwidth of one-sided operations between two ranks, as CSV lines
 *
 *   onesided,TEST,BYTES,VALUE,UNIT
 *
 *   onesided [--samples N] [--seconds S] [--bytes SMALL,LONG]
 *
 * put, get, accumulate (a sum of 64-bit integers) and fetch-and-op: one at a time with a flush, the
 * mean time of one over a sample, in us. put and get of long pieces, four per flush, and long
 * accumulates one by one (MPICH crashes with several, its issue 7884), in GB/s. Rank 1 waits in
 * MPI_Barrier meanwhile, for transports that need the target's calls. Fetched values and the final
 * contents of rank 1's memory are checked. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 4, TESTS = 7 };
static const char *const NAMES[TESTS] = {"put", "get", "accumulate", "fetch_and_op",
                                         "put", "get", "accumulate"};
static int rank, samples = 3;
static double seconds = 0.2;
static size_t bytes[2] = {8, 4 << 20};
static int64_t *mine, *memory;
static MPI_Win win;

static void fail(const char *what, int64_t got, int64_t wanted)
{
    printf("onesided MISMATCH: %s is %ld, not %ld\n", what, (long)got, (long)wanted);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A window for one kind of operation, with the info keys that let an MPI use the network's atomics.
 */
static void open_window(size_t size)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "accumulate_ops", "same_op");
    MPI_Info_set(info, "disable_shm_accumulate", "true");
    MPI_Win_allocate(size, sizeof *memory, info, MPI_COMM_WORLD, &memory, &win);
    MPI_Info_free(&info);
    memset(memory, 0, size);
    MPI_Win_lock_all(0, win);
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Operations per flush. */
static int parts(int test)
{
    return test == 4 || test == 5 ? AT_ONCE : 1;
}

/* One operation on the target's elements from `at` on. */
static void operate(int test, int count, int at, int64_t *fetched)
{
    switch (test) {
    case 0:
    case 4:
        MPI_Put(mine, count, MPI_INT64_T, 1, at, count, MPI_INT64_T, win);
        break;
    case 1:
    case 5:
        MPI_Get(fetched, count, MPI_INT64_T, 1, at, count, MPI_INT64_T, win);
        break;
    case 3:
        MPI_Fetch_and_op(mine, fetched, MPI_INT64_T, 1, at, MPI_SUM, win);
        break;
    default:
        MPI_Accumulate(mine, count, MPI_INT64_T, 1, at, count, MPI_INT64_T, MPI_SUM, win);
    }
}

/* Repeats operations until the time is over; returns the number of rounds and their duration. */
static long rounds(int test, int count, long done, double *took)
{
    int64_t *fetched = malloc((size_t)AT_ONCE * count * sizeof *fetched);
    int at_once = parts(test);
    double start = MPI_Wtime();
    long n = 0;
    do {
        for (int i = 0; i < at_once; i++)
            operate(test, count, i * count, fetched + (size_t)i * count);
        MPI_Win_flush(1, win);
        if (test == 3 && *fetched != done + n)
            fail("what fetch-and-op brought", *fetched, done + n);
        n++;
        *took = MPI_Wtime() - start;
    } while (*took < seconds);
    free(fetched);
    return n;
}

static void measure(int test)
{
    int is_long = test >= 4, at_once = parts(test);
    int count = (int)(bytes[is_long] / sizeof *mine);
    size_t size = (size_t)at_once * count * sizeof *mine;
    long done = 0;
    open_window(size);
    for (int i = 0; i < count; i++)
        mine[i] = 1;
    for (int sample = -1; sample < samples; sample++) { /* the first is a warm-up */
        if (rank == 0) {
            double took, each;
            long n = rounds(test, count, done, &took);
            done += n;
            each = is_long ? size * (double)n / took / 1e9 : took / n * 1e6;
            if (sample >= 0)
                printf("onesided,%s,%zu,%.4f,%s\n", NAMES[test], bytes[is_long], each,
                       is_long ? "GB/s" : "us");
            fflush(stdout);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Bcast(&done, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t wanted = test == 1 || test == 5 ? 0 : test == 0 || test == 4 ? 1 : done;
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    if (rank == 1 && memory[size / sizeof *memory - 1] != wanted)
        fail(NAMES[test], memory[size / sizeof *memory - 1], wanted);
    MPI_Win_unlock(rank, win);
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--samples"))
            samples = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--seconds"))
            seconds = atof(argv[i + 1]);
        else if (!strcmp(argv[i], "--bytes"))
            sscanf(argv[i + 1], "%zu,%zu", &bytes[0], &bytes[1]);
    }
    if (size != 2) {
        fprintf(stderr, "onesided wants two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    mine = malloc(bytes[0] > bytes[1] ? bytes[0] : bytes[1]);
    for (int test = 0; test < TESTS; test++)
        measure(test);
    free(mine);
    if (rank == 0)
        printf("onesided ok\n");
    MPI_Finalize();
    return 0;
}
