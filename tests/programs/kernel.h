/* Common code of the kernels: size and iterations from the command line, a core per rank on
 * request, a run that is timed on all ranks, and a final line
 *
 *   kernel NAME verified yes|no SECONDS s CHECKED
 *
 * SECONDS is the slowest rank's time of the timed part, CHECKED names the comparison. The exit
 * status is 0 only if the result is right. With --slices MS, lines
 *
 *   slice NUMBER ITERATIONS SECONDS
 *
 * come first, one per slice of MS ms of CLOCK_MONOTONIC: the number of iterations that rank 0 began
 * and ended in it, and their mean duration. */
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

/* Excluded time at the beginning of a slice: the library's thread acts every 10 ms. */
static const double SLICE_LEAD_S = 0.03;
enum { SLICES_MAX = 4096 };
static double slice_s, step_start;
static struct {
    long number, iterations;
    double seconds;
} slices[SLICES_MAX];
static int slice_count;

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

/* Pins only this thread: the library's own threads already run. */
static void pin_to_core(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(rank % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* Parses `[--pin] [--slices MS] [--size N] [--iterations N]`, positive numbers; missing options
 * keep defaults. */
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
        if (v > 0 && !strcmp((*argv)[i], "--slices")) {
            slice_s = (double)v * 1e-3;
            continue;
        }
        if (v > 0 && !strcmp((*argv)[i], "--size"))
            *size = v;
        else if (v > 0 && !strcmp((*argv)[i], "--iterations"))
            *iterations = v;
        else
            fail("what I take is [--pin] [--slices MS] [--size N] [--iterations N]");
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

/* An iteration begins, and the one before it ends. */
static inline void kernel_step(void)
{
    if (slice_s == 0 || rank != 0)
        return;
    double now = now_s(), begun = step_start;
    step_start = now;
    long number = (long)(begun / slice_s);
    if (begun == 0 || (long)(now / slice_s) != number || begun - number * slice_s < SLICE_LEAD_S)
        return;
    if (slice_count == 0 || slices[slice_count - 1].number != number) {
        if (slice_count == SLICES_MAX)
            return;
        slices[slice_count++].number = number;
    }
    slices[slice_count - 1].iterations++;
    slices[slice_count - 1].seconds += now - begun;
}

/* Seconds since kernel_begin on the slowest rank; valid on rank 0. */
static inline double kernel_end(void)
{
    kernel_step();
    double mine = now_s() - kernel_start, most = 0;
    for (int i = 0; i < slice_count; i++)
        printf("slice %ld %ld %.9f\n", slices[i].number, slices[i].iterations,
               slices[i].seconds / slices[i].iterations);
    MPI_Reduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return most;
}

/* Prints the result line and finalises; `good` is combined over all ranks. */
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
