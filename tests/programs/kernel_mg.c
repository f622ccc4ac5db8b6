/* Multigrid for Poisson's equation on a periodic cube, like NAS MG: planes of every level go to the
 * neighbours before each sweep, from long messages on the finest grid to a few bytes on the
 * coarsest.
 *
 *   kernel_mg [--size N] [--iterations CYCLES]    N a power of two, at least twice the ranks
 *
 * Verified: the solution is the grid from which the right-hand side was made.
 */
#include "kernel.h"

#include <math.h>

enum { LEVELS_MAX = 16, SWEEPS = 2, SWEEPS_COARSEST = 60 };
static const double DAMP = 6.0 / 7; /* optimal for damped Jacobi in three dimensions */

typedef struct {
    long n, planes;     /* points per side; planes of this rank */
    double *u, *f, *t;  /* [planes + 2][n][n]: solution, right-hand side, residual or scratch */
} Grid;

static Grid grids[LEVELS_MAX];
static int levels;

static double *plane(const Grid *g, double *v, long z)
{
    return v + (z + 1) * g->n * g->n; /* z from -1 to g->planes */
}

/* Fills the planes beside this rank's own from its neighbours. */
static void halo(const Grid *g, double *v)
{
    int up = (rank + 1) % ranks, down = (rank + ranks - 1) % ranks, count = (int)(g->n * g->n);
    MPI_Sendrecv(plane(g, v, g->planes - 1), count, MPI_DOUBLE, up, 1, plane(g, v, -1), count,
                 MPI_DOUBLE, down, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(plane(g, v, 0), count, MPI_DOUBLE, down, 2, plane(g, v, g->planes), count,
                 MPI_DOUBLE, up, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* The six neighbours of a point; the sides are periodic. */
static double around(const Grid *g, double *v, long z, long y, long x)
{
    long n = g->n, m = n - 1;
    double *p = plane(g, v, z);
    return p[y * n + ((x + 1) & m)] + p[y * n + ((x - 1) & m)] + p[((y + 1) & m) * n + x] +
           p[((y - 1) & m) * n + x] + p[y * n + x + n * n] + p[y * n + x - n * n];
}

/* t = f - A u, A u = 6 u - neighbours (mesh width 1 on the finest grid, folded into f below). */
static void residual(const Grid *g)
{
    halo(g, g->u);
    for (long z = 0; z < g->planes; z++)
        for (long y = 0; y < g->n; y++)
            for (long x = 0; x < g->n; x++) {
                long i = y * g->n + x;
                plane(g, g->t, z)[i] = plane(g, g->f, z)[i] - 6 * plane(g, g->u, z)[i] +
                                       around(g, g->u, z, y, x);
            }
}

static void smooth(const Grid *g, int sweeps)
{
    long points = g->planes * g->n * g->n;
    for (int s = 0; s < sweeps; s++) {
        residual(g);
        double *u = plane(g, g->u, 0), *t = plane(g, g->t, 0);
        for (long i = 0; i < points; i++)
            u[i] += DAMP / 6 * t[i];
    }
}

static double weight(long d)
{
    return d ? 0.25 : 0.5;
}

/* Full weighting of the residual; times 4, as the mesh doubles and A has no 1/h^2. */
static void restrict_to(const Grid *fine, const Grid *coarse)
{
    long n = fine->n, m = n - 1;
    halo(fine, fine->t);
    memset(coarse->u, 0, sizeof(double) * (size_t)((coarse->planes + 2) * coarse->n * coarse->n));
    for (long z = 0; z < coarse->planes; z++)
        for (long y = 0; y < coarse->n; y++)
            for (long x = 0; x < coarse->n; x++) {
                double sum = 0;
                for (long dz = -1; dz <= 1; dz++)
                    for (long dy = -1; dy <= 1; dy++)
                        for (long dx = -1; dx <= 1; dx++)
                            sum += weight(dz) * weight(dy) * weight(dx) *
                                   plane(fine, fine->t, 2 * z + dz)[((2 * y + dy) & m) * n +
                                                                    ((2 * x + dx) & m)];
                plane(coarse, coarse->f, z)[y * coarse->n + x] = 4 * sum;
            }
}

/* Adds the coarse solution, interpolated. */
static void prolong(const Grid *coarse, const Grid *fine)
{
    long n = coarse->n, m = n - 1;
    halo(coarse, coarse->u);
    for (long z = 0; z < fine->planes; z++)
        for (long y = 0; y < fine->n; y++)
            for (long x = 0; x < fine->n; x++) {
                double sum = 0;
                for (long c = 0; c < 8; c++) {
                    long cz = z / 2 + (z & 1 & (c >> 2)), cy = y / 2 + (y & 1 & (c >> 1));
                    long cx = x / 2 + (x & 1 & c);
                    sum += plane(coarse, coarse->u, cz)[(cy & m) * n + (cx & m)];
                }
                plane(fine, fine->u, z)[y * fine->n + x] += sum / 8;
            }
}

static void cycle(int level)
{
    const Grid *g = &grids[level];
    if (level == levels - 1) {
        smooth(g, SWEEPS_COARSEST);
        return;
    }
    smooth(g, SWEEPS);
    residual(g);
    restrict_to(g, &grids[level + 1]);
    cycle(level + 1);
    prolong(&grids[level + 1], g);
    smooth(g, SWEEPS);
}

/* A sum of waves with mean zero: the equation does not determine the mean. */
static double wanted(long n, long z, long y, long x)
{
    double a = 2 * M_PI / (double)n;
    return sin(a * (double)x) * cos(2 * a * (double)y) + 0.5 * sin(a * (double)(3 * z + y)) +
           0.25 * cos(a * 5 * (double)x + a * 7 * (double)z);
}

static void make_grids(long n)
{
    for (long planes = n / ranks; planes >= 1 && levels < LEVELS_MAX; n /= 2, planes /= 2) {
        Grid *g = &grids[levels++];
        size_t points = (size_t)((planes + 2) * n * n);
        *g = (Grid){n, planes, need(points, 8), need(points, 8), need(points, 8)};
    }
}

/* f = A wanted, u = 0. */
static void make_problem(const Grid *g)
{
    for (long z = 0; z < g->planes; z++)
        for (long i = 0; i < g->n * g->n; i++)
            plane(g, g->u, z)[i] = wanted(g->n, rank * g->planes + z, i / g->n, i % g->n);
    residual(g);
    for (long i = 0; i < g->planes * g->n * g->n; i++)
        plane(g, g->f, 0)[i] = -plane(g, g->t, 0)[i];
    memset(g->u, 0, sizeof(double) * (size_t)((g->planes + 2) * g->n * g->n));
}

/* Largest error on this rank, relative to the mean. */
static double error(const Grid *g)
{
    double part = 0, sum = 0, worst = 0;
    long points = g->planes * g->n * g->n;
    for (long i = 0; i < points; i++)
        part += plane(g, g->u, 0)[i];
    MPI_Allreduce(&part, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    sum /= (double)points * ranks;
    for (long z = 0; z < g->planes; z++)
        for (long i = 0; i < g->n * g->n; i++) {
            double want = wanted(g->n, rank * g->planes + z, i / g->n, i % g->n);
            double off = fabs(plane(g, g->u, z)[i] - sum - want);
            worst = off < worst ? worst : off; /* keeps a NaN */
        }
    return worst;
}

int main(int argc, char **argv)
{
    long n = 128, cycles = 6;
    kernel_init(&argc, &argv, "mg", &n, &cycles);
    if (!power_of_two(n) || n % ranks || n / ranks < 2 || !power_of_two(ranks) || n > 1024)
        fail("--size must be a power of two up to 1024, at least twice the ranks, and they as well");
    make_grids(n);
    make_problem(&grids[0]);

    kernel_begin();
    for (long i = 0; i < cycles; i++) {
        kernel_step();
        cycle(0);
    }
    double seconds = kernel_end(), worst = error(&grids[0]);
    /* A cycle reduces the error by a factor of 3 at least, down to 1e-8. */
    double bound = pow(1.0 / 3, (double)cycles) > 1e-8 ? pow(1.0 / 3, (double)cycles) * 2 : 1e-8;
    return kernel_finish(worst < bound, seconds, "error at most %.1e on rank 0, %d levels", worst,
                         levels);
}
