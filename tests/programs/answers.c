/* Synchronous sends of several packets, each followed by a longer message with the same tag. MPICH
 * acknowledges both in order of completion.
 *
 *   answers [ROUNDS]
 *
 * Prints `answers ok rounds=N`.
 */
#include <mpi.h>
#include <stdlib.h>

#include "pattern.h"

enum { PAIRS = 8, SYNC = 12000, LONG = 40000, TAG = 1, SEED = 7 };

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int rounds = argc > 1 ? atoi(argv[1]) : 3000;
    static unsigned char data[2 * PAIRS][LONG];
    for (int round = 0; round < rounds; round++) {
        MPI_Request reqs[2 * PAIRS];
        for (int i = 0; i < 2 * PAIRS && rank < 2; i++) {
            int size = i % 2 ? LONG : SYNC;
            uint64_t key = pattern_key(0, 1, (uint64_t)round * 2 * PAIRS + i, SEED);
            if (rank == 1) {
                MPI_Irecv(data[i], LONG, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &reqs[i]);
                continue;
            }
            pattern_fill(data[i], size, key);
            if (i % 2)
                MPI_Isend(data[i], size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &reqs[i]);
            else
                MPI_Issend(data[i], size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &reqs[i]);
        }
        MPI_Waitall(rank < 2 ? 2 * PAIRS : 0, reqs, MPI_STATUSES_IGNORE);
        for (int i = 0; i < 2 * PAIRS && rank == 1; i++) {
            uint64_t key = pattern_key(0, 1, (uint64_t)round * 2 * PAIRS + i, SEED);
            size_t first, wrong = pattern_check(data[i], i % 2 ? LONG : SYNC, key, &first);
            if (wrong) {
                printf("answers: round %d message %d: %zu wrong bytes from %zu\n", round, i, wrong, first);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
    }
    if (rank == 0)
        printf("answers ok rounds=%d\n", rounds);
    MPI_Finalize();
}
