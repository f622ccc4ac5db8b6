/* MPI_THREAD_MULTIPLE: several threads of each rank exchange verified messages concurrently.
 *
 *   threads [THREADS] [MESSAGES]
 */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>

#include "pattern.h"

enum { MAX_THREADS = 64, MAX_SIZE = 200000 };
static int rank, ranks, messages = 300;

static void *work(void *arg)
{
    int me = (int)(intptr_t)arg, right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    unsigned char *out = malloc(MAX_SIZE), *in = malloc(MAX_SIZE);
    for (int i = 0; i < messages; i++) {
        uint64_t seq = (uint64_t)me << 32 | (uint64_t)i;
        size_t first = 0, size = mix64(seq) % (i % 10 ? 3000 : MAX_SIZE);
        pattern_fill(out, size, pattern_key(rank, right, seq, 0));
        MPI_Sendrecv(out, (int)size, MPI_BYTE, right, me, in, (int)size, MPI_BYTE, left, me,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        size_t wrong = pattern_check(in, size, pattern_key(left, rank, seq, 0), &first);
        if (wrong) {
            printf("threads MISMATCH rank=%d thread=%d message=%d size=%zu offset=%zu\n", rank, me, i,
                   size, first);
            fflush(stdout);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    free(out), free(in);
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, count = argc > 1 ? atoi(argv[1]) : 4;
    pthread_t thread[MAX_THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 2)
        messages = atoi(argv[2]);
    if (provided < MPI_THREAD_MULTIPLE || count < 1 || count > MAX_THREADS) {
        fprintf(stderr, "threads: MPI_THREAD_MULTIPLE not provided, or a bad number of threads\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int i = 0; i < count; i++)
        pthread_create(&thread[i], NULL, work, (void *)(intptr_t)i);
    for (int i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("threads ok threads=%d messages=%d ranks=%d\n", count, messages, ranks);
    MPI_Finalize();
    return 0;
}
