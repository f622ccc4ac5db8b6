/* A job that continues after the loss of a rank (ULFM, as in Open MPI): all ranks run allreduces
 * and rings with checked results; rank 1 is killed by SIGKILL meanwhile. A rank with an error
 * revokes the communicator; the remaining ranks shrink it, agree, and continue with as many rounds.
 *
 *   ulfm [ROUNDS]       (100)
 *
 * Rank 0 prints `ulfm: lost 1 of N after SECONDS s` and `ulfm ok ranks=N-1 rounds=ROUNDS`.
 */
#include <mpi.h>

#include <mpi-ext.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "pattern.h"

enum { WORDS = 20000 }; /* 160 kB, sent by rendezvous */

static void check(int good, const char *what, int round)
{
    if (!good) {
        fprintf(stderr, "ulfm: wrong result of %s in round %d\n", what, round);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* One round: a sum over all ranks, and a short and a long message around the ring. */
static int work(MPI_Comm comm, int round)
{
    static long mine[WORDS], from[WORDS];
    int rank, ranks, err;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    long here[2] = {rank + round, 1}, sum[2];
    if ((err = MPI_Allreduce(here, sum, 2, MPI_LONG, MPI_SUM, comm)))
        return err;
    check(sum[1] == ranks && sum[0] == (long)ranks * round + (long)ranks * (ranks - 1) / 2,
          "the allreduce", round);
    int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
    for (int words = 2; words <= WORDS; words *= WORDS / 2) {
        for (int i = 0; i < words; i++)
            mine[i] = rank * 1000003L + round * 31L + i;
        if ((err = MPI_Sendrecv(mine, words, MPI_LONG, right, words, from, words, MPI_LONG, left,
                                words, comm, MPI_STATUS_IGNORE)))
            return err;
        for (int i = 0; i < words; i++)
            check(from[i] == left * 1000003L + round * 31L + i, "the ring", round);
    }
    return MPI_SUCCESS;
}

static int rounds_of(MPI_Comm comm, int rounds, int dies_in)
{
    int err = MPI_SUCCESS;
    for (int round = 0; round < rounds && !err; round++) {
        if (round == dies_in)
            raise(SIGKILL);
        err = work(comm, round);
    }
    return err;
}

int main(int argc, char **argv)
{
    int rank, ranks, left, all = 1, rounds = argc > 1 ? atoi(argv[1]) : 100;
    MPI_Comm next;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    double begun = now_s();
    int err = rounds_of(MPI_COMM_WORLD, 1000 * rounds, rank == 1 ? rounds : -1);
    check(err != MPI_SUCCESS, "a job whose rank 1 is dead", -1);
    MPIX_Comm_revoke(MPI_COMM_WORLD);
    check(MPIX_Comm_shrink(MPI_COMM_WORLD, &next) == MPI_SUCCESS, "MPIX_Comm_shrink", -1);
    MPI_Comm_set_errhandler(next, MPI_ERRORS_RETURN);
    check(MPIX_Comm_agree(next, &all) == MPI_SUCCESS && all == 1, "MPIX_Comm_agree", -1);
    MPI_Comm_size(next, &left);
    if (rank == 0)
        printf("ulfm: lost %d of %d after %.2f s\n", ranks - left, ranks, now_s() - begun);
    check(rounds_of(next, rounds, -1) == MPI_SUCCESS, "a round without rank 1", -1);
    MPI_Barrier(next);
    if (rank == 0)
        printf("ulfm ok ranks=%d rounds=%d\n", left, rounds);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
