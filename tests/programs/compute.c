/* Communication while one side computes without calling MPI.
 *
 *   compute receiver [BYTES] [SECONDS [FILE]]   rank 1 posts a receive and computes; rank 0 times
 *                                               its send
 *   compute sender   [BYTES] [SECONDS [FILE]]   rank 0 isends and computes; rank 1 times the
 *                                               arrival
 *
 * Prints `compute receiver: send_ms=...` or `compute sender: arrival_ms=...`. Both ranks must run
 * on one machine: the arrival is measured with the sender's CLOCK_MONOTONIC. With FILE, the rank
 * that does not compute creates it when done; the other one stops computing then, and prints
 * `compute: told` if that happened during its computation.
 */
#include <mpi.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "pattern.h"

static const char *told;

static void compute(double seconds)
{
    volatile uint64_t x = 1;
    for (double end = now_s() + seconds; now_s() < end;)
        for (int i = 0; i < 1000; i++)
            x = mix64(x);
}

static int is_told(void)
{
    return told && !access(told, F_OK);
}

/* Computes for at most this time. */
static void compute_until_told(double seconds)
{
    for (double end = now_s() + seconds; now_s() < end && !is_told();)
        compute(told ? 1e-3 : seconds);
    if (is_told())
        printf("compute: told\n");
}

static void tell(void)
{
    if (told)
        close(open(told, O_CREAT | O_WRONLY, 0600));
}

static void check(const void *buf, size_t size, uint64_t key)
{
    size_t first = 0, wrong = pattern_check(buf, size, key, &first);
    if (wrong) {
        printf("compute MISMATCH offset=%zu wrong_bytes=%zu\n", first, wrong);
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void computing_receiver(int rank, unsigned char *buf, size_t size, double seconds)
{
    MPI_Request req;
    uint64_t key = pattern_key(0, 1, 0, 0);
    if (rank == 1) {
        MPI_Irecv(buf, (int)size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &req);
        MPI_Barrier(MPI_COMM_WORLD);
        compute_until_told(seconds);
        MPI_Wait(&req, MPI_STATUS_IGNORE);
        check(buf, size, key);
    } else {
        pattern_fill(buf, size, key);
        MPI_Barrier(MPI_COMM_WORLD);
        /* Rank 1 leaves the barrier within this time and computes afterwards. */
        compute(0.2);
        double t = now_s();
        MPI_Send(buf, (int)size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        t = now_s() - t;
        tell();
        printf("compute receiver: send_ms=%.3f bytes=%zu\n", t * 1e3, size);
    }
}

static void computing_sender(int rank, unsigned char *buf, size_t size, double seconds)
{
    MPI_Request req;
    uint64_t key = pattern_key(0, 1, 0, 0);
    if (rank == 0) {
        double t;
        pattern_fill(buf, size, key);
        MPI_Barrier(MPI_COMM_WORLD);
        compute(0.05);
        t = now_s();
        MPI_Isend(buf, (int)size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &req);
        compute_until_told(seconds);
        MPI_Wait(&req, MPI_STATUS_IGNORE);
        MPI_Send(&t, 1, MPI_DOUBLE, 1, 2, MPI_COMM_WORLD);
    } else {
        double sent, arrived;
        MPI_Irecv(buf, (int)size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &req);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&req, MPI_STATUS_IGNORE);
        arrived = now_s();
        tell();
        check(buf, size, key);
        MPI_Recv(&sent, 1, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("compute sender: arrival_ms=%.3f bytes=%zu\n", (arrived - sent) * 1e3, size);
    }
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 2 || ranks != 2) {
        fprintf(stderr, "usage: compute receiver|sender [BYTES] [SECONDS], on two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size_t size = argc > 2 ? strtoull(argv[2], NULL, 0) : 4u << 20;
    double seconds = argc > 3 ? atof(argv[3]) : 2;
    told = argc > 4 ? argv[4] : NULL;
    unsigned char *buf = malloc(size + 8);
    memset(buf, 0, size + 8);
    /* Both directions are used first, so that the measured time excludes first contact. */
    MPI_Sendrecv(buf, 8, MPI_BYTE, 1 - rank, 9, buf + size, 8, MPI_BYTE, 1 - rank, 9, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (!strcmp(argv[1], "receiver"))
        computing_receiver(rank, buf, size, seconds);
    else
        computing_sender(rank, buf, size, seconds);
    free(buf);
    MPI_Finalize();
    return 0;
}
