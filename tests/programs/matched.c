/* Messages that were matched by a probe (MPI_Mprobe), received into data in pieces.
 *
 *   matched
 *
 * Rank 0 sends vectors of some lengths, short ones and such that are not sent eagerly; rank 1 takes
 * each by MPI_Mrecv and by MPI_Imrecv, and looks at every byte, also of the gaps. Prints `matched ok`.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { GAP = -1 };

/* The wrong ones of `count` pairs, each an int of ours and one that nobody may write. */
static long wrong(const int *ints, int count)
{
    long n = 0;
    for (int i = 0; i < count; i++)
        n += (ints[2 * i] != i) + (ints[2 * i + 1] != GAP);
    return n;
}

int main(int argc, char **argv)
{
    const int counts[] = {1, 2, 1000, 1 << 20};
    int rank;
    long bad = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int turn = 0; turn < 8; turn++) {
        int count = counts[turn / 2], *ints = malloc(2 * count * sizeof *ints);
        MPI_Datatype vector;
        MPI_Message message;
        MPI_Request request;
        MPI_Type_vector(count, 1, 2, MPI_INT, &vector);
        MPI_Type_commit(&vector);
        for (int i = 0; i < 2 * count; i++)
            ints[i] = rank == 0 && i % 2 == 0 ? i / 2 : GAP;
        if (rank == 0) {
            MPI_Send(ints, 1, vector, 1, turn, MPI_COMM_WORLD);
        } else {
            MPI_Mprobe(0, turn, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
            if (turn % 2) {
                MPI_Imrecv(ints, 1, vector, &message, &request);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
            } else {
                MPI_Mrecv(ints, 1, vector, &message, MPI_STATUS_IGNORE);
            }
            bad += wrong(ints, count);
        }
        MPI_Type_free(&vector);
        free(ints);
    }
    if (rank == 1)
        printf("matched %s, %ld ints are wrong\n", bad ? "badly" : "ok", bad);
    MPI_Finalize();
    return bad != 0;
}
