/* Jobs of many ranks: how long they take to start, whether an all-to-all and a reduction are right,
 * and what memory a rank has then.
 *
 *   many
 *
 * Rank 0 prints
 *
 *   many ok ranks=N start_s=S alltoall_s=S allreduce_s=S pss_kib=K rss_kib=K
 *
 * start_s: time from the start of the first process to the end of the first barrier. alltoall_s: time
 * of the first all-to-all, with first contact of all pairs. pss_kib, rss_kib: memory of a rank on
 * average, by its share of pages and as VmRSS. On a wrong value, another text and exit code 1. */
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "pattern.h"

enum { ROUNDS = 3 };

static double seconds(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return (double)now.tv_sec + (double)now.tv_usec / 1e6;
}

/* When this process began: the boot time and the start in ticks since then. */
static double began(void)
{
    double up = 0;
    unsigned long long ticks = 0;
    char line[4096] = "";
    FILE *file = fopen("/proc/uptime", "r");
    if (!file || fscanf(file, "%lf", &up) != 1)
        exit(2);
    fclose(file);
    file = fopen("/proc/self/stat", "r");
    if (!file || !fgets(line, sizeof(line), file))
        exit(2);
    fclose(file);
    char *at = strrchr(line, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at || sscanf(at, "%llu", &ticks) != 1)
        exit(2);
    return seconds() - up + (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

/* A line of a file of /proc/self that begins with this name, in KiB; -1 without one. */
static double kib_of(const char *path, const char *name)
{
    char line[256];
    double kib = -1;
    FILE *file = fopen(path, "r");
    while (file && kib < 0 && fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0)
            sscanf(line + strlen(name), "%lf", &kib);
    if (file)
        fclose(file);
    return kib;
}

static uint64_t value(int from, int to, int round)
{
    return mix64((uint64_t)from << 40 | (uint64_t)to << 16 | (uint64_t)round);
}

/* An all-to-all of one word each; returns how many are wrong. */
static long alltoall(int rank, int ranks, int round)
{
    uint64_t *out = malloc(8 * (size_t)ranks), *in = malloc(8 * (size_t)ranks);
    MPI_Request *requests = malloc(2 * sizeof(MPI_Request) * (size_t)ranks);
    long wrong = 0;
    if (!out || !in || !requests)
        MPI_Abort(MPI_COMM_WORLD, 2);
    /* Not MPI_Alltoall, whose algorithm for short messages lets few pairs meet. */
    for (int i = 0; i < ranks; i++)
        MPI_Irecv(&in[i], 1, MPI_UINT64_T, i, round, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < ranks; i++) {
        int to = (rank + i) % ranks;
        out[to] = value(rank, to, round);
        MPI_Isend(&out[to], 1, MPI_UINT64_T, to, round, MPI_COMM_WORLD, &requests[ranks + i]);
    }
    MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < ranks; i++)
        wrong += in[i] != value(i, rank, round);
    MPI_Alltoall(out, 1, MPI_UINT64_T, in, 1, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; i++)
        wrong += in[i] != value(i, rank, round);
    free(out);
    free(in);
    free(requests);
    return wrong;
}

static long allreduce(int rank, int ranks, int round)
{
    long own = (long)rank * (round + 1), sum = 0;
    MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return sum != (long)ranks * (ranks - 1) / 2 * (round + 1);
}

int main(int argc, char **argv)
{
    double start = began(), first, times[3], longest, memory[2], all[2];
    int rank, ranks;
    long wrong = 0, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Allreduce(&start, &first, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    times[0] = seconds() - first;
    double from = seconds();
    for (int round = 0; round < ROUNDS; round++) {
        wrong += alltoall(rank, ranks, round);
        if (round == 0)
            times[1] = seconds() - from;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    from = seconds();
    for (int round = 0; round < ROUNDS; round++)
        wrong += allreduce(rank, ranks, round);
    times[2] = (seconds() - from) / ROUNDS;
    memory[0] = kib_of("/proc/self/smaps_rollup", "Pss:");
    memory[1] = kib_of("/proc/self/status", "VmRSS:");
    MPI_Reduce(&times[1], &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(memory, all, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&wrong, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && sum == 0)
        printf("many ok ranks=%d start_s=%.2f alltoall_s=%.3f allreduce_s=%.4f pss_kib=%.0f rss_kib=%.0f\n", ranks,
               times[0], longest, times[2], all[0] / ranks, all[1] / ranks);
    if (rank == 0 && sum != 0)
        printf("many: %ld wrong values\n", sum);
    MPI_Finalize();
    return sum != 0;
}
