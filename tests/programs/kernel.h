/* What the kernels share: size and iterations from the command line, a core for each rank on demand, a run that is timed on all ranks
 * and a line at the end,
 *
 *   kernel NAME verified yes|no SECONDS s CHECKED
 *
 * SECONDS is the slowest rank's time of the timed part, CHECKED says what was compared. The exit
 * status is 0 only if the result is right. */
#ifndef MARLINE_KERNEL_H
#define MARLINE_KERNEL_H

#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "pattern.h"

static const char *kernel_name;
static int rank, ranks;
static double kernel_start;

static void fail(const char *text)
{
    if (rank == 0)
        fprintf(stderr, "%s: %s\n", kernel_name, text);
    MPI_Finalize();
    exit(2);
}

static inline void *need(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);
    if (!p) {
        fprintf(stderr, "%s: rank %d: out of memory\n", kernel_name, rank);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return p;
}

/* Only this thread: the library's own threads were started before. */
static void pin_to_core(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(rank % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* `[--pin] [--size N] [--iterations N]`: positive numbers; what is not given stays. */
static void kernel_init(int *argc, char ***argv, const char *name, long *size, long *iterations)
{
    kernel_name = name;
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i < *argc; i += 2) {
        if (!strcmp((*argv)[i], "--pin")) {
            pin_to_core();
            i--;
            continue;
        }
        long v = i + 1 < *argc ? atol((*argv)[i + 1]) : 0;
        if (v > 0 && !strcmp((*argv)[i], "--size"))
            *size = v;
        else if (v > 0 && !strcmp((*argv)[i], "--iterations"))
            *iterations = v;
        else
            fail("what I take is [--pin] [--size N] [--iterations N]");
    }
}

static inline int power_of_two(long n)
{
    return n > 0 && !(n & (n - 1));
}

static inline void kernel_begin(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    kernel_start = now_s();
}

/* Seconds since kernel_begin on the slowest rank; known to rank 0. */
static inline double kernel_end(void)
{
    double mine = now_s() - kernel_start, most = 0;
    MPI_Reduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return most;
}

/* Prints the line and ends; `good` is asked of every rank. */
static inline int kernel_finish(int good, double seconds, const char *checked, ...)
{
    int all = 0;
    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    if (rank == 0) {
        va_list args;
        va_start(args, checked);
        printf("kernel %s verified %s %.4f s ", kernel_name, all ? "yes" : "no", seconds);
        vprintf(checked, args);
        printf("\n");
        va_end(args);
        fflush(stdout);
    }
    MPI_Finalize();
    return !all;
}

#endif
