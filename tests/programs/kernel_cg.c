/* Conjugate gradients on a sparse matrix, like NAS CG: a gather of the whole vector for each
 * product, and two sums over all ranks.
 *
 *   kernel_cg [--size ROWS] [--iterations SOLVES]
 *
 * The matrix is symmetric and positive definite, with entries at scattered distances from the
 * diagonal. Verified: the solution is the vector from which the right-hand side was made.
 */
#include "kernel.h"

#include <math.h>

enum { BANDS = 8, STEPS_MAX = 200 };
/* Tolerance relative to the right-hand side; the solution is then accurate to 1e-9. */
static const double TOLERANCE = 1e-13;

static long n, mine, first;
static long band[BANDS];
static double weight[BANDS], diagonal;

static void make_matrix(void)
{
    double sum = 0;
    for (int b = 0; b < BANDS; b++) {
        band[b] = 1 + (long)(mix64((uint64_t)b + 1) % (uint64_t)(n / 2 - 1));
        weight[b] = 1.0 / (b + 1);
        sum += 2 * weight[b];
    }
    diagonal = sum * 1.02; /* just diagonally dominant: some 60 steps */
}

/* out = A * all for this rank's rows; a row's neighbours are the distances of `band`, modulo n. */
static void product(double *part, double *all, double *out)
{
    MPI_Allgather(part, (int)mine, MPI_DOUBLE, all, (int)mine, MPI_DOUBLE, MPI_COMM_WORLD);
    for (long i = 0; i < mine; i++) {
        long row = first + i;
        double v = diagonal * all[row];
        for (int b = 0; b < BANDS; b++) {
            long up = row + band[b], down = row - band[b];
            v -= weight[b] * (all[up < n ? up : up - n] + all[down >= 0 ? down : down + n]);
        }
        out[i] = v;
    }
}

static double dot(const double *a, const double *b)
{
    double part = 0, sum = 0;
    for (long i = 0; i < mine; i++)
        part += a[i] * b[i];
    MPI_Allreduce(&part, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

static double wanted(long row, long solve)
{
    return (double)(mix64((uint64_t)(row + 1) * 31 + (uint64_t)solve) >> 11) * 0x1p-53 + 0.5;
}

/* Solves A x = r, overwriting r; returns the number of steps. */
static int solve(double *x, double *r, double *p, double *q, double *all)
{
    memset(x, 0, sizeof *x * (size_t)mine);
    memcpy(p, r, sizeof *p * (size_t)mine);
    double rho = dot(r, r), enough = rho * TOLERANCE * TOLERANCE;
    int step = 0;
    for (; step < STEPS_MAX && rho > enough; step++) {
        product(p, all, q);
        double alpha = rho / dot(p, q), old = rho;
        for (long i = 0; i < mine; i++) {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        rho = dot(r, r);
        for (long i = 0; i < mine; i++)
            p[i] = r[i] + rho / old * p[i];
    }
    return step;
}

int main(int argc, char **argv)
{
    long solves = 5;
    n = 60000;
    kernel_init(&argc, &argv, "cg", &n, &solves);
    if (n % ranks || n < 64)
        fail("--size must be at least 64 and a multiple of the number of ranks");
    mine = n / ranks, first = mine * rank;
    make_matrix();
    double *all = need((size_t)n, 8), *x = need((size_t)mine, 8), *r = need((size_t)mine, 8);
    double *p = need((size_t)mine, 8), *q = need((size_t)mine, 8), worst = 0;
    int steps = 0, good = 1;

    kernel_begin();
    for (long s = 0; s < solves; s++) {
        kernel_step();
        for (long i = 0; i < mine; i++)
            x[i] = wanted(first + i, s);
        product(x, all, r);
        steps += solve(x, r, p, q, all);
        for (long i = 0; i < mine; i++) {
            double off = fabs(x[i] - wanted(first + i, s));
            worst = off > worst ? off : worst;
            good &= off < 1e-9; /* false for a NaN as well */
        }
    }
    double seconds = kernel_end();
    return kernel_finish(good, seconds, "%d steps, error at most %.1e on rank 0", steps, worst);
}
