/* Long messages there and back, whose receives are posted before they are sent: posted ROUNDS */
#include "pattern.h"
#include <mpi.h>
#include <stdlib.h>

enum { LEAST = 65537, MORE = 300000 };

int main(int argc, char **argv)
{
    int rank, rounds = argc > 1 ? atoi(argv[1]) : 300;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *out = malloc(LEAST + MORE), *in = malloc(LEAST + MORE);
    for (int round = 0; round < rounds; round++) {
        size_t bytes = LEAST + mix64(round) % MORE, first;
        MPI_Request request;
        memset(in, 0xee, bytes);
        pattern_fill(out, bytes, pattern_key(rank, 1 - rank, round, 0));
        MPI_Irecv(in, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &request);
        if (rank == 0)
            MPI_Send(out, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(out, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        size_t wrong = pattern_check(in, bytes, pattern_key(1 - rank, rank, round, 0), &first);
        if (wrong) {
            printf("posted: rank %d round %d: %zu wrong bytes from %zu\n", rank, round, wrong, first);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    if (rank == 0)
        printf("posted ok rounds=%d\n", rounds);
    return MPI_Finalize();
}
