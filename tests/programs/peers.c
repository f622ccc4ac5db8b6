/* Many messages of 1 to 8 KiB between many peers, as molecular dynamics with over-decomposition
 * sends them: mostly in one direction, as each rank sends three quarters of its messages to the
 * half of the ranks after it. Every byte is checked.
 *
 *   peers [--messages N] [--rate N]
 *
 * Each rank sends N messages, at most `rate` per second (0: unlimited), and prints at the end
 *
 *   peers ok messages_per_s=R mb_per_s=R peers=N
 *
 * with averages per process; on a wrong byte, another text and exit code 1. */
#define _GNU_SOURCE
#include <mpi.h>
#include <getopt.h>
#include <stdlib.h>

#include "pattern.h"

enum { LARGEST = 8192, SENDS = 32, RECEIVES = 64, TAGS = 32768 };
static int rank, ranks;
static long messages = 20000;
static double rate = 7000;
static unsigned char outgoing[SENDS][LARGEST], incoming[RECEIVES][LARGEST];
static long wrong;

/* Half of the messages have 1 KiB, a quarter 2, an eighth each 4 and 8 KiB. */
static int length(uint64_t draw)
{
    int twice = draw & 1 ? 0 : draw & 2 ? 1 : draw & 4 ? 2 : 3;
    return 1024 << twice;
}

static uint64_t draw_of(int from, long number)
{
    return mix64(mix64((uint64_t)from + 1) + (uint64_t)number);
}

static int target(int from, uint64_t draw)
{
    int others = ranks - 1, near = (ranks + 1) / 2;
    int reach = (draw >> 8) % 4 == 0 || near > others ? others : near;
    return (from + 1 + (int)((draw >> 16) % (unsigned)reach)) % ranks;
}

static void check(int slot, const MPI_Status *status)
{
    int got;
    size_t first;
    MPI_Get_count(status, MPI_BYTE, &got);
    uint64_t key = pattern_key(status->MPI_SOURCE, rank, (uint64_t)status->MPI_TAG, 0);
    wrong += pattern_check(incoming[slot], (size_t)got, key, &first) != 0;
}

/* Sends all messages while receiving `expected`; returns the bytes sent. */
static double exchange(long expected)
{
    MPI_Request sends[SENDS], receives[RECEIVES];
    MPI_Status status;
    long sent = 0, posted = 0, received = 0;
    double bytes = 0, start = MPI_Wtime();
    for (int i = 0; i < SENDS; i++)
        sends[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < RECEIVES; i++) {
        receives[i] = MPI_REQUEST_NULL;
        if (posted++ < expected)
            MPI_Irecv(incoming[i], LARGEST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
                      &receives[i]);
    }
    while (sent < messages || received < expected) {
        int slot = 0, done = 0;
        if (received < expected)
            MPI_Testany(RECEIVES, receives, &slot, &done, &status);
        if (done && slot != MPI_UNDEFINED) {
            check(slot, &status);
            received++;
            if (posted++ < expected)
                MPI_Irecv(incoming[slot], LARGEST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
                          &receives[slot]);
        }
        if (sent == messages || (rate > 0 && (double)sent > (MPI_Wtime() - start) * rate))
            continue;
        int place = (int)(sent % SENDS), free_now;
        MPI_Test(&sends[place], &free_now, MPI_STATUS_IGNORE);
        if (!free_now)
            continue;
        uint64_t draw = draw_of(rank, sent);
        int to = target(rank, draw), len = length(draw), tag = (int)(sent % TAGS);
        pattern_fill(outgoing[place], (size_t)len, pattern_key(rank, to, (uint64_t)tag, 0));
        MPI_Isend(outgoing[place], len, MPI_BYTE, to, tag, MPI_COMM_WORLD, &sends[place]);
        bytes += len;
        sent++;
    }
    MPI_Waitall(SENDS, sends, MPI_STATUSES_IGNORE);
    return bytes;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"messages", required_argument, 0, 'm'}, {"rate", required_argument, 0, 'r'}, {0}};
    int option;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'm')
            messages = atol(optarg);
        else if (option == 'r')
            rate = atof(optarg);
        else
            MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (ranks < 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    long expected = 0;
    for (int from = 0; from < ranks; from++)
        for (long i = 0; from != rank && i < messages; i++)
            expected += target(from, draw_of(from, i)) == rank;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime(), bytes = exchange(expected);
    MPI_Barrier(MPI_COMM_WORLD);
    double took = MPI_Wtime() - start, sum;
    long all_wrong;
    MPI_Reduce(&bytes, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("peers %s messages_per_s=%.0f mb_per_s=%.2f peers=%d\n", all_wrong ? "WRONG" : "ok",
               (double)messages / took, sum / 1e6 / took / ranks, ranks - 1);
    MPI_Finalize();
    return all_wrong != 0;
}
