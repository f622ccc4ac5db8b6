/* Variants of MPI_Bcast, and calls that must not interfere with it: MPI_Ibcast and MPI_Bcast_init
 * in progress during broadcasts and sums on the same communicator, MPI_Bcast_c, intercommunicators,
 * created and freed communicators, empty broadcasts, and several threads. Every byte is checked.
 * Prints `doors ok`.
 *
 *   doors [ROUNDS]
 */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>

#include "pattern.h"

enum { THREADS = 3, SIZE = 40000, ROUNDS = 20 };
static int rank, ranks, rounds = ROUNDS;
static MPI_Comm own[THREADS];

static void wrong(const char *what, int n)
{
    printf("doors MISMATCH: %s, rank %d, round %d\n", what, rank, n);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(unsigned char *to, size_t size, int root, int me, uint64_t n)
{
    if (me == root)
        pattern_fill(to, size, pattern_key(root, 0, n, 0));
    else
        memset(to, 0, size);
}

static void check(const char *what, unsigned char *at, size_t size, int root, uint64_t n)
{
    size_t first = 0;
    if (pattern_check(at, size, pattern_key(root, 0, n, 0), &first))
        wrong(what, (int)n);
}

/* Broadcasts by all calls on one communicator, begun before earlier ones have ended. */
static void forms(MPI_Comm comm, uint64_t n)
{
    int me, size, root;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &size);
    root = (int)(n % (uint64_t)size);
    unsigned char *a = malloc(SIZE), *b = malloc(SIZE), *c = malloc(SIZE);
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    int count = 1;
    fill(a, SIZE, root, me, n), fill(b, SIZE, root, me, n + 1), fill(c, SIZE, root, me, n + 2);
    MPI_Ibcast(a, SIZE, MPI_BYTE, root, comm, &requests[0]);
#if MPI_VERSION >= 4 || defined(OMPI_HAVE_MPI_EXT) || OMPI_MAJOR_VERSION >= 5
    MPI_Bcast_init(b, SIZE, MPI_BYTE, root, comm, MPI_INFO_NULL, &requests[1]);
    MPI_Start(&requests[1]), count = 2;
#else
    MPI_Bcast(b, SIZE, MPI_BYTE, root, comm);
#endif
    MPI_Bcast(c, SIZE, MPI_BYTE, root, comm);
    check("MPI_Bcast", c, SIZE, root, n + 2);
    double sum[3] = {me + 1, (double)n, 1}, all[3 * 64];
    MPI_Allreduce(MPI_IN_PLACE, sum, 3, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Barrier(comm);
    MPI_Allgather(sum, 3, MPI_DOUBLE, all, 3, MPI_DOUBLE, comm);
    for (int i = 0; i < 3 * size; i++)
        if (all[i] != (i % 3 == 0 ? size * (size + 1) / 2 : i % 3 == 1 ? (double)n * size : size))
            wrong("MPI_Allreduce and MPI_Allgather", (int)n);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    if (count == 2)
        MPI_Request_free(&requests[1]);
    check("MPI_Ibcast", a, SIZE, root, n);
    check("MPI_Bcast_init", b, SIZE, root, n + 1);
#if MPI_VERSION >= 4
    /* Some ranks use one call, some the other. */
    fill(a, SIZE, root, me, n + 3);
    if (me % 2)
        MPI_Bcast_c(a, SIZE, MPI_BYTE, root, comm);
    else
        MPI_Bcast(a, SIZE, MPI_BYTE, root, comm);
    check("MPI_Bcast_c", a, SIZE, root, n + 3);
#endif
    MPI_Bcast(NULL, 0, MPI_BYTE, root, comm);
    free(a), free(b), free(c);
}

/* A broadcast from the last rank of the first group to the second group. */
static void between(int n)
{
    unsigned char bytes[3000];
    int low = rank < ranks / 2, root = ranks / 2 - 1;
    MPI_Comm local, inter;
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &local);
    MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, low ? ranks / 2 : 0, 5, &inter);
    fill(bytes, sizeof bytes, root, rank, (uint64_t)n);
    MPI_Bcast(bytes, sizeof bytes, MPI_BYTE, !low ? root : rank == root ? MPI_ROOT : MPI_PROC_NULL, inter);
    if (!low || rank == root)
        check("intercommunicator", bytes, sizeof bytes, root, (uint64_t)n);
    int least = rank, other = low ? ranks / 2 : 0;
    MPI_Allreduce(&rank, &least, 1, MPI_INT, MPI_MIN, inter);
    if (least != other)
        wrong("MPI_Allreduce of an intercommunicator", n);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&local);
}

static void *threaded(void *at)
{
    for (int n = 0; n < rounds; n++)
        forms(*(MPI_Comm *)at, (uint64_t)n * 8);
    return NULL;
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 1)
        rounds = atoi(argv[1]);
    for (int n = 0; n < 3; n++) {
        MPI_Comm made;
        MPI_Comm_dup(MPI_COMM_WORLD, &made);
        forms(made, (uint64_t)n * 8);
        between(n);
        MPI_Comm_free(&made);
    }
    if (provided == MPI_THREAD_MULTIPLE) {
        pthread_t id[THREADS];
        for (int t = 0; t < THREADS; t++)
            MPI_Comm_dup(MPI_COMM_WORLD, &own[t]);
        for (int t = 0; t < THREADS; t++)
            pthread_create(&id[t], NULL, threaded, &own[t]);
        for (int t = 0; t < THREADS; t++)
            pthread_join(id[t], NULL);
        for (int t = 0; t < THREADS; t++)
            MPI_Comm_free(&own[t]);
    }
    if (rank == 0)
        printf("doors ok threads=%d\n", provided == MPI_THREAD_MULTIPLE ? THREADS : 0);
    return MPI_Finalize();
}
