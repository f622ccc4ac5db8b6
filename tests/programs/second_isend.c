/* Two small isends, then a computation: aggregation must not delay the second one.
 *
 *   second_isend [ROUNDS] [COMPUTE_MS]
 *
 * Prints `second_isend: median_us=... max_us=...`: from the second MPI_Isend to its arrival. Both
 * ranks must run on one machine (one CLOCK_MONOTONIC).
 */
#include <mpi.h>
#include <stdlib.h>

#include "pattern.h"

static int cmp(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int rounds = argc > 1 ? atoi(argv[1]) : 200;
    double compute_s = (argc > 2 ? atof(argv[2]) : 3) * 1e-3, *took = calloc(rounds, sizeof *took);
    if (ranks != 2 || rounds < 1)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int r = 0; r < rounds; r++) {
        double stamp[2];
        MPI_Request req[2];
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            for (int k = 0; k < 2; k++) {
                stamp[k] = now_s();
                MPI_Isend(&stamp[k], 1, MPI_DOUBLE, 1, k, MPI_COMM_WORLD, &req[k]);
            }
            while (now_s() < stamp[1] + compute_s)
                ;
            MPI_Waitall(2, req, MPI_STATUSES_IGNORE);
        } else {
            for (int k = 0; k < 2; k++)
                MPI_Recv(&stamp[k], 1, MPI_DOUBLE, 0, k, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            took[r] = (now_s() - stamp[1]) * 1e6;
        }
    }
    if (rank == 1) {
        qsort(took, rounds, sizeof *took, cmp);
        printf("second_isend: median_us=%.1f p95_us=%.1f max_us=%.1f\n", took[rounds / 2],
               took[rounds * 95 / 100], took[rounds - 1]);
    }
    free(took);
    MPI_Finalize();
    return 0;
}
