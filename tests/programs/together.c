/* Performance of collective calls, as CSV lines
 *
 *   together,TEST,RANKS,BYTES,VALUE,us
 *
 *   together [--seconds S] [--tests barrier,allreduce,allgather,fence] [--host] BYTES ...
 *
 * BYTES are contributed per rank; a barrier has none, and a fence ends an empty epoch. With --host
 * only the ranks of one host call together, those of all hosts at the same time. All ranks share
 * one machine and its monotonic clock. Each call has two lines: TEST, the mean of successive calls
 * until the last rank has finished the last, and TEST-apart, the median from the moment at which
 * all ranks wake from a sleep until the last rank is done. */
#define _GNU_SOURCE
#include <mpi.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { APART_MAX = 4000, WARM_UP = 20, PAUSE_NS = 1000000 };
static int rank, ranks;
static double seconds = 0.3;
static double *from, *to;
static MPI_Comm group = MPI_COMM_WORLD;
static MPI_Win window;
enum { BARRIER, ALLREDUCE, ALLGATHER, FENCE, TESTS };
static const char *const names[TESTS] = {"barrier", "allreduce", "allgather", "fence"};
static const char *tests = "barrier,allreduce,allgather";

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void call(int test, size_t size)
{
    int count = (int)(size / sizeof *from);
    if (test == BARRIER)
        MPI_Barrier(group);
    else if (test == ALLREDUCE)
        MPI_Allreduce(from, to, count, MPI_DOUBLE, MPI_SUM, group);
    else if (test == ALLGATHER)
        MPI_Allgather(from, count, MPI_DOUBLE, to, count, MPI_DOUBLE, group);
    else
        MPI_Win_fence(0, window);
}

static int agree(int value)
{
    PMPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return value;
}

static double latest(double mine)
{
    double last;
    PMPI_Allreduce(&mine, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return last;
}

static double one_after_another(int test, size_t size)
{
    for (int count = 16;;) {
        PMPI_Barrier(MPI_COMM_WORLD);
        double start = clock_s();
        for (int i = 0; i < count; i++)
            call(test, size);
        double took = latest(clock_s()) - start;
        if (!agree(took < seconds))
            return took / count * 1e6;
        count = agree((int)(count * (took < seconds / 8 ? 4 : 1.3 * seconds / took)) + 1);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double apart(int test, size_t size)
{
    static double took[APART_MAX];
    int n = 0;
    double start = clock_s();
    for (int more = 1; more; n++) {
        struct timespec now, pause;
        clock_gettime(CLOCK_MONOTONIC, &now);
        long long moment = now.tv_sec * 1000000000LL + now.tv_nsec + PAUSE_NS;
        PMPI_Bcast(&moment, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
        pause.tv_sec = moment / 1000000000LL;
        pause.tv_nsec = moment % 1000000000LL;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &pause, NULL);
        call(test, size);
        took[n] = latest(clock_s()) - 1e-9 * (double)moment;
        if (n % 16 == 15)
            more = agree(clock_s() - start < seconds && n + 16 < APART_MAX);
    }
    qsort(took, (size_t)n, sizeof *took, ascending);
    return took[n / 2] * 1e6;
}

/* Measures a call, and prints it. */
static void measure(int test, size_t size)
{
    from = calloc(size + 1, 1);
    to = calloc(size + 1, (size_t)ranks);
    if (test == FENCE)
        MPI_Win_create(from, (MPI_Aint)size, 1, MPI_INFO_NULL, group, &window);
    for (int n = 0; n < WARM_UP; n++)
        call(test, size);
    double each = one_after_another(test, size), alone = apart(test, size);
    if (rank == 0) {
        printf("together,%s,%d,%zu,%.2f,us\n", names[test], ranks, size, each);
        printf("together,%s-apart,%d,%zu,%.2f,us\n", names[test], ranks, size, alone);
        fflush(stdout);
    }
    if (test == FENCE)
        MPI_Win_free(&window);
    free(from);
    free(to);
}

int main(int argc, char **argv)
{
    int host = 0;
    static struct option options[] = {{"seconds", 1, 0, 's'}, {"tests", 1, 0, 't'}, {"host", 0, 0, 'h'}, {0, 0, 0, 0}};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 's') seconds = atof(optarg);
        else if (o == 't') tests = optarg;
        else if (o == 'h') host = 1;
        else return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (host)
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &group);
    MPI_Comm_size(group, &ranks);
    /* What is agreed for a communicator is agreed here, if at all. */
    int nothing = 0;
    MPI_Bcast(&nothing, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int test = 0; test < TESTS; test++) {
        int has_sizes = test == ALLREDUCE || test == ALLGATHER;
        for (int i = optind; i < argc && strstr(tests, names[test]); i++) {
            measure(test, has_sizes ? strtoull(argv[i], NULL, 0) : 0);
            if (!has_sizes)
                break;
        }
    }
    return MPI_Finalize();
}
